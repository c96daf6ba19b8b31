"""Tokens that earlier runs spent: shards are balanced by them, and the balance is measured on these runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.problems.problem import Problem
from jobs.run.expected import Recorded
from jobs.run.spec import EngineSpec, RunSpec
from tests.warehouse import runs
from tools.bench.warehouse import makespan
from warehouse.database import writer
from warehouse.history import spent_tokens
from warehouse.load import load_run

SPEC = replace(runs.SPEC, engine=EngineSpec("vllm"))
OTHER = replace(SPEC, target=replace(runs.TARGET, name="larger", fingerprint="larger"), seed=1)
TEXTS = [problem.text for problem in runs.PROBLEMS]


def load(where: Path, spec: RunSpec, first: int, last: int, *, error: bool = False) -> Path:
    """A run whose units from `first` to `last` are finished: 24 spent tokens each, 30 where the step was refused."""
    folder = runs.create(where, spec)
    traces = [runs.speculative(unit, refused=i % 2 == 1) for i, unit in enumerate(runs.planned(folder))][first:last]
    if error:
        traces = [runs.ended(trace, "error", "RequestRefused: too long") for trace in traces]
    runs.write_part(folder, traces)
    load_run(folder, where / "warehouse.duckdb")
    return where / "warehouse.duckdb"


def test_spent_tokens_are_the_mean_over_samples_of_all_calls(tmp_path: Path) -> None:
    # Units are sample index first: of three problems, units 0 and 3 are the first one's samples.
    database = load(tmp_path, SPEC, 0, 4)
    assert spent_tokens(database, SPEC, TEXTS) == {
        TEXTS[0]: Recorded(27.0, 2),
        TEXTS[1]: Recorded(30.0, 1),
        TEXTS[2]: Recorded(24.0, 1),
    }


def test_the_same_models_are_believed_first_where_they_know_half_of_the_problems(tmp_path: Path) -> None:
    load(tmp_path, OTHER, 0, 6)
    database = load(tmp_path, SPEC, 0, 1)
    assert {r.num_samples for r in spent_tokens(database, SPEC, TEXTS).values()} == {2}
    load(tmp_path, replace(SPEC, seed=2), 1, 2)
    assert {r.num_samples for r in spent_tokens(database, SPEC, TEXTS).values()} == {1}


@pytest.mark.parametrize(
    "other_spec",
    [replace(SPEC, method="scot"), replace(SPEC, dataset="other")],
    ids=["another method", "another dataset"],
)
def test_other_methods_and_datasets_are_no_history(tmp_path: Path, other_spec: RunSpec) -> None:
    assert spent_tokens(load(tmp_path, SPEC, 0, 6), other_spec, TEXTS) == {}


def test_scripted_runs_and_errors_are_no_history(tmp_path: Path) -> None:
    load(tmp_path, runs.SPEC, 0, 6)
    assert spent_tokens(load(tmp_path, SPEC, 0, 6, error=True), SPEC, TEXTS) == {}


def test_a_warehouse_that_is_missing_broken_or_outdated_is_no_history(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    assert spent_tokens(database, SPEC, TEXTS) == {}
    database.write_bytes(b"not a database" * 1000)
    assert spent_tokens(database, SPEC, TEXTS) == {}
    database.unlink()
    with writer(database) as connection:
        connection.execute("UPDATE schema_version SET digest = 'x'")
    assert spent_tokens(database, SPEC, TEXTS) == {}


def test_history_balances_heavy_tailed_lengths_better_than_equal_slices() -> None:
    problems = [Problem(f"d/{i}", "d", str(i), "1") for i in range(30)]
    recorded = makespan.Lengths(
        problems, {(p.id, s): 100.0 + 7 * i + s for i, p in enumerate(problems) for s in (0, 1)}
    )
    results = makespan.makespans(makespan.draw_lengths(recorded, 1.0), 64)
    assert 1 <= results["true means"] <= results["history"] < results["equal slices"]


def test_the_comparison_is_printed_for_every_run_with_several_samples(tmp_path: Path) -> None:
    database = load(tmp_path, SPEC, 0, 6)
    result = CliRunner().invoke(makespan.main, [str(database), "--shards", "2"])
    assert result.exit_code == 0, result.output
    assert "recorded, 2 shards" in result.output
    assert "equal slices" in result.output
