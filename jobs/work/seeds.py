"""The seed of a sample, which follows from its id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from harness.problems.problem import Problem
from jobs.run.spec import RunSpec, Unit


def seed_of(spec: RunSpec, unit: Unit, problem: Problem, renamed: Callable[[str], str] = str) -> int:
    """Return a sample's seed; the run's seed and the sample's index are part of its id.

    `renamed` returns the id of another sample of the same kind, with other random numbers, for an id.
    """
    if spec.selection is None and spec.reward is None:
        return _number(renamed(unit.sample_id))
    return _number(renamed(spec.drawn_alike().sample_ids(problem)[unit.sample_index]))


def _number(sample_id: str) -> int:
    return int(hashlib.sha256(sample_id.encode()).hexdigest()[:8], 16) >> 1
