"""What a run achieved problem by problem and sample by sample, and what two runs have in common.

A sample is missing while it is not finished, or not graded by the grader version that counts. An error, a timeout or a
cut-off is a result and counts as not correct; but an error that no grade names is missing while that version has yet to
grade other samples of the run, because the errors alone would otherwise be the run's whole result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warehouse.database import Connection, WarehouseError, columns, rows
from warehouse.statistics.intervals import Counts, Floats

Flags = NDArray[np.bool_]
_PROBLEMS = """
SELECT problem_id || ' ' || content_hash AS problem, problem_id, speed.latency_seconds
FROM problem LEFT JOIN problem_speed AS speed USING (run_id, problem_id)
WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
SELECT problem_index, sample_index, sample.verdict = 'correct' AS is_correct, timed.latency_seconds,
    graded AND (grade.verdict IS NOT NULL OR NOT bool_or(finished AND NOT graded) OVER ()) AS has_result
FROM sample_grade AS sample JOIN problem USING (run_id, problem_id)
LEFT JOIN grade ON grade.run_id = sample.run_id AND grade.sample_id = sample.sample_id
    AND grade.grader_version = sample.grader_version
LEFT JOIN timed_sample AS timed ON timed.run_id = sample.run_id AND timed.sample_id = sample.sample_id
WHERE sample.run_id = $run_id
"""


@dataclass(frozen=True)
class Outcomes:
    """Samples of one run; arrays are (n, k): n problems in the run's order, k sample indices from 0."""

    problems: Sequence[str]
    """Id and content hash: what pairs runs."""
    problem_ids: Sequence[str]
    is_counted: Flags
    """Which samples are looked at; as read, all that are planned."""
    is_missing: Flags
    """Which of them are missing."""
    is_correct: Flags
    sample_seconds: Floats
    """Latency of a sample; NaN where its time means nothing."""
    latency_seconds: Floats
    """(n,). Mean over the counted samples whose time means something; NaN where there is none."""

    @cached_property
    def correct(self) -> Counts:
        """(n,). Right samples per problem."""
        return np.asarray((self.is_correct & self.is_counted).sum(axis=1), dtype=np.int64)

    @cached_property
    def samples(self) -> Counts:
        """(n,). Counted samples per problem."""
        return np.asarray(self.is_counted.sum(axis=1), dtype=np.int64)

    @property
    def scores(self) -> Floats:
        """(n,). Mean over a problem's counted samples; whatever is not correct counts as 0."""
        return np.asarray(self.correct / self.samples, dtype=float)

    @cached_property
    def num_samples(self) -> int:
        """All counted samples."""
        return int(self.is_counted.sum())

    @cached_property
    def num_missing(self) -> int:
        """Counted samples that are missing; 0 for a complete run."""
        return int(self.is_missing.sum())

    def at(self, places: Counts) -> Outcomes:
        """These problems alone, in this order; places (m,)."""
        return Outcomes(
            [self.problems[place] for place in places],
            [self.problem_ids[place] for place in places],
            self.is_counted[places],
            self.is_missing[places],
            self.is_correct[places],
            self.sample_seconds[places],
            self.latency_seconds[places],
        )

    def among(self, is_kept: Flags) -> Outcomes:
        """Keep the problems and let only some of their samples count; is_kept (n, k)."""
        kept = self.is_counted & is_kept
        is_timed = np.isfinite(self.sample_seconds)
        timed = kept & is_timed
        is_changed = (self.is_counted & is_timed & ~kept).any(axis=1) & np.isfinite(self.latency_seconds)
        total = np.where(timed, self.sample_seconds, 0.0).sum(axis=1)
        mean = np.where(total > 0, total / np.maximum(timed.sum(axis=1), 1), np.nan)
        return replace(
            self,
            is_counted=kept,
            is_missing=self.is_missing & kept,
            latency_seconds=np.where(is_changed, mean, self.latency_seconds),
        )

    def present(self) -> Outcomes:
        """What is not missing; a problem of which every sample is missing is left out."""
        return self.among(~self.is_missing).holding(1)

    def holding(self, k: int) -> Outcomes:
        """The problems with at least k counted samples."""
        return self.at(np.flatnonzero(self.samples >= k))


