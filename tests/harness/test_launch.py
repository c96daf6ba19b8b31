"""The command as a person types it: mistakes get one line and exit code 2, a run ends with a table and resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from harness.launch import main
from harness.methods import METHODS, build, defaults
from harness.settings.layers import presets

DATASET = ("--dataset", "demo")
SPECCOT = ("--method", "speccot")


def launch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`python -m harness.launch …` in a process of its own."""
    command = [sys.executable, "-m", "harness.launch", *arguments]
    outside = {**os.environ, "PATH": f"{_without_cluster(cwd)}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False, env=outside)


def _without_cluster(folder: Path) -> Path:
    """Return a folder of commands that say that there is no cluster, whatever this machine may be part of."""
    commands = folder.with_name(f"{folder.name}-commands")
    commands.mkdir(exist_ok=True)
    answer = "scontrol: fatal: Could not establish a configuration source"
    for name in ("sbatch", "scontrol"):
        (commands / name).write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit 1\n")
        (commands / name).chmod(0o755)
    return commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "specot", *DATASET), "(did you mean 'speccot'?)"),
        (SPECCOT, "--dataset is missing; choose from gsm8k"),
        (DATASET, "--method is missing; choose from vanilla"),
        ((*SPECCOT, "--dataset", "amc24"), "'amc23'"),
        ((*SPECCOT, *DATASET, "--score", "average"), "--score is not a parameter of speccot, which takes --drafts"),
        ((*SPECCOT, *DATASET, "--drafts", "0"), "--drafts must be from 1 to 25, not 0"),
        ((*SPECCOT, *DATASET, "--drafts", "many"), "'many' is not a valid integer"),
        ((*SPECCOT, *DATASET, "--target", "qwq32"), "unknown model 'qwq32'; valid: "),
        ((*SPECCOT, *DATASET, "--samples", "0"), "--samples 0: Input should be greater than or equal to 1"),
        ((*SPECCOT, *DATASET, "--problems", "900", "--engine", "scripted"), "900"),
        ((*SPECCOT, *DATASET, "--preset", "speccot"), "'speccot-qwq'"),
        ((*SPECCOT, *DATASET, "--config", "no.toml"), "no.toml"),
        ((*SPECCOT, *DATASET, "--nonsense"), "--nonsense"),
        (("--method", "specreason", *DATASET, "--score", "mean"), "'greedy', 'average'"),
        ((*SPECCOT, *DATASET, "--engine", "scripted", "--slurm", "gpu"), "expected KEY=VALUE"),
        ((*SPECCOT, *DATASET, "--engine", "scripted", "--spec-decode", "ngram"), "needs --engine vllm, not scripted"),
        (("--method", "specdecode", *DATASET, "--spec-decode", "none"), "without, it is vanilla"),
        (("--method", "vanilla", *DATASET, "--spec-decode", "ngram"), "is --method specdecode"),
        (("--method", "vanilla", *DATASET, "--engine", "scripted", "--take-turns"), "vanilla uses one engine"),
        (
            (*SPECCOT, *DATASET, "--engine", "vllm", "--target.adapter", "x"),
            "scot's choice of a draft, not for speccot",
        ),
        (
            ("--method", "scot", *DATASET, "--engine", "scripted", "--target.adapter", "x"),
            "vllm or transformers, not",
        ),
        (
            ("--method", "scot", *DATASET, "--engine", "vllm", "--target.adapter", "x"),
            "lacks adapter_config.json",
        ),
        ((*SPECCOT, *DATASET, "--engine", "scripted", "--time", "soon"), "--time soon: expected minutes"),
        ((*SPECCOT, *DATASET, "--engine", "scripted", "--profile", "none"), "--profile none: no such file"),
    ],
)
def test_invalid_input_gets_one_line_that_names_what_is_valid(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = launch(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_config_file_gives_way_to_flags_and_wins_over_the_preset(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('dataset = "demo"\nthreshold = 5\ntoken-budget = 100\nengine = "scripted"\n')
    result = launch(
        "--preset", "specreason-qwq", "--config", "my.toml", "--token-budget", "50", "--dry-run", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "threshold 5" in result.stdout
    assert "token budget 50" in result.stdout
    assert "16" in result.stdout


def test_an_unknown_key_in_the_config_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("treshold = 5\n")
    result = launch("--config", "my.toml", cwd=tmp_path)
    assert result.returncode == 2
    assert "treshold" in result.stderr


def test_a_run_prints_its_result_and_run_again_does_nothing(tmp_path: Path) -> None:
    command = (*SPECCOT, *DATASET, "--engine", "scripted", "--samples", "2", "--limit", "5", "--token-budget", "2000")
    first = launch(*command, cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "LIMITED RUN" in first.stdout
    assert "pass@1" in first.stdout
    assert "python -m jobs show" in first.stdout
    again = launch(*command, cwd=tmp_path)
    assert again.returncode == 0
    assert "All 10 samples are already finished." in again.stdout
    assert "pass@1" in again.stdout
    assert len(list((tmp_path / "runs").glob("demo-speccot-*"))) == 1


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    result = launch(*SPECCOT, *DATASET, "--engine", "scripted", "--dry-run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "40 problems × 16 samples = 640" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_where_slurm_answers_the_default_models_are_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.submission.submit.client.check_controller", lambda: None)
    monkeypatch.setattr("jobs.submission.dispatch.preview", lambda *arguments: "")
    monkeypatch.setattr("harness.environment.accelerator", lambda: "cpu")
    result = CliRunner().invoke(main, [*SPECCOT, *DATASET, "--engine", "vllm", "--dry-run", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "draft r1-distill-qwen-1.5b, target qwq-32b" in result.output
    assert "NO GPU: " not in result.output


def test_every_preset_names_a_method_its_parameters_and_existing_models() -> None:
    from harness.weights.models import MODELS

    for preset in presets().values():
        method = str(preset["method"])
        build(method, {name: cast(str, value) for name, value in preset.items() if name in defaults(method)})
        assert {preset["draft"], preset["target"]} <= set(MODELS)
        assert method in METHODS


def test_an_output_that_is_a_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in ("file", "file/below"):
        result = launch(*SPECCOT, *DATASET, "--engine", "scripted", "--output", output, cwd=tmp_path)
        assert result.returncode == 2
        assert f"--output {output}: {tmp_path / 'file'} is not a folder" in result.stderr


def test_no_more_shards_are_planned_than_there_are_samples(tmp_path: Path) -> None:
    few = ("--engine", "scripted", "--limit", "1", "--samples", "2", "--shards", "5", "--dry-run")
    assert "2 shards, " in launch(*SPECCOT, *DATASET, *few, cwd=tmp_path).stdout


def test_a_warehouse_that_is_none_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "warehouse.duckdb").write_text("not a database" * 1000)
    result = launch(*SPECCOT, *DATASET, "--engine", "scripted", "--limit", "1", cwd=tmp_path)
    assert result.returncode == 2
    assert "is not a valid DuckDB database file" in result.stderr
    assert result.stderr.count("makes it anew") == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["warehouse.duckdb"]


def test_the_batch_script_is_printed_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "#SBATCH --gres=gpu:a:2\n\t[bold]x[/bold]"
    monkeypatch.setattr("jobs.submission.dispatch.preview", lambda *arguments: script)
    arguments = [*SPECCOT, *DATASET, "--engine", "scripted", "--cluster", "slurm", "--dry-run"]
    result = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path)])
    assert f"{script}\n" in result.stdout
