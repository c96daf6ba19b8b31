"""`python -m harness.sizing`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from harness.sizing.__main__ import main


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path_factory.mktemp("cache")))


def output(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, prog_name="sizing", catch_exceptions=False)
    return result.output


def test_the_table_shows_widths_shares_tokens_and_samples_of_every_choice() -> None:
    text = output("--gpus", "1xL40S", "--gpus", "8xA100-80")
    refused, planned = (
        next(line for line in text.splitlines() if name in line) for name in ("1 × L40S", "8 × A100-80")
    )
    assert "2 × L40S would hold 1 sample at once" in refused
    assert "4 / 8" in planned
    assert text.count("assumed: the sizes of") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "4"], "--gpus 4: expected a number and a type"),
        (["--target", "nobody/nothing"], "nobody/nothing is unknown: its config.json is not on this machine"),
        (["--target", "nothing"], "unknown model 'nothing'; valid: "),
    ],
)
def test_a_wrong_input_is_one_line(arguments: list[str], message: str) -> None:
    text = output(*arguments)
    assert text.startswith("error: ")
    assert message in text
    assert text.count("\n") == 1


def test_a_width_that_is_impossible_is_said_in_the_row() -> None:
    assert "12 attention heads cannot be divided by 8" in " ".join(
        output("--gpus", "8xH100-80", "--draft-tensor-parallel", "8").replace("│", " ").split()
    )