@dataclass(frozen=True)
class Pair:
    """What is compared of two runs: the same problems, and no sample whose index one of them lacks."""

    first: Outcomes
    second: Outcomes
    num_shared_problems: int
    """Problems that both runs have with equal content, those that are left out here included."""
    num_planned_samples: int
    """Sample indices that at least one of the two has planned, over these problems."""

    @property
    def n(self) -> int:
        """Problems that are compared."""
        return len(self.first.problems)

    @property
    def num_common_samples(self) -> int:
        """Sample indices that are compared, over all problems; one that a single run has planned counts as well."""
        return int(np.sum(_wide(self.first.is_counted, self.second) | _wide(self.second.is_counted, self.first)))

    @property
    def num_missing_samples(self) -> int:
        """The other planned sample indices: one of the two lacks them, or they are of a problem that is left out."""
        return self.num_planned_samples - self.num_common_samples

    def holding(self, k: int) -> Pair:
        """The problems of which both runs have at least k samples left."""
        places = np.flatnonzero((self.first.samples >= k) & (self.second.samples >= k))
        return replace(self, first=self.first.at(places), second=self.second.at(places))


def paired(first: Outcomes, second: Outcomes) -> Pair:
    """Pair two runs by problem, in the first one's order.

    Within a problem a sample that one run lacks is left out of the other as well: missing samples are not missing at
    random, because long chains finish last. A problem with no sample left in one of the two is left out.
    """
    here, there = _common(first, second)
    own, other = first.at(here), second.at(there)
    lacking = _wide(own.is_missing, other) | _wide(other.is_missing, own)
    planned = _wide(own.is_counted, other) | _wide(other.is_counted, own)
    left_own, left_other = (outcomes.among(~lacking[:, : outcomes.is_counted.shape[1]]) for outcomes in (own, other))
    return Pair(left_own, left_other, len(here), int(planned.sum())).holding(1)


def read_outcomes(connection: Connection, run_id: str) -> Outcomes:
    """Outcomes of a run that the warehouse holds."""
    found = rows(connection, _PROBLEMS, {"run_id": run_id})
    samples = columns(connection, _SAMPLES, {"run_id": run_id})
    shape = len(found), int(samples["sample_index"].max()) + 1
    flat = np.unique(samples["problem_index"], return_inverse=True)[1] * shape[1] + samples["sample_index"]
    is_planned, has_result, is_correct = (np.zeros(shape, dtype=bool) for _ in range(3))
    sample_seconds = np.full(shape, np.nan)
    is_planned.flat[flat] = True
    has_result.flat[flat] = samples["has_result"]
    is_correct.flat[flat] = samples["is_correct"]
    sample_seconds.flat[flat] = samples["latency_seconds"]
    return Outcomes(
        [str(row["problem"]) for row in found],
        [str(row["problem_id"]) for row in found],
        is_planned,
        is_planned & ~has_result,
        is_correct,
        sample_seconds,
        np.array([np.nan if row["latency_seconds"] is None else row["latency_seconds"] for row in found], dtype=float),
    )


def read_folders(connection: Connection, run_ids: Sequence[str]) -> dict[str, str]:
    """The run folders as they were when the runs were loaded, by run id."""
    sql = "SELECT run_id, folder FROM run WHERE run_id IN (SELECT unnest($run_ids))"
    found = rows(connection, sql, {"run_ids": list(run_ids)})
    return {str(row["run_id"]): str(row["folder"]) for row in found}


def _common(first: Outcomes, second: Outcomes) -> tuple[Counts, Counts]:
    """Places of the problems that both runs have, with equal content, in the first one's order; both (m,)."""
    places: Mapping[str, int] = {problem: place for place, problem in enumerate(second.problems)}
    pairs = [(place, places[problem]) for place, problem in enumerate(first.problems) if problem in places]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _wide(flags: Flags, other: Outcomes) -> Flags:
    """Flags (n, k) with further columns that are not set, where the other run has more samples per problem."""
    return np.pad(flags, ((0, 0), (0, max(0, other.is_counted.shape[1] - flags.shape[1]))))


def resolve(connection: Connection, given: str) -> str:
    """The run id for a run id, a beginning that only one has, or a run folder's path. Raises WarehouseError."""
    ids = [str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run ORDER BY created_at, run_id")]
    name = given.rstrip("/")
    name = Path(name).name if "/" in name else name
    found = [run_id for run_id in ids if run_id == name] or [run_id for run_id in ids if run_id.startswith(name)]
    if len(found) == 1 and name:
        return found[0]
    what = f"is the beginning of {len(found)} runs: " if found else "is no run of this warehouse; there are: "
    shown = (found or ids)[:20]
    more = "" if len(shown) == len(found or ids) else ", …"
    raise WarehouseError(f"{given!r} {what}{', '.join(shown) or 'none'}{more}")
