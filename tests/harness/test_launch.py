"""The command as a person types it: mistakes get one line and exit code 2, a run ends with a table and resumes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result

from harness.launch import main
from harness.methods import METHODS, build, defaults
from harness.settings.layers import presets
from harness.weights.models import MODELS

SPECCOT = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*arguments: str, cluster: str = "local") -> Result:
    return CliRunner().invoke(main, [*arguments, "--cluster", cluster])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "vanilla"), "--dataset is missing; choose from gsm8k"),
        ((*SPECCOT, "--dataset", "amc24"), "'amc23'"),
        ((*SPECCOT, "--drafts", "many"), "'many' is not a valid integer"),
        ((*SPECCOT, "--engine", "vllm", "--target", "qwq32"), "unknown model 'qwq32'; valid: "),
        ((*SPECCOT, "--problems", "900"), "900"),
        ((*SPECCOT, "--config", "no.toml"), "no.toml"),
        ((*SPECCOT, "--nonsense"), "--nonsense"),
        ((*SPECCOT, "--slurm", "gpu"), "expected KEY=VALUE"),
        ((*SPECCOT, "--profile", "none"), "--profile none: no such file"),
        ((*SPECCOT, "--spec-decode", "ngram"), "needs --engine vllm, not scripted"),
        ((*SPECCOT, "--method", "specdecode", "--spec-decode", "none"), "without, it is vanilla"),
        ((*SPECCOT, "--method", "vanilla", "--engine", "vllm", "--spec-decode", "ngram"), "is --method specdecode"),
        ((*SPECCOT, "--method", "vanilla", "--take-turns"), "vanilla uses one engine"),
        ((*SPECCOT, "--method", "scot", "--engine", "vllm", "--target.adapter", "x"), "lacks adapter_config.json"),
        ((*SPECCOT, "--output", "file/below"), "is not a folder"),
    ],
)
def test_invalid_input_gets_one_line_that_names_what_is_valid(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    (folder / "file").touch()
    result = launch(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert message in result.stderr
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_run_prints_its_result_and_run_again_does_nothing(folder: Path) -> None:
    command = (*SPECCOT, "--samples", "2", "--limit", "2", "--token-budget", "500")
    first = launch(*command, cluster="debug")
    assert first.exit_code == 0, first.output
    again = launch(*command, cluster="debug")
    assert again.exit_code == 0, again.output
    for shown in (first, again):
        assert "PARTIAL RUN" in shown.stdout
        assert "pass@1" in shown.stdout
    assert len(list((folder / "runs").glob("demo-speccot-*"))) == 1


def test_a_dry_run_writes_nothing_and_plans_no_more_shards_than_samples(folder: Path) -> None:
    result = launch(*SPECCOT, "--dry-run", "--limit", "1", "--samples", "2", "--shards", "5")
    assert result.exit_code == 0, result.output
    assert "2 shards, " in result.stdout
    assert list(folder.iterdir()) == []


def test_where_slurm_answers_the_default_models_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.submission.submit.client.check_controller", lambda: None)
    monkeypatch.setattr("jobs.submission.dispatch.preview", lambda *arguments: "#SBATCH\n\t[bold]x[/bold]")
    monkeypatch.setattr("harness.environment.accelerator", lambda: "cpu")
    result = launch(*SPECCOT, "--engine", "vllm", "--dry-run", cluster="slurm")
    assert result.exit_code == 0, result.output
    assert "r1-distill-qwen-1.5b" in result.output
    assert "\n\t[bold]x[/bold]\n" in result.stdout, "the batch script as it is"


def test_every_preset_names_a_method_its_parameters_and_existing_models() -> None:
    for preset in presets().values():
        method = str(preset["method"])
        build(method, {name: cast(str, value) for name, value in preset.items() if name in defaults(method)})
        assert {preset["draft"], preset["target"]} <= set(MODELS)
        assert method in METHODS


def test_a_warehouse_that_is_none_is_refused_before_anything_runs(folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "runs" / "warehouse.duckdb").write_text("not a database" * 1000)
    result = launch(*SPECCOT, "--limit", "1")
    assert (result.exit_code, "DuckDB" in result.stderr) == (2, True), result.output
    assert [path.name for path in (folder / "runs").iterdir()] == ["warehouse.duckdb"]
