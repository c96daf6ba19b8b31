"""The judge's true error rates, from probes: how often it accepts wrong steps and refuses right ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from warehouse.database import Connection, rows
from warehouse.estimates.row import Estimate, Subject
from warehouse.statistics import probes
from warehouse.statistics.intervals import Floats
from warehouse.statistics.probes import Points

_POINTS = """
SELECT probe.*, grader_version, problem.text AS problem_text
FROM probe JOIN problem ON (problem.run_id, problem.problem_id) = (probe.run_id, probe.draft_problem_id)
JOIN counted_version ON counted_version.run_id = probe.run_id
WHERE probe.run_id IN (SELECT unnest($run_ids::VARCHAR[])) AND num_draft_rollouts > 0 AND num_own_rollouts > 0
ORDER BY probe.run_id, draft_problem_id
"""
_SCORES = tuple(range(1, 10))
"""Thresholds of scores."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Where the thresholds of other numbers lie among those of the points."""


def probed(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of those runs that are probes, over the points with grades of both kinds of continuations."""
    by_run: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in rows(connection, _POINTS, {"run_ids": list(run_ids)}):
        by_run[str(row["run_id"])].append(row)
    for run_id, found in by_run.items():
        version = None if found[0]["grader_version"] is None else str(found[0]["grader_version"])
        yield from _rows_of(run_id, version, found)


def _rows_of(run_id: str, version: str | None, found: Sequence[Mapping[str, object]]) -> Iterator[Estimate]:
    points, n = _points(found), len({str(row["problem_text"]) for row in found})
    subject = Subject(run_id, version)
    yield from _rates(subject, points)
    area = probes.area(points)
    if np.isfinite(area.estimate):
        yield subject.estimate("probe_auroc", n, area, num_samples=len(points))
    for third in sorted({int(one) for one in points.third}):
        yield from _rates(Subject(run_id, version, None, "third", str(third)), points.where(points.third == third))
    sign = -1.0 if found[0]["accepts_below"] else 1.0
    for threshold in _thresholds(str(found[0]["kind"]), points):
        accepted = points.rating >= threshold
        yield from _rates(Subject(run_id, version, None, "threshold", f"{sign * threshold:g}"), points, accepted)


def _rates(subject: Subject, points: Points, accepted: probes.Flags | None = None) -> Iterator[Estimate]:
    found = probes.rates(points, accepted)
    n = len(np.unique(points.problem))
    for name in ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused"):
        interval = getattr(found, name)
        if np.isfinite(interval.estimate):
            yield subject.estimate(f"probe_{name}", n, interval, num_samples=len(points))


def _points(found: Sequence[Mapping[str, object]]) -> Points:
    numbers = {text: number for number, text in enumerate(dict.fromkeys(str(row["problem_text"]) for row in found))}
    ratings = [float("nan") if row["value"] is None else float(str(row["value"])) for row in found]
    signs = [-1.0 if row["accepts_below"] else 1.0 for row in found]

    def counts(name: str) -> probes.Numbers:
        return np.array([int(str(row[name])) for row in found])

    return Points(
        problem=np.array([numbers[str(row["problem_text"])] for row in found]),
        weight=np.array([float(str(row["weight"])) for row in found]),
        accepted=np.array([bool(row["accepted"]) for row in found]),
        third=counts("third"),
        rating=np.array(ratings) * np.array(signs),
        draft_right=counts("num_draft_correct"),
        draft_total=counts("num_draft_rollouts"),
        own_right=counts("num_own_correct"),
        own_total=counts("num_own_rollouts"),
    )


def _thresholds(kind: str, points: Points) -> Sequence[float]:
    """Return the thresholds at which the decisions are replayed: none for a choice, which has no threshold."""
    known = points.rating[~np.isnan(points.rating)]
    if kind == "choice" or not len(known):
        return ()
    return _SCORES if kind == "score" else of_numbers(known)


def of_numbers(ratings: Floats) -> list[float]:
    """Return quantiles of ratings, rounded down to the six digits that name them: different ones have other names."""
    found = np.quantile(ratings, _QUANTILES)
    scale = 10.0 ** (5 - np.floor(np.log10(np.maximum(np.abs(found), 1e-12))))
    return sorted({float(f"{threshold:g}") for threshold in np.floor(found * scale + 1e-6) / scale})
