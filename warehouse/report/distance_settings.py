"""Settings of a report whose distance from the target is known, each with its speed-up in every regime it ran in.

A setting is a method with its parameters, models, sampling and prompts on one dataset. How many samples are in flight
decides no text, so its runs have one distance, that of the run with most scored samples, and a speed-up each. A run of
which some samples were timed one at a time (`--latency-sample`) has that with one in flight too, estimated from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warehouse.comparison.show_regimes import setting
from warehouse.labels import labels
from warehouse.report.differences import Differences
from warehouse.report.facts import Estimate, RunFacts

_OF_TEXT = (
    "top_p",
    "token_budget",
    "draft_sampling",
    "target_sampling",
    "draft_template",
    "target_template",
    "draft_fingerprint",
    "target_fingerprint",
    "prompt_hash",
    "engine_kind",
    "engine_dtype",
    "tag",
)
"""Columns of the table `run` that distinguish settings, beside what its summary has."""


@dataclass(frozen=True)
class Distances:
    """What the target gives the accepted text of the runs that are scored."""

    of_runs: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of `queries.DISTANCE` by run id: one for each baseline, or one without."""
    speed_ups: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of `queries.DISTANCE_SPEED` by run id, of all runs of the report.

    There is one for each baseline, and one more where both were timed one sample at a time beside their batches.
    """
    absurdity: Mapping[str, Mapping[str, Any]]
    """The row of `queries.ABSURDITY` of each run whose steps the database has."""
    absurd_steps: Sequence[Mapping[str, Any]]
    """The most absurd steps, at most 20."""
    threshold: float
    """Nats of a token from which on its step is absurd."""

    def with_baseline(self, run: RunFacts, runs: Sequence[RunFacts]) -> Mapping[str, Any] | None:
        """Return a run's row with the baseline of the report that shares most problems, first of its own regime.

        None where it has none.
        """
        in_flight = {other.summary.run_id: other.summary.concurrency for other in runs}
        found = [
            row
            for row in self.of_runs[run.summary.run_id]
            if row["distance"] is not None and row["baseline_run_id"] in in_flight
        ]
        own = run.summary.concurrency
        return max(found, key=lambda row: (row["n"], in_flight[row["baseline_run_id"]] == own), default=None)


@dataclass(frozen=True)
class Setting:
    """A setting of the report that has a distance from the target, or whose chains others are compared with."""

    run: RunFacts
    """Its run with most scored samples, which has the distance."""
    nats: Mapping[str, Any]
    """A row of `queries.DISTANCE` about the run."""
    distance: Mapping[str, Any] | None
    """Its row with a baseline of the report; None for a baseline itself."""
    label: str = ""
    """Short name, unique in the report; it need not tell regimes apart."""
    speed_ups: Mapping[int, Estimate] = field(default_factory=dict)
    """Speed-up over the target alone by the number of samples in flight, where it is known; 1 for a baseline."""
    is_from_sample: bool = False
    """Whether that with one sample in flight is estimated from timing samples."""

    @property
    def accuracy(self) -> Estimate | None:
        """Its pass@1 in percent; None where nothing is graded."""
        result = self.run.summary.result
        if result is None:
            return None
        low, high = (None if end is None else 100 * end for end in (result.low, result.high))
        return Estimate(100 * result.estimate, self.run.summary.n, low, high)


def settings(runs: Sequence[RunFacts], distances: Distances, compared: Differences) -> list[Setting]:
    """Return the settings with a distance and their baselines, in the order of the runs."""
    groups, found = _by_setting(runs), list[tuple[Setting, Mapping[int, RunFacts]]]()
    for group in groups:
        scored = [run for run in group.values() if run.summary.run_id in distances.of_runs]
        if scored:
            run = max(scored, key=lambda run: distances.of_runs[run.summary.run_id][0]["num_samples"])
            row = distances.with_baseline(run, runs)
            found.append((Setting(run, distances.of_runs[run.summary.run_id][0], row), group))
    baselines = {str(own.distance["baseline_run_id"]) for own, _ in found if own.distance}
    kept = [(own, members) for own, members in found if own.distance or own.run.summary.run_id in baselines]
    names = labels([replace(own.run.summary, concurrency=0) for own, _ in kept])
    known: list[Setting] = []
    for name, (own, members) in zip(names, kept, strict=True):
        theirs = next((other for other in groups if _baseline_of(own) in _ids(other)), {})
        speed_ups = {n: _speed_up(run, n, _ids(theirs), distances, compared) for n, run in members.items()}
        is_from_sample = False
        if own.distance is None:
            timed = [1] if any(run.summary.at_one for run in members.values()) else []
            speed_ups = {number: Estimate(1.0, own.run.summary.n, None, None) for number in [*timed, *members]}
        elif 1 not in members:
            at_one = (_stored(run, 1, _ids(theirs), distances) for run in members.values())
            speed_ups[1] = next((found for found in at_one if found), None)
            is_from_sample = speed_ups[1] is not None
        values = {number: speed_ups[number] for number in sorted(speed_ups)}
        speeds = {number: value for number, value in values.items() if value}
        known.append(replace(own, label=name, speed_ups=speeds, is_from_sample=is_from_sample))
    return known


def in_flight(found: Sequence[Setting]) -> list[int]:
    """Return the numbers of samples in flight at which settings other than the baselines have speed-ups, ascending."""
    return sorted({number for own in found if own.distance for number in own.speed_ups})


def _by_setting(runs: Sequence[RunFacts]) -> list[dict[int, RunFacts]]:
    """Return the runs of each setting by samples in flight; runs that repeat one at the same number are kept apart."""
    found: dict[tuple[str, int], dict[int, RunFacts]] = {}
    for run in runs:
        own, number = json.dumps([setting(run.summary), *(run.conditions[name] for name in _OF_TEXT)]), 0
        while run.summary.concurrency in found.get((own, number), {}):
            number += 1
        found.setdefault((own, number), {})[run.summary.concurrency] = run
    return list(found.values())


def _ids(members: Mapping[int, RunFacts]) -> list[str]:
    return [run.summary.run_id for run in members.values()]


def _baseline_of(own: Setting) -> str | None:
    return str(own.distance["baseline_run_id"]) if own.distance else None


def _speed_up(
    run: RunFacts, number: int, baselines: Sequence[str], distances: Distances, compared: Differences
) -> Estimate | None:
    """Return a run's speed-up over one of these baselines: that of the warehouse, otherwise that of the comparison."""
    if (stored := _stored(run, number, baselines, distances)) is not None:
        return stored
    for comparison in compared.comparisons:
        for own in comparison.rows:
            speed = own.speed if own.run.run_id == run.summary.run_id else None
            if speed is not None and speed.ratio is not None and speed.baseline in baselines:
                return Estimate(speed.ratio.estimate, speed.n, speed.ratio.low, speed.ratio.high)
    return None


def _stored(run: RunFacts, number: int, baselines: Sequence[str], distances: Distances) -> Estimate | None:
    """Return the warehouse's speed-up of a run with so many samples in flight over one of these baselines."""
    for row in distances.speed_ups.get(run.summary.run_id, ()):
        if row["in_flight"] == number and row["baseline_run_id"] in baselines:
            return Estimate(row["speed_up"], row["n"], row["low_95"], row["high_95"])
    return None
