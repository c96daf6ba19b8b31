"""Measures of the papers' tables against hand-computed numbers, and the search for the runs of a suite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.trace import Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec
from tests.warehouse import runs
from warehouse.database import Connection, reader, rows
from warehouse.loading.runs import load_run
from warehouse.measures import MEASURES, geometric, mean
from warehouse.suites.measured import measure, runs_like

SPEC = replace(runs.SPEC, engine=EngineSpec("vllm"))
VANILLA = replace(runs.VANILLA, engine=EngineSpec("vllm"))


def thinker(run: RunFolder) -> list[Trace]:
    """Chains of 40 tokens of which the thought, by characters, is one half: 8 + 8 of 32."""
    traces = [runs.vanilla(unit, 40, 20.0 + i) for i, unit in enumerate(runs.planned(run))]
    for trace in traces:
        trace.steps[0].text = "thought." + "</think>" + "The answer is 2."
    return traces


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("measures")
    run, base = runs.create(where, SPEC, "own"), runs.create(where, VANILLA, "base")
    scripted = runs.create(where, runs.SPEC, "scripted")
    units = runs.planned(run)
    texts = ("Wait, so 2.\n", "So 2.\n")
    traces = [runs.speculative(unit, refused=i < 2, latency=10.0, text=texts[i >= 2]) for i, unit in enumerate(units)]
    runs.write_part(run, traces)
    runs.write_grades(run, {t.sample_id: "correct" if i % 3 else "wrong" for i, t in enumerate(traces)})
    runs.write_part(base, thinker(base))
    for folder in (run, base, scripted):
        load_run(folder, where / "warehouse.duckdb")
    return where / "warehouse.duckdb"


@pytest.fixture
def connection(database: Path) -> Iterator[Connection]:
    with reader(database) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "run", "value"),
    [
        ("emitted_tokens", "own", 18),  # guidance 8, step 6, answer 4
        ("longest_draft_tokens", "own", 6),
        ("latency_seconds", "own", 10),
        ("tokens_per_second", "own", 1.8),
        ("fallback_rate", "own", 2 / 6),
        ("draft_steps", "own", 4 / 18),
        ("answer_tokens", "own", 4),
        ("thinking_tokens", "own", 14),
        ("thought_tokens_per_second", "own", 14 / 8.5),  # 1.5 of 10 s are the answer
        ("target_thinking_tokens", "own", 8 + 6 * 2 / 6),
        ("thinking_tokens", "base", 20),
        ("answer_tokens", "base", 20),
        ("graded_pass_at_1", "own", 4 / 6),
        # Of every thought 1 s guidance, 2 s drafting, 1 s verdict, and 3 s of fallback in two of six.
        ("drafting_share", "own", 12 / 30),
        ("selection_share", "own", 6 / 30),
        ("target_share", "own", 12 / 30),
        ("reflection_in_drafts", "own", 0),
        ("reflection_in_fallbacks", "own", 1000 / 6),
    ],
)
def test_a_measure_agrees_with_the_traces(connection: Connection, name: str, run: str, value: float) -> None:
    measured = measure(connection, name, run)
    assert measured is not None
    assert measured.estimate == pytest.approx(value)


def test_the_interval_of_a_mean_time_of_few_problems_is_students_on_logarithms(connection: Connection) -> None:
    """Two samples of each of three problems, planned index first: latencies 20 and 23, 21 and 24, 22 and 25."""
    measured = measure(connection, "latency_seconds", "base")
    assert measured is not None
    assert measured.estimate == pytest.approx(22.5)
    assert measured.high == pytest.approx(22.5 * math.exp(4.302652730 / 22.5 / math.sqrt(3)))
    assert measured.low == pytest.approx(22.5 * math.exp(-4.302652730 / 22.5 / math.sqrt(3)))


def test_best_of_k_is_the_unbiased_estimate(connection: Connection) -> None:
    """Problem 0 has both samples wrong, the others both right."""
    measured = measure(connection, "pass_at_k", "own", k=2)
    assert measured is not None
    assert measured.estimate == pytest.approx(2 / 3)
    assert measure(connection, "pass_at_k", "own", k=5) is None


def test_shares_stay_between_nothing_and_all(connection: Connection) -> None:
    measured = measure(connection, "graded_pass_at_1", "own")
    assert measured is not None
    assert measured.low is not None
    assert measured.high is not None
    assert 0.0 <= measured.low < measured.estimate < measured.high <= 1.0


def test_a_measure_is_the_ratio_of_its_sums_over_problems(connection: Connection) -> None:
    """problem_total, of which the registry's measures are ratios, has the sums of the tables that it is made of."""
    stored = rows(connection, "FROM estimate WHERE num IS NOT NULL AND group_kind IS NULL")
    means = {name for name, one in MEASURES.items() if one.method in (mean, geometric)}
    assert {row["measure"] for row in stored} >= {"fallback_rate", "spent_tokens", "latency_seconds", "truncated"}
    assert all(row["value"] == pytest.approx(row["num"] / row["den"]) for row in stored if row["measure"] not in means)
    sums = "SELECT sum({}) FROM problem_total WHERE run_id = 'own'"
    for name, sql in {
        "num_refused": "SELECT sum(num_refused) FROM step_total WHERE run_id = 'own'",
        "spent_tokens": "SELECT sum(spent_tokens) FROM sample_tokens WHERE run_id = 'own'",
        "num_samples": "SELECT count(*) FROM sample WHERE run_id = 'own'",
        "cached_tokens": "SELECT sum(cached_tokens) FROM call_total WHERE run_id = 'own'",
        "waited_seconds": "SELECT sum(waited_seconds) FROM call_total WHERE run_id = 'own' AND is_timed",
        "answer_tokens": "SELECT sum(num_tokens) FROM sample_answer WHERE run_id = 'own'",
    }.items():
        [[found], [expected]] = (connection.execute(one).fetchall() for one in (sums.format(name), sql))
        assert found == pytest.approx(expected), name


def test_a_ratio_needs_its_baseline(connection: Connection) -> None:
    measured = measure(connection, "speed_up", "own", "base")
    assert measured is not None
    assert measured.estimate == pytest.approx((21.5 * 22.5 * 23.5) ** (1 / 3) / 10)
    assert measure(connection, "speed_up", "own", None) is None
    assert measure(connection, "wall_speed_up", "own", "nothing") is None


def test_a_ratio_may_divide_the_time_of_a_sample_by_that_of_a_thought(connection: Connection) -> None:
    """As SpecCoT's r does: the baseline's 22.5 s of thought and answer, and 8.5 s of thought."""
    measured = measure(connection, "ratio_of_means", "own", "base", "scot", "measured")
    assert measured is not None
    assert measured.estimate == pytest.approx(22.5 / 8.5)


def test_every_measure_can_be_computed_for_any_run(connection: Connection) -> None:
    for name in MEASURES:
        for run in ("own", "base", "scripted"):
            measure(connection, name, run, "base")


def test_runs_are_selected_by_column_values(connection: Connection) -> None:
    columns: dict[str, object] = {"method": "speccot", "dataset": "toy", "params": {"guidance_tokens": 8, "drafts": 2}}
    assert [run["run_id"] for run in runs_like(connection, columns)] == ["own"]
    assert runs_like(connection, {**columns, "params": {"drafts": 3, "guidance_tokens": 8}}) == []
    assert runs_like(connection, {**columns, "draft_name": "other"}) == []
