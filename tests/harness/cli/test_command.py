"""Wrong inputs and unreadable files are one line each, in plain words; on a terminal it is wrapped."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner
from rich.file_proxy import FileProxy

from harness.cli import command
from harness.cli.command import OneLineErrors
from harness.cli.screen import terminal
from harness.cli.toml_file import read_toml

COMMAND = "python -m jobs resume runs/demo-speccot-draft_target-0123abcd --profile mycluster"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_error_is_wrapped_on_a_terminal_except_inside_a_command(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise click.UsageError(f"the run has three shards that nobody works on any more; {COMMAND}, or cancel it")

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", stream := Terminal() if is_terminal else io.StringIO())
    with pytest.raises(SystemExit) as stopped:
        OneLineErrors("take", callback=refuse).main([])
    assert stopped.value.code == 2
    lines = stream.getvalue().splitlines()
    assert len(lines) == (4 if is_terminal else 1)
    assert [line for line in lines if COMMAND in line]
    assert all(len(line) <= 40 or COMMAND in line for line in lines)


def test_what_is_not_a_number_is_refused_within_every_range() -> None:
    option = click.Option(["--number"], type=click.FloatRange(0, 1))
    command = OneLineErrors("take", params=[option], callback=lambda number: None)
    result = CliRunner().invoke(command, ["--number", "nan"])
    assert (result.exit_code, result.stderr) == (2, "error: Invalid value for '--number': 'nan' is not a number\n")


def test_a_status_is_drawn_on_the_terminal_and_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, console = io.StringIO(), terminal()
    monkeypatch.setattr(sys, "stdout", FileProxy(console, cast(Any, command._Escaping(raw))))
    assert console.file is raw


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"drafts = ", "not a readable TOML file"),
        (b"name = '\xff'", "not a readable TOML file"),
        (b"a = 1\na = 2", "not a readable TOML file"),
        (b"a = '" + b"x" * 1_000_000 + b"'", "larger than 1 MB"),
        (b'[a]\nb = ["\\u0000"]', "contains a NUL character"),
        (None, "no such file"),
        ("pipe", "no such file, or not a regular file"),
    ],
)
def test_an_unreadable_file_is_one_line_that_names_it(
    tmp_path: Path, content: bytes | str | None, message: str
) -> None:
    path = tmp_path / "a.toml"
    if content == "pipe":
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    for label, opening in ((None, str(path)), ("--config a.toml", "--config a.toml")):
        with pytest.raises(ValueError, match=message) as raised:
            read_toml(path, label)
        assert str(raised.value).startswith(f"{opening}: ")
        assert "\n" not in str(raised.value)
