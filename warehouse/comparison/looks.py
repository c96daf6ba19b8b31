"""A look at a comparison whose runs are drawn in waves: what is decided, and how many samples each problem gets next.

What is decided is what the comparison itself says, whose intervals have the level of this look (`group_sequential`).
The samples of the next wave go to the problems whose samples differ most (`allocation`), as the first wave of the other
runs shows them, so that no run's samples decide how many it gets and every mean stays unbiased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.plural import counted
from jobs.run.folder import RunFolder
from warehouse.comparison.contrasts import Contrast, Settings
from warehouse.comparison.metrics import Run
from warehouse.comparison.named_runs import compare_runs
from warehouse.database import WarehouseError
from warehouse.statistics.allocation import allocated, variances
from warehouse.statistics.intervals import Counts, Floats


@dataclass(frozen=True)
class Look:
    """What a look at several runs finds; by run id."""

    decisions: Mapping[str, str | None]
    """In words; None while a comparison of the run is undecided. A baseline is decided with its last comparison."""
    runs: Mapping[str, Run]
    baselines: Mapping[str, str]
    """The run that each is compared with; a baseline has none."""

    def next_numbers(self, run_id: str, size: int, most: int) -> dict[str, int]:
        """Return how many samples each problem of a run is to have after the next wave, by problem id.

        size: samples per problem on average by then; most: of one problem, those of the whole run.
        """
        run = self.runs[run_id]
        samples = run.outcomes.samples
        if size >= most:
            numbers = np.full(len(samples), most)
        else:
            least = np.minimum(samples + 1, most)
            numbers = allocated(self._variances(run), least, size * len(samples), most)
        return dict(zip(run.outcomes.problem_ids, numbers.tolist(), strict=True))

    def _variances(self, run: Run) -> Floats:
        """Return the variance (n,) of a sample of each problem, from the first wave of the other runs."""
        found: dict[str, list[float]] = {}
        for other in self.runs.values():
            if other.dataset == run.dataset and not _is_drawn_alike(run, other):
                found_now = dict(zip(other.outcomes.problems, _first_variances(other, self._first(run)), strict=True))
                for problem, variance in found_now.items():
                    found.setdefault(problem, []).append(float(variance))
        unknown = float(np.mean([value for values in found.values() for value in values])) if found else 1.0
        return np.array([np.mean(found.get(problem, [unknown])) for problem in run.outcomes.problems])

    @staticmethod
    def _first(run: Run) -> int:
        return run.summary.waves[0] if run.summary.waves else int(run.outcomes.samples.min())


def look(
    folders: Sequence[str], database: Path, margin: float, decided: Mapping[str, str], baseline: str | None = None
) -> Look:
    """Look at runs whose planned samples are all finished, graded and loaded.

    margin: as a fraction. decided: what earlier looks decided, by run id, which stands. baseline: folder of the run
    that all are compared with; None: each dataset's target alone. Raises WarehouseError, also where samples are
    missing.
    """
    comparison = compare_runs(folders, database, Settings(margin=margin), baseline=baseline)
    runs = {row.run.run_id: row.run for row in comparison.rows}
    if missing := [run.run_id for run in runs.values() if run.is_unfinished] + list(comparison.left_out):
        raise WarehouseError(f"samples are missing, so that nothing can be decided: {'; '.join(missing)}")
    contrasts = {row.run.run_id: row.contrast for row in comparison.rows if row.contrast}
    decisions = {run_id: decided.get(run_id) or _decided(contrast) for run_id, contrast in contrasts.items()}
    for base in {contrast.baseline for contrast in contrasts.values()}:
        found = [decisions[run_id] for run_id, contrast in contrasts.items() if contrast.baseline == base]
        is_decided = all(decision is not None for decision in found)
        decisions[base] = f"{counted(len(found), 'comparison')} with it decided" if is_decided else None
    return Look(decisions, runs, {run_id: contrast.baseline for run_id, contrast in contrasts.items()})


def _decided(contrast: Contrast) -> str | None:
    points = f"{100 * contrast.margin:g} points"
    if contrast.is_non_inferior:
        return f"not worse than {contrast.baseline} by {points}"
    return f"worse than {contrast.baseline} by more than {points}" if contrast.is_worse else None


def _first_variances(run: Run, first: int) -> Floats:
    """Return the variance (n,) of a sample of each problem, by its first samples alone."""
    shape = run.outcomes.is_counted.shape
    outcomes = run.outcomes.among(np.broadcast_to(np.arange(shape[1]) < first, shape))
    correct: Counts = outcomes.correct
    return variances(correct, outcomes.samples)


def _is_drawn_alike(run: Run, other: Run) -> bool:
    """Return whether the samples of two runs have the same seeds, as with and without a reward model; so has a run
    with itself."""
    first, second = (RunFolder(Path(member.folder)) for member in (run, other))
    problem = first.problems()[0]
    return first.spec().drawn_alike().sample_ids(problem)[:1] == second.spec().drawn_alike().sample_ids(problem)[:1]
