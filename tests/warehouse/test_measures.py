"""Measures of the papers' tables against hand-computed numbers, and the search for the runs of a suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.trace import Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec
from tests.warehouse import runs
from warehouse.database import Connection, reader
from warehouse.loading.runs import load_runs
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
    list(load_runs([run, base, scripted], where / "warehouse.duckdb"))
    return where / "warehouse.duckdb"


@pytest.fixture(scope="module")
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


def test_best_of_k_is_the_unbiased_estimate(connection: Connection) -> None:
    """Problem 0 has both samples wrong, the others both right."""
    measured = measure(connection, "pass_at_k", "own", k=2)
    assert measured is not None
    assert measured.estimate == pytest.approx(2 / 3)
    assert measure(connection, "pass_at_k", "own", k=5) is None


def test_a_ratio_needs_its_baseline(connection: Connection) -> None:
    measured = measure(connection, "speed_up", "own", "base")
    assert measured is not None
    assert measured.estimate == pytest.approx((21.5 * 22.5 * 23.5) ** (1 / 3) / 10)
    assert measure(connection, "speed_up", "own", None) is None
    assert measure(connection, "wall_speed_up", "own", "nothing") is None


def test_runs_are_selected_by_column_values(connection: Connection) -> None:
    columns: dict[str, object] = {"method": "speccot", "dataset": "toy", "params": {"guidance_tokens": 8, "drafts": 2}}
    assert [run["run_id"] for run in runs_like(connection, columns)] == ["own"]
    assert runs_like(connection, {**columns, "params": {"drafts": 3, "guidance_tokens": 8}}) == []
    assert runs_like(connection, {**columns, "draft_name": "other"}) == []
