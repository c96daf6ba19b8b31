"""Wrong inputs and too little memory are one line each, in plain words; other trouble is raised."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from harness.cli import exit_codes
from harness.cli.command import OneLineErrors


@pytest.mark.parametrize("kind", [click.FLOAT, click.FloatRange(0, 1)])
def test_what_is_not_a_number_is_refused_within_every_range(kind: click.ParamType[Any]) -> None:
    command = OneLineErrors("take", params=[click.Option(["--number"], type=kind)], callback=lambda number: None)
    result = CliRunner().invoke(command, ["--number", "nan"])
    assert (result.exit_code, result.stderr) == (2, "error: Invalid value for '--number': 'nan' is not a number\n")


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
