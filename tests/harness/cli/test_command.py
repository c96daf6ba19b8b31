"""What a number may be is said in plain words."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from harness.cli.command import OneLineErrors


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        (click.INT, "x", "'x' is not a whole number"),
        (click.FLOAT, "x is not 1", "'x is not 1' is not a number"),
        (click.IntRange(1), "x", "'x' is not a whole number of 1 or more"),
        (click.IntRange(1), "0", "0 is not a whole number of 1 or more"),
        (click.IntRange(1, 100_000), "100001", "100001 is not a whole number from 1 to 100000"),
        (click.IntRange(max=9), "10", "10 is not a whole number of 9 or less"),
        (click.FloatRange(0, min_open=True), "0", "0.0 is not a number above 0"),
        (click.FLOAT, "nan", "'nan' is not a number"),
        (click.FloatRange(0, 1), "nan", "'nan' is not a number from 0 to 1"),
        (click.FloatRange(0, 1, min_open=True), "x", "'x' is not a number above 0 and up to 1"),
        (click.FloatRange(0, 1, max_open=True), "1", "1.0 is not a number of 0 or more and below 1"),
    ],
)
def test_a_number_that_is_not_valid_gets_what_is(kind: click.ParamType[Any], typed: str, said: str) -> None:
    command = OneLineErrors("take", params=[click.Option(["--number"], type=kind)], callback=lambda number: None)
    result = CliRunner().invoke(command, ["--number", typed])
    assert (result.exit_code, result.stderr) == (2, f"error: Invalid value for '--number': {said}\n")


def test_a_choice_that_there_is_not_gets_the_one_that_is_like_it() -> None:
    kind = click.Choice(["greedy", "average"])
    command = OneLineErrors("take", params=[click.Option(["--what"], type=kind)], callback=print)
    told = CliRunner().invoke(command, ["--what", "gredy"]).stderr
    assert told.endswith("'gredy' is not one of 'greedy', 'average' (did you mean 'greedy'?)\n")
