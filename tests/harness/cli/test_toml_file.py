"""A TOML file that cannot be read is one line, whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.toml_file import read_toml


@pytest.mark.parametrize("content", [b"drafts = ", b"name = '\xff'", b"a = 1\na = 2"])
def test_an_unreadable_file_is_one_line_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    for label, opening in ((None, str(path)), ("--config a.toml", "--config a.toml")):
        with pytest.raises(ValueError, match="not a readable TOML file") as raised:
            read_toml(path, label)
        assert str(raised.value).startswith(f"{opening}: ")
        assert "\n" not in str(raised.value)


def test_a_missing_file_and_a_folder_are_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^--config a\.toml: no such file$"):
        read_toml(tmp_path / "a.toml", "--config a.toml")
    with pytest.raises(ValueError, match="Is a directory"):
        read_toml(tmp_path)
