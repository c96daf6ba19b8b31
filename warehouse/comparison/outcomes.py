"""Outcomes of a run by problem and sample, and the pairing of two runs.

A sample is missing until it is finished and graded by the selected grader version. An error, a timeout or a truncation
is a result and counts as incorrect. So does an ungraded error, unless other finished samples of the run lack a grade
from that version; the error is then missing too, because otherwise the errors alone would be the run's whole result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from harness.cli.number_format import floored_percent
from jobs.run.folder import meant_by, run_paths
from warehouse.database import Connection, WarehouseError, columns, rows
from warehouse.statistics.intervals import Counts, Families, Floats

Flags = NDArray[np.bool_]
LEAST_COMPLETENESS = 0.99
"""Minimum share of a pair's planned samples for the non-inferiority test.

Samples are not missing at random: long chains finish last, so the missing samples are the hard ones, and the data do
not show their results. Above this share, missing samples count against the run: its own as wrong, the baseline's as
right (the worst case of Manski, Nonparametric Bounds on Treatment Effects, Am. Econ. Rev. 80, 1990). If both runs have
planned equally many samples, this shifts the difference by at most 1 point, half of the usual margin. The shift is
larger if fewer samples are planned in the run that lacks some: if 30 of a baseline's 400 samples are missing and the
run has 3,200, the 30 are 0.9 % of all planned samples but shift the difference by 7.5 points. With more samples
missing, the assumption would decide the result.
"""
_PROBLEMS = """
SELECT problem_id || ' ' || content_hash AS problem, problem_id, family
FROM problem WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
SELECT problem_index, sample_index, sample.verdict = 'correct' AS is_correct,
    graded AND (grade.verdict IS NOT NULL OR NOT bool_or(finished AND NOT graded) OVER ()) AS has_result
FROM sample_grade AS sample JOIN problem USING (run_id, problem_id)
LEFT JOIN grade ON grade.run_id = sample.run_id AND grade.sample_id = sample.sample_id
    AND grade.grader_version = sample.grader_version
WHERE sample.run_id = $run_id
"""


_FAMILIES = """
SELECT run_id, problem_id, family FROM problem WHERE family IS NOT NULL AND list_contains($run_ids::VARCHAR[], run_id)
"""


@dataclass(frozen=True)
class Outcomes:
    """Samples of a run; arrays are (n, k): n problems in the run's order, k sample indices from 0."""

    problems: Sequence[str]
    """Problem id and content hash; runs are paired by both."""
    problem_ids: Sequence[str]
    family: Families
    """Family of each problem, (n,)."""
    is_counted: Flags
    """Whether a sample counts; initially true for all planned samples."""
    is_missing: Flags
    is_correct: Flags

    @cached_property
    def correct(self) -> Counts:
        """Number of correct counted samples per problem, (n,)."""
        return np.asarray((self.is_correct & self.is_counted).sum(axis=1), dtype=np.int64)

    @cached_property
    def samples(self) -> Counts:
        """Number of counted samples per problem, (n,)."""
        return np.asarray(self.is_counted.sum(axis=1), dtype=np.int64)

    @property
    def scores(self) -> Floats:
        """Mean over each problem's counted samples, (n,); every result other than correct counts as 0."""
        return np.asarray(self.correct / self.samples, dtype=float)

    @cached_property
    def num_samples(self) -> int:
        return int(self.is_counted.sum())

    @cached_property
    def num_missing(self) -> int:
        """Number of counted samples that are missing; 0 for a complete run."""
        return int(self.is_missing.sum())

    def at(self, places: Counts) -> Outcomes:
        """Return only the problems at the indices `places` (m,), in this order."""
        return Outcomes(
            [self.problems[place] for place in places],
            [self.problem_ids[place] for place in places],
            [self.family[place] for place in places],
            self.is_counted[places],
            self.is_missing[places],
            self.is_correct[places],
        )

    def among(self, is_kept: Flags) -> Outcomes:
        """Return the same problems with only the samples in is_kept (n, k) counted."""
        kept = self.is_counted & is_kept
        return replace(self, is_counted=kept, is_missing=self.is_missing & kept)

    def present(self) -> Outcomes:
        """Return the samples that are not missing, without problems that have no remaining samples."""
        return self.among(~self.is_missing).holding(1)

    def holding(self, k: int) -> Outcomes:
        """Return the problems with at least k counted samples."""
        return self.at(np.flatnonzero(self.samples >= k))


