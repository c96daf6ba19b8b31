"""Tests of the launcher's flags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.launch import main
from harness.settings.layers import arguments, merged_flags


def test_flags_as_the_launcher_takes_them() -> None:
    flags: dict[str, Any] = {
        "method": "scot",
        "top_p": 0.9,
        "slurm": ["a=1", "b=2"],
        "error_correction": False,
        "dry-run": True,
    }
    argv = arguments(flags)
    assert argv[:8] == ["--method", "scot", "--top-p", "0.9", "--slurm", "a=1", "--slurm", "b=2"]
    assert argv[8:] == ["--no-error-correction", "--dry-run"]
    understood = main.make_context("launch", argv).params
    assert understood["error_correction"] is False
    assert understood["dry_run"] is True
    assert understood["slurm"] == ("a=1", "b=2")


def test_a_bare_flag_that_is_false_is_omitted() -> None:
    assert arguments({"take_turns": False}) == ["--no-take-turns"]


def test_the_list_of_methods_is_aligned() -> None:
    lines = CliRunner().invoke(main, ["--list", "methods"]).output.splitlines()
    assert len(lines) > 10
    assert len({line.index("--") for line in lines if line.startswith(" ")}) == 1
    margin = next(line.index("--") for line in lines if line.startswith(" "))
    assert all(line[margin - 1] == " " != line[margin] for line in lines[:-1])


def test_gpus_that_are_typed_replace_those_of_a_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    config.write_text('gpus-per-node = "h100:2"\ngpu-memory = "94GB"\n')
    merged = merged_flags({"config": str(config), "gres": "gpu:l40s:4"})
    assert merged == {"gres": "gpu:l40s:4"}


def test_a_wrong_value_or_key_of_a_models_table_names_its_file(tmp_path: Path) -> None:
    config = tmp_path / "launch.toml"
    for text, message in (
        ('temperature = "hot"', "--target.temperature hot: Input should be a valid number"),
        ("temprature = 1", "unknown key 'target.temprature' (did you mean 'target.temperature'?)"),
        ("top-k = 1\ntop_k = 2", "target.top_k: set twice"),
    ):
        config.write_text(f"[target]\n{text}\n")
        with pytest.raises(ValueError, match=re.escape(message)) as refused:
            merged_flags({"config": str(config)})
        assert str(config) in str(refused.value)
        assert message in str(refused.value)
