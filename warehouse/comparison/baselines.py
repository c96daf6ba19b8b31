"""Which run of a dataset the others are compared with: the target alone, unless the user names another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from warehouse.comparison.manifests import latency_mismatches
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.database import WarehouseError

_Criterion = tuple[str, Callable[[Run, Sequence[Run]], float]]


@dataclass(frozen=True)
class Baseline:
    """The run that others of its dataset are compared with."""

    run: Run
    why: str
    """Why this run, as a clause: `it is the target alone`."""
    members: Sequence[Run] = ()
    """The runs that are compared with it, in the order given, with itself and with those that have no sample."""

    @property
    def dataset(self) -> str:
        """The dataset whose runs are compared with it."""
        return self.run.dataset

    @property
    def regimes(self) -> Sequence[str]:
        """The regimes of these runs, each once: `latency` (one sample in flight) and `throughput`."""
        return list(dict.fromkeys(member.summary.regime for member in self.members))


def choose(runs: Sequence[Run], named: str | None = None) -> list[Baseline]:
    """Return the baseline of every dataset that has a run with a sample; the others have none.

    named: run id of the baseline of its dataset. Otherwise it is the target alone; of several such runs the one by
    `_CRITERIA`, or the first where all are; without any it is the first run. Where a dataset has the target alone
    beside other runs in both regimes, with one sample in flight and with several, each regime has its own: times are
    comparable within a regime only. Raises WarehouseError if the named run has no samples.
    """
    by_dataset: dict[str, list[Run]] = {}
    for run in runs:
        by_dataset.setdefault(run.dataset, []).append(run)
    return [base for members in by_dataset.values() for base in _of_dataset(members, named)]


def _of_dataset(members: Sequence[Run], named: str | None) -> Iterator[Baseline]:
    own = [run for run in members if run.run_id == named]
    if own and own[0].is_empty:
        raise WarehouseError(f"the baseline has no samples to compare: {empty_message(own[0])}")
    if own:
        yield Baseline(own[0], "it was named", members)
        return
    for group in _by_regime(members):
        if present := [run for run in group if not run.is_empty]:
            yield replace(_default(present), members=group)


def _by_regime(members: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Yield the runs of a dataset regime by regime, or all together: a regime alone needs a target to compare with."""
    regimes: dict[str, list[Run]] = {}
    for run in members:
        regimes.setdefault(run.summary.regime, []).append(run)
    if all(map(_has_target_beside_others, regimes.values())):
        yield from regimes.values()
    else:
        yield members


def _has_target_beside_others(runs: Sequence[Run]) -> bool:
    alone = [is_target_alone(run) for run in runs if not run.is_empty]
    return any(alone) and not all(alone)


def is_target_alone(run: Run) -> bool:
    """Return whether the run is the target model without any speculation over steps."""
    return run.summary.method == "vanilla" and run.summary.params.get("model") == "target"


def empty_message(run: Run, chosen: Sequence[Baseline] = ()) -> str:
    """Return why a run without any sample has no row, and which run is the baseline in its place if it was to be."""
    baseline = next((base for base in chosen if any(member is run for member in base.members)), None)
    members = baseline.members if baseline else ()
    expected = next((member for member in members if is_target_alone(member)), members[0] if members else None)
    replaced = f", so {baseline.run.run_id} is the baseline" if baseline and expected is run else ""
    reason = f"none of its {run.outcomes.num_samples} samples is finished and {run.graded}{replaced}"
    return f"{run.run_id}: {reason}; {run.remedy}"


def _default(runs: Sequence[Run]) -> Baseline:
    alone = [run for run in runs if is_target_alone(run)]
    if not alone:
        return Baseline(runs[0], "it is the first run, and none is the target alone (--baseline RUN names another)")
    others = [run for run in runs if not is_target_alone(run)]
    left = alone
    reasons: list[str] = []
    for reason, value in _CRITERIA if others else ():
        values = [value(run, others) for run in left]
        best = [run for run, number in zip(left, values, strict=True) if number == max(values)]
        if len(best) < len(left):
            left, reasons = best, [*reasons, reason]
    if len(left) > 1:
        reasons.append("was named first")
    if len(alone) == 1:
        return Baseline(left[0], "it is the target alone")
    why = f"of {len(alone)} runs of the target alone it {', and '.join(reasons)} (--baseline RUN names another)"
    return Baseline(left[0], why)


def _has_target(run: Run, others: Sequence[Run]) -> float:
    return sum(run.manifest.values["target files"] == other.manifest.values["target files"] for other in others)


def _shares_problems(run: Run, others: Sequence[Run]) -> float:
    return sum(num_shared_problems(run.outcomes, other.outcomes) for other in others)


def _is_plain(run: Run, others: Sequence[Run]) -> float:
    return run.summary.token_speculation is None


def _has_comparable_times(run: Run, others: Sequence[Run]) -> float:
    return sum(not latency_mismatches(run.manifest, other.manifest) for other in others)


def _is_finished(run: Run, others: Sequence[Run]) -> float:
    return -run.outcomes.num_missing / run.outcomes.num_samples


_CRITERIA: tuple[_Criterion, ...] = (
    ("has the target of the most other runs", _has_target),
    ("has the most problems in common with the other runs", _shares_problems),
    ("has no token-level speculation", _is_plain),
    ("has times comparable with the most other runs", _has_comparable_times),
    ("lacks the smallest share of samples", _is_finished),
)
"""What decides between several runs of the target alone, in this order, with the words for it."""
