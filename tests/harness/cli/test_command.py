"""Wrong inputs and too little memory are one line each, in plain words; other trouble is raised."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from harness.cli import exit_codes
from harness.cli.command import OneLineErrors


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        (click.INT, "x", "'x' is not a whole number"),
        (click.FLOAT, "x is not 1", "'x is not 1' is not a number"),
        (click.IntRange(1), "x", "'x' is not a whole number in the range x>=1"),
        (click.IntRange(1), "0", "0 is not a whole number in the range x>=1"),
        (click.IntRange(1, 100_000), "100001", "100001 is not a whole number in the range 1<=x<=100000"),
        (click.IntRange(max=9), "10", "10 is not a whole number in the range x<=9"),
        (click.FloatRange(0, min_open=True), "0", "0.0 is not a number in the range x>0"),
        (click.FLOAT, "nan", "'nan' is not a number"),
        (click.FloatRange(0, 1), "nan", "'nan' is not a number in the range 0<=x<=1"),
        (click.FloatRange(0, 1, min_open=True), "x", "'x' is not a number in the range 0<x<=1"),
        (click.FloatRange(0, 1, max_open=True), "1", "1.0 is not a number in the range 0<=x<1"),
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


def _command(error: BaseException) -> click.Command:
    @click.command(cls=OneLineErrors)
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "error: too little memory for this process\n"),
        (
            MemoryError("malloc of size 64 failed"),
            "error: too little memory for this process: malloc of size 64 failed\n",
        ),
        (
            ImportError("_duckdb.so: failed to map segment\nfrom shared object"),
            "error: too little memory for this process: _duckdb.so: failed to map segment from shared object\n",
        ),
        (
            ImportError("x.so: cannot create shared object descriptor: Cannot allocate memory"),
            "error: too little memory for this process: x.so: cannot create shared object descriptor: Cannot allocate "
            "memory\n",
        ),
    ],
)
def test_too_little_memory_is_one_line(error: BaseException, line: str) -> None:
    result = CliRunner().invoke(_command(error))
    assert (result.exit_code, result.output) == (exit_codes.TROUBLE, line)


def test_another_failed_import_is_raised() -> None:
    result = CliRunner().invoke(_command(ModuleNotFoundError("No module named 'duckdb'")))
    assert isinstance(result.exception, ModuleNotFoundError)
