"""Small databases on which estimates are compared: all right, one problem, missing samples, failures, repeated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.warehouse import cells, runs

HALF = (4, 0, 2, 3, 1, 4, 0, 2, 2, 4, 3, 1)
ALL = (4,) * 12


def skewed(problem: int, sample: int) -> float:
    """One problem loops, the others differ a little."""
    return 30.0 if problem == 7 else 1 + problem / 10 + sample / 4 + (problem * sample) % 3 / 7


def all_right(where: Path) -> list[RunFolder]:
    return [cells.finished(where, cells.VANILLA, ALL), cells.finished(where, cells.SPEC, ALL, slower=skewed)]


def one_problem(where: Path) -> list[RunFolder]:
    return [cells.finished(where, cells.VANILLA, (3,)), cells.finished(where, cells.SPEC, (2,), latency=5)]


def missing_samples(where: Path) -> list[RunFolder]:
    """Some samples are missing in the run, others in the baseline."""

    def in_run(problem: int, sample: int) -> bool:
        return (problem + sample) % 5 != 0 and problem != 3

    def in_baseline(problem: int, sample: int) -> bool:
        return (problem + sample) % 7 != 0

    return [
        cells.finished(where, cells.VANILLA, HALF, slower=skewed, has_run=in_baseline),
        cells.finished(where, cells.SPEC, ALL, latency=6, has_run=in_run),
    ]


def failed_and_ungraded(where: Path) -> list[RunFolder]:
    """An error that nobody graded has no result while other samples wait for their grades."""
    return [
        cells.finished(where, cells.VANILLA, HALF),
        cells.finished(
            where,
            cells.SPEC,
            HALF,
            has_grade=lambda problem, sample: sample < 2 and problem != 1,
            has_failed=lambda problem, sample: problem == 1,
        ),
    ]


def repeated(where: Path) -> list[RunFolder]:
    """Runs of the target alone that were repeated show the run factor."""
    base = [
        cells.finished(where, replace(cells.VANILLA, tag=tag), HALF, latency=latency)
        for tag, latency in ((None, 10.0), ("again-1", 11.0), ("again-2", 10.4))
    ]
    return [*base, cells.finished(where, cells.SPEC, HALF, latency=6, slower=skewed)]


def two_graders(where: Path) -> list[RunFolder]:
    found = [cells.finished(where, spec, HALF, slower=skewed) for spec in (cells.VANILLA, cells.SPEC)]
    for run in found:
        planned = units(run.spec(), run.problems())
        verdicts = {unit.sample_id: "correct" if unit.sample_index else "wrong" for unit in planned}
        runs.write_grades(run, verdicts, version="2")
    return found


def refusals(where: Path) -> list[RunFolder]:
    """Three problems × 2, of which one has all of its drafts refused and one half of them."""
    base, own = runs.create(where, runs.VANILLA), runs.create(where)
    runs.write(base, [runs.vanilla(unit, 40 + i, 20 + 3 * i) for i, unit in enumerate(runs.planned(base))])
    runs.write(own, [runs.speculative(unit, refused=i in (0, 3, 4)) for i, unit in enumerate(runs.planned(own))])
    for run in (base, own):
        verdicts = {unit.sample_id: "wrong" if unit.problem_id == "toy/2" else "correct" for unit in runs.planned(run)}
        runs.write_grades(run, verdicts)
    return [base, own]


MADE_UP: Mapping[str, Callable[[Path], list[RunFolder]]] = {
    maker.__name__: maker
    for maker in (all_right, one_problem, missing_samples, failed_and_ungraded, repeated, two_graders, refusals)
}


@dataclass(frozen=True)
class Made:
    """A loaded database; the last of its runs is compared with the first, the target alone."""

    database: Path
    folders: list[RunFolder]

    @property
    def run(self) -> str:
        return self.folders[-1].path.name

    @property
    def baseline(self) -> str:
        return self.folders[0].path.name