@dataclass(frozen=True)
class Pair:
    """The compared samples of two runs: the same problems, without sample indices that are missing in either run."""

    first: Outcomes
    second: Outcomes
    num_shared_problems: int
    """Number of problems with equal content in both runs, including problems without compared samples."""
    num_planned_samples: int
    """Number of sample indices planned by at least one run, over the shared problems."""

    @property
    def n(self) -> int:
        """Number of compared problems."""
        return len(self.first.problems)

    @property
    def family(self) -> Families:
        """Family of each compared problem, (n,), from the first run or else the second."""
        return common_family(self.first, self.second)

    @property
    def num_common_samples(self) -> int:
        """Number of sample indices, over the compared problems, planned in at least one run and missing in neither."""
        return int(np.sum(_wide(self.first.is_counted, self.second) | _wide(self.second.is_counted, self.first)))

    @property
    def num_missing_samples(self) -> int:
        """Number of planned sample indices not compared, because they are missing in a run or their problem is left
        out.
        """
        return self.num_planned_samples - self.num_common_samples

    @property
    def completeness(self) -> float:
        """Share of the planned sample indices that are compared."""
        return self.num_common_samples / self.num_planned_samples

    @property
    def why_refused(self) -> str | None:
        """Why the non-inferiority test is refused, as a clause; None if enough samples are available."""
        if self.completeness >= LEAST_COMPLETENESS:
            return None
        compared = f"{self.num_common_samples} of {self.num_planned_samples} planned samples"
        share = f"{floored_percent(self.completeness)} %"
        return f"only {compared} are available ({share}); {100 * LEAST_COMPLETENESS:g} % are required"

    def holding(self, k: int) -> Pair:
        """Return the problems with at least k counted samples in both runs."""
        places = np.flatnonzero((self.first.samples >= k) & (self.second.samples >= k))
        return replace(self, first=self.first.at(places), second=self.second.at(places))


def common_family(first: Outcomes, second: Outcomes) -> Families:
    """Return the families (n,) of the same n problems of two runs, from the first run or else the second."""
    return [own or other for own, other in zip(first.family, second.family, strict=True)]


def paired(first: Outcomes, second: Outcomes) -> Pair:
    """Pair two runs by problem, in the order of the first.

    A sample missing in one run is left out of the other too, because samples are not missing at random: long chains
    finish last. A problem is left out if either run has no remaining sample of it.
    """
    own, other = shared(first, second)
    is_missing = _wide(own.is_missing, other) | _wide(other.is_missing, own)
    is_planned = _wide(own.is_counted, other) | _wide(other.is_counted, own)
    kept_own, kept_other = (outcomes.among(~is_missing[:, : outcomes.is_counted.shape[1]]) for outcomes in (own, other))
    return Pair(kept_own, kept_other, len(own.problems), int(is_planned.sum())).holding(1)


def shared(first: Outcomes, second: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Return the planned samples of two runs on their common problems, in the order of the first."""
    first_places, second_places = _common(first, second)
    return first.at(first_places), second.at(second_places)


def num_shared_problems(first: Outcomes, second: Outcomes) -> int:
    """Return the number of problems with equal content in both runs."""
    return len(_common(first, second)[0])


def read_outcomes(connection: Connection, run_id: str) -> Outcomes:
    problems = rows(connection, _PROBLEMS, {"run_id": run_id})
    samples = columns(connection, _SAMPLES, {"run_id": run_id})
    shape = len(problems), int(samples["sample_index"].max()) + 1
    flat = np.unique(samples["problem_index"], return_inverse=True)[1] * shape[1] + samples["sample_index"]
    is_planned, has_result, is_correct = (np.zeros(shape, dtype=bool) for _ in range(3))
    is_planned.flat[flat] = True
    has_result.flat[flat] = samples["has_result"]
    is_correct.flat[flat] = samples["is_correct"]
    return Outcomes(
        [str(row["problem"]) for row in problems],
        [str(row["problem_id"]) for row in problems],
        [row["family"] for row in problems],
        is_planned,
        is_planned & ~has_result,
        is_correct,
    )


def families(connection: Connection, run_ids: Sequence[str]) -> Mapping[tuple[str, str], str]:
    """Return the families of the runs' problems by run id and problem id, without problems that have no family."""
    found = rows(connection, _FAMILIES, {"run_ids": list(run_ids)})
    return {(str(row["run_id"]), str(row["problem_id"])): str(row["family"]) for row in found}


def _common(first: Outcomes, second: Outcomes) -> tuple[Counts, Counts]:
    """Return the indices, in each run, of the problems in both, as two arrays (m,) in the order of the first run."""
    places: Mapping[str, int] = {problem: place for place, problem in enumerate(second.problems)}
    pairs = [(place, places[problem]) for place, problem in enumerate(first.problems) if problem in places]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _wide(flags: Flags, other: Outcomes) -> Flags:
    """Pad flags (n, k) with false columns to the other run's number of samples per problem."""
    return np.pad(flags, ((0, 0), (0, max(0, other.is_counted.shape[1] - flags.shape[1]))))


def resolve(connection: Connection, run: str) -> str:
    """Return the run id for a run id, a unique prefix of it or of its hash, or a run folder's path.

    Raises WarehouseError.
    """
    ids = [str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run ORDER BY created_at, run_id")]
    name = run.rstrip("/")
    if Path(run).is_dir():  # includes `.` and symlinks
        name = Path(run).resolve().name
    elif "/" in name:
        name = Path(name).name
    matches = meant_by(name, ids)
    if len(matches) == 1 and name:
        return matches[0]
    problem = f"is a prefix of {len(matches)} runs" if matches else "is not a run in this database; available"
    listed = (matches or ids)[:20]
    more = "" if len(listed) == len(matches or ids) else ", …"
    unloaded = [] if matches else run_paths(run)
    remedy = f"; load it with: python -m warehouse.load {quote(str(unloaded[0]))}" if len(unloaded) == 1 else ""
    raise WarehouseError(f"{run!r} {problem}: {', '.join(listed) or 'none'}{more}{remedy}")
