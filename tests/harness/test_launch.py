"""The command as a person types it: mistakes get one line and exit code 2, and it says what it would submit."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.launch import main

SPECCOT = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*arguments: str, cluster: str = "local") -> Result:
    return CliRunner().invoke(main, [*arguments, "--cluster", cluster])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "vanilla"), "--dataset is missing; choose from gsm8k"),
        ((*SPECCOT, "--dataset", "amc24"), "'amc23'"),
        ((*SPECCOT, "--engine", "vllm", "--target", "qwq32"), "unknown model 'qwq32'; valid: "),
        ((*SPECCOT, "--problems", "900"), "900"),
        ((*SPECCOT, "--nonsense"), "--nonsense"),
        ((*SPECCOT, "--slurm", "gpu"), "expected KEY=VALUE"),
        ((*SPECCOT, "--profile", "none"), "--profile none: no such file"),
        ((*SPECCOT, "--spec-decode", "ngram"), "requires --engine vllm, not scripted"),
        ((*SPECCOT, "--method", "specdecode", "--spec-decode", "none"), "without it, use --method vanilla"),
        ((*SPECCOT, "--method", "vanilla", "--engine", "vllm", "--spec-decode", "ngram"), "use --method specdecode"),
        ((*SPECCOT, "--method", "vanilla", "--take-turns"), "vanilla uses one engine"),
        (
            (*SPECCOT, "--method", "scot", "--engine", "vllm", "--target.adapter", "x"),
            "the folder must contain both adapter_config.json",
        ),
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


def test_where_slurm_answers_the_default_models_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.submission.submit.client.check_controller", lambda: None)
    monkeypatch.setattr("jobs.submission.dispatch.preview", lambda *arguments: "#SBATCH\n\t[bold]x[/bold]")
    monkeypatch.setattr("harness.environment.accelerator", lambda: "cpu")
    result = launch(*SPECCOT, "--engine", "vllm", "--dry-run", cluster="slurm")
    assert result.exit_code == 0, result.output
    assert "r1-distill-qwen-1.5b" in result.output
    assert "\n\t[bold]x[/bold]\n" in result.stdout, "the batch script as it is"


def test_a_warehouse_that_is_none_is_refused_before_anything_runs(folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "runs" / "warehouse.duckdb").write_text("not a database" * 1000)
    result = launch(*SPECCOT, "--limit", "1")
    assert (result.exit_code, "DuckDB" in result.stderr) == (2, True), result.output
    assert [path.name for path in (folder / "runs").iterdir()] == ["warehouse.duckdb"]
