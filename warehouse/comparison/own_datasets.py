"""One own dataset under several names: a file that was renamed, or one that others were copied from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.problems.benchmarks import DATASETS
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import num_shared_problems


def named_alike(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, those on own datasets with a problem in common under the name that the first of them has.

    Known benchmarks are told apart by their names alone.
    """
    named: list[Run] = []
    for run in runs:
        same = next((other for other in named if _is_same(run, other)), None)
        named.append(run if same is None or same.dataset == run.dataset else replace(run, same_as=same.dataset))
    return named


def _is_same(run: Run, other: Run) -> bool:
    if run.summary.dataset in DATASETS or other.summary.dataset in DATASETS:
        return False
    return run.summary.dataset == other.summary.dataset or num_shared_problems(run.outcomes, other.outcomes) > 0
