"""Wrong inputs and too little memory are one line each, in plain words; other trouble is raised."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from harness.cli.command import OneLineErrors


@pytest.mark.parametrize("kind", [click.FLOAT, click.FloatRange(0, 1)])
def test_what_is_not_a_number_is_refused_within_every_range(kind: click.ParamType[Any]) -> None:
    command = OneLineErrors("take", params=[click.Option(["--number"], type=kind)], callback=lambda number: None)
    result = CliRunner().invoke(command, ["--number", "nan"])
    assert (result.exit_code, result.stderr) == (2, "error: Invalid value for '--number': 'nan' is not a number\n")
