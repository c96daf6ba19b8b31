"""Distance from the target: nats per token of accepted text, against the target's own chains on the same problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.trace import Trace
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import runs
from tests.warehouse.cells import load, select
from tests.warehouse.report.conftest import report
from warehouse.statistics.intervals import mean_t

SCORER = derived.scorer_of(runs.TARGET, runs.SPEC)
Nats = Callable[[int], float]
"""Nats per token of the chain of the sample with this number."""


def score(folder: RunFolder, traces: Sequence[Trace], nats: Nats, **changes: str | float | None) -> None:
    """Write a file in which every token of a chain has the same log-probability."""
    scored = [
        {
            "sample_id": trace.sample_id,
            "step_index": place,
            "num_characters": len(step.text),
            "num_tokens": step.num_tokens,
            "logprob": -nats(number) * step.num_tokens,
            "lowest_logprob": -nats(number),
            "target": SCORER.fingerprint,
            **changes,
        }
        for number, trace in enumerate(traces)
        for place, step in enumerate(trace.steps)
    ]
    derived.write_logprobs(folder, SCORER, scored)


def made(where: Path, spec: RunSpec, nats: Nats | None, without: Sequence[int] = ()) -> tuple[RunFolder, list[Trace]]:
    """A finished run whose samples have these nats per token, except for some that are not scored."""
    folder = runs.create(where, spec)
    make = runs.vanilla if spec.method == "vanilla" else runs.speculative
    traces = [make(unit) for unit in runs.planned(folder)]
    runs.write_part(folder, traces)
    if nats is not None:
        kept = [(number, trace) for number, trace in enumerate(traces) if number not in without]
        score(folder, [trace for _, trace in kept], lambda place: nats(kept[place][0]))
    return folder, traces


def estimates(where: Path, metric: str) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in select(where, f"FROM counted_estimate WHERE metric = '{metric}'")}


def own_nats(number: int) -> float:
    """Six samples, of three problems in turn."""
    return 0.5 + 0.1 * (number % 3) + 0.02 * number


def base_nats(number: int) -> float:
    return 0.3 + 0.05 * (number % 3)


def by_problem(nats: Nats, numbers: Sequence[int] = range(6)) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.mean([nats(n) for n in numbers if n % 3 == problem]) for problem in range(3)])


def test_the_distance_is_the_mean_difference_over_problems_with_its_t_interval(tmp_path: Path) -> None:
    own, _ = made(tmp_path, runs.SPEC, own_nats)
    base, _ = made(tmp_path, runs.VANILLA, base_nats)
    load(tmp_path, own, base)
    expected = mean_t(by_problem(own_nats) - by_problem(base_nats))
    row = estimates(tmp_path, "distance_from_target")[own.path.name]
    assert (row["baseline_run_id"], row["n"]) == (base.path.name, 3)
    found = (row["estimate"], row["low_95"], row["high_95"])
    assert found == pytest.approx((expected.estimate, expected.low, expected.high))
    alone = estimates(tmp_path, "target_nats_per_token")
    assert alone[own.path.name]["estimate"] == pytest.approx(by_problem(own_nats).mean())
    assert alone[base.path.name]["estimate"] == pytest.approx(by_problem(base_nats).mean())
    [shown] = select(tmp_path, "FROM distance_from_target WHERE baseline_run_id IS NOT NULL")
    assert (shown["distance"], shown["distance_low_95"]) == found[:2], "the view shows the same numbers"


def test_a_sample_that_one_run_lacks_is_left_out_of_the_other(tmp_path: Path) -> None:
    own, _ = made(tmp_path, runs.SPEC, own_nats)
    base, _ = made(tmp_path, runs.VANILLA, base_nats, without=[4])
    load(tmp_path, own, base)
    row = estimates(tmp_path, "distance_from_target")[own.path.name]
    both = [0, 1, 2, 3, 5]
    assert row["estimate"] == pytest.approx((by_problem(own_nats, both) - by_problem(base_nats, both)).mean())


def test_a_later_score_and_a_later_baseline_change_the_distance_at_the_next_load(tmp_path: Path) -> None:
    own, _ = made(tmp_path, runs.SPEC, own_nats)
    base, traces = made(tmp_path, runs.VANILLA, None)
    load(tmp_path, own, base)
    assert estimates(tmp_path, "distance_from_target") == {}
    score(base, traces, base_nats)
    load(tmp_path, base)
    assert estimates(tmp_path, "distance_from_target").keys() == {own.path.name}


def test_only_chains_that_were_drawn_and_read_alike_are_compared(tmp_path: Path) -> None:
    other_target = replace(runs.TARGET, fingerprint="another")
    others = (replace(runs.VANILLA, token_budget=128), replace(runs.VANILLA, target=other_target))
    load(tmp_path, *(made(tmp_path, spec, own_nats)[0] for spec in (runs.SPEC, *others)))
    assert estimates(tmp_path, "distance_from_target") == {}


def test_rows_of_another_chain_and_numbers_that_are_none_count_for_nothing(tmp_path: Path) -> None:
    folder, traces = made(tmp_path, runs.SPEC, None)
    score(folder, traces[:1], own_nats, num_characters=1)
    score(folder, traces[1:2], own_nats, logprob=float("nan"))
    score(folder, traces[2:3], own_nats, logprob=1.0)
    score(folder, [replace(traces[3], steps=traces[3].steps[:-1])], own_nats)
    score(folder, traces[4:5], own_nats)
    load(tmp_path, folder)
    counted = [row["sample_id"] for row in select(tmp_path, "FROM sample_target_logprob")]
    assert counted == [traces[4].sample_id]


def test_of_two_files_with_a_sample_the_first_counts(tmp_path: Path) -> None:
    folder, traces = made(tmp_path, runs.SPEC, own_nats)
    score(folder, traces, base_nats)
    load(tmp_path, folder)
    [row] = estimates(tmp_path, "target_nats_per_token").values()
    assert row["estimate"] == pytest.approx(by_problem(own_nats).mean())
    assert len(select(tmp_path, "FROM step_target_logprob")) == sum(len(trace.steps) for trace in traces)


def test_the_table_has_the_numbers_of_the_estimates(tmp_path: Path) -> None:
    """The second sample of the run is improbable to the target."""
    own, _ = made(tmp_path, runs.SPEC, lambda number: 14.0 if number == 1 else 0.5)
    base, _ = made(tmp_path, runs.VANILLA, base_nats)
    load(tmp_path, own, base)
    row = estimates(tmp_path, "distance_from_target")[own.path.name]
    result = report(tmp_path / "w.duckdb", own.path.name, base.path.name, "--format", "md")
    assert result.exit_code == 0, result.output
    shown = [f"{row[name]:.4f}".replace("-", "−") for name in ("estimate", "low_95", "high_95")]
    assert [number for number in shown if number not in result.output] == []
