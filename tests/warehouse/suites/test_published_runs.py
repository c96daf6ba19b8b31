"""The way of timing: one for all columns of a suite that is launched, and what is there where its table is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import reproduce
from tests.warehouse import runs
from tests.warehouse.suites.timed_runs import PLAIN, SPECULATIVE, finished, time
from warehouse.loading.runs import load_run
from warehouse.suites import published as papers

MODELS = ("--draft", "org/small", "--target", "org/large", "--drafts", "2", "--scale", "3x2")
ALONE = replace(PLAIN, concurrency=1)


@pytest.fixture
def large_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems × 2 samples count as enough for a latency sample."""
    monkeypatch.setattr(papers, "LEAST_SAMPLES", 1)


def asked(output: Path, *more: str) -> str:
    command = ["speccot-table2", *MODELS, "--output", str(output), *more]
    result = CliRunner(env={"COLUMNS": "220"}).invoke(reproduce.main, command)
    assert result.exit_code == 0, result.output
    return result.output


def row(told: str, label: str) -> str:
    """The lines of a row, one for each column that is shown."""
    return "\n".join(line for line in told.splitlines() if line.strip().startswith(label))


@pytest.mark.usefixtures("large_plan")
def test_a_table_has_the_runs_that_were_timed_as_its_flags_say(tmp_path: Path) -> None:
    for spec, trace, seconds in (
        (ALONE, runs.vanilla, 20.0),
        (replace(SPECULATIVE, concurrency=1), runs.speculative, 10.0),
    ):
        load_run(finished(tmp_path, spec, trace, seconds), tmp_path / "warehouse.duckdb")
    sampled = finished(tmp_path, PLAIN, runs.vanilla, 200.0)
    time(sampled, runs.vanilla, (59.0, 60.0, 61.0, 60.0))
    load_run(sampled, tmp_path / "warehouse.duckdb")
    told = asked(tmp_path, "--table", "--column", "gsm8k", "--every-sample-alone")
    assert " 2.4 " in row(told, "SpecCoT, QwQ-32B"), "20 s alone / (10 s - 1.5 s of the answer)"
    assert "60.0 (" not in row(told, "QwQ-32B")


def test_a_small_run_with_a_latency_sample_stands_in_the_table_of_its_scale(tmp_path: Path) -> None:
    """A run of so few samples is planned with every sample alone, unless a latency sample is asked for."""
    run = finished(tmp_path, PLAIN, runs.vanilla, 200.0)
    time(run, runs.vanilla, (19.0, 20.0, 21.0, 20.0))
    load_run(run, tmp_path / "warehouse.duckdb")
    assert "20.0 (" in row(asked(tmp_path, "--table", "--latency-sample", "4"), "QwQ-32B")
