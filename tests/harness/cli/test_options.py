"""Tests of the launcher's flags."""

from __future__ import annotations

from harness.cli.options import arguments
from harness.launch import main


def test_flags_as_the_launcher_takes_them() -> None:
    flags = {"method": "scot", "top_p": 0.9, "slurm": ["a=1", "b=2"], "error_correction": False, "dry-run": True}
    argv = arguments(flags)
    assert argv[:8] == ["--method", "scot", "--top-p", "0.9", "--slurm", "a=1", "--slurm", "b=2"]
    assert argv[8:] == ["--no-error-correction", "--dry-run"]
    understood = main.make_context("launch", argv).params
    assert understood["error_correction"] is False
    assert understood["dry_run"] is True
    assert understood["slurm"] == ("a=1", "b=2")


def test_a_bare_flag_that_is_false_is_omitted() -> None:
    assert arguments({"dry_run": False}) == []
