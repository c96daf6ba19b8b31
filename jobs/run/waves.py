"""A run whose samples are drawn in waves until its comparison is decided: its waves, and what was found after each.

Such a run has the specification of one with all samples, and so its id, its samples' ids and its folder; its plan has
the samples drawn so far, those of the lowest indices of each problem. A launch without waves adds the others. The waves
and the looks stand in `waves.jsonl`; which wave is drawn follows from the plan, which changes at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.problems.problem import Problem
from jobs.run.files import append_record, read_records
from jobs.run.folder import RunFolder
from jobs.run.shards import assign_to_shards
from jobs.run.spec import RunSpec, Unit, units

NUM_WAVES = 4
LEAST_SAMPLES = NUM_WAVES
"""Samples per problem below which a run has no waves."""

_LOOK_MARGIN = "look_margin"
"""Key of a look's margin. It is not `margin`, by which earlier versions tell that a run is decided."""


@dataclass(frozen=True)
class Waves:
    """How far a run is that was begun in waves."""

    sizes: tuple[int, ...]
    """Samples per problem, on average, up to each wave; the last is all of them."""
    wave: int
    """Number of the wave that is drawn, from 1."""
    is_whole: bool
    """Whether every sample of the specification is planned: after the last wave, or by a launch without waves."""
    num_looks: int = 0
    """Number of looks that were recorded."""
    decision: str | None = None
    """What the last look found, in words; None where it left the question open, and before the first look."""
    margin: float | None = None
    """The margin of that decision, as a fraction; None where there is none, or an earlier version made it."""
    baseline: str | None = None
    """Name of the run that it was decided against; None where `margin` is, and of a baseline itself."""
    look_margins: tuple[float | None, ...] = ()
    """The margin of each look, also of those that left the question open; None where an earlier version looked."""

    @property
    def first_wave(self) -> int | None:
        """Samples of each problem of the first wave while problems may have unequal numbers; None when all have all."""
        return None if self.is_whole else self.sizes[0]

    @property
    def is_stopped(self) -> bool:
        """True if samples are left that were not drawn because the comparison was decided without them."""
        return self.decision is not None and not self.is_whole


def sizes_of(samples: int) -> tuple[int, ...]:
    """Return the samples per problem up to each wave; `samples` are all, at least `LEAST_SAMPLES`."""
    return tuple(-(-samples * number // NUM_WAVES) for number in range(1, NUM_WAVES + 1))


def read(run: RunFolder) -> Waves | None:
    """Return how far a run is that exists; None where it was not begun in waves. Raises RunDamaged."""
    sizes: tuple[int, ...] | None = None
    looks: dict[int, dict[str, Any]] = {}
    last: dict[str, Any] = {"decision": None}
    for record in _records(run):
        if "sizes" in record:
            sizes = tuple(record["sizes"])
        elif "look" in record:
            looks[record["look"]] = last = record
    if sizes is None:
        return None
    spec, num_drawn = run.spec(), run.num_planned()
    wave = max(1, sum(num_drawn >= size * spec.num_problems for size in sizes))
    is_whole = num_drawn >= spec.num_samples
    margins = tuple(looks.get(number, {}).get(_LOOK_MARGIN) for number in range(1, max(looks, default=0) + 1))
    return Waves(
        sizes, wave, is_whole, len(margins), last["decision"], last.get("margin"), last.get("baseline"), margins
    )


def begin(run: RunFolder, spec: RunSpec) -> None:
    """Record that a run is drawn in waves, before its plan is written; a second time it changes nothing."""
    if not any("sizes" in record for record in _records(run, spec.run_id)):
        run.path.mkdir(parents=True, exist_ok=True)
        append_record(_path(run), {"at": time.time(), "sizes": list(sizes_of(spec.samples))}, spec.run_id)


def record_look(
    run: RunFolder, number: int, decision: str | None, margin: float | None = None, baseline: str | None = None
) -> None:
    """Record what the look after a wave found, unless it is recorded; durable when this returns.

    margin, as a fraction, is that of the look; of a decision it and baseline are in `Waves`, too.
    """
    if any(record.get("look") == number for record in _records(run)):
        return
    record: dict[str, Any] = {"at": time.time(), "look": number, "decision": decision, _LOOK_MARGIN: margin}
    if decision is not None:
        record |= {"margin": margin, "baseline": baseline}
    append_record(_path(run), record, run.spec_id() or "")


def drawn_units(run: RunFolder, spec: RunSpec, problems: list[Problem]) -> list[Unit]:
    """Return the units that the plan of a run has, in the order of all; of a new run those of the first wave."""
    if not run.exists():
        return [unit for unit in units(spec, problems) if unit.sample_index < sizes_of(spec.samples)[0]]
    drawn = set(run.units_by_shard()["sample_id"].to_pylist())
    return [unit for unit in units(spec, problems) if unit.sample_id in drawn]


def draw(run: RunFolder, numbers: Mapping[str, int], recorded: Mapping[str, float] | None = None) -> None:
    """Let the plan of a run have at least this many samples of each problem, by problem id; a second time is no change.

    What is new is divided among the shards; what was there stays in its shard. `recorded` is as in `assign_to_shards`.
    Raises RunBusyError while a worker holds a shard.
    """
    spec, problems, planned = run.spec(), run.problems(), run.shards()
    drawn = {unit.sample_id for shard in planned for unit in shard}
    new = [unit for unit in units(spec, problems) if unit.sample_index < numbers.get(unit.problem_id, 0)]
    new = [unit for unit in new if unit.sample_id not in drawn]
    if new:
        for shard, added in zip(planned, assign_to_shards(new, len(planned), recorded), strict=False):
            shard.extend(added)
        run.assign_again(planned)


def num_open(run: RunFolder) -> int:
    """Return how many samples a run may still draw in waves; 0 where it is decided, or was not begun in waves."""
    begun = read(run)
    return 0 if begun is None or begun.decision is not None else run.spec().num_samples - run.num_planned()


def in_words(run: RunFolder) -> str:
    """Return how far a run in waves is, as a line of its status; empty where it has none, or has all samples."""
    begun = read(run)
    if begun is None or begun.is_whole:
        return ""
    drawn = f"{run.num_planned()} of {run.spec().num_samples} samples drawn, wave {begun.wave} of {len(begun.sizes)}"
    return f"stopped by decision: {begun.decision}; {drawn}" if begun.is_stopped else f"in waves: {drawn}, undecided"


def path_of(run: RunFolder) -> Path | None:
    """Return the file of a run's waves; None where it has none."""
    path = _path(run)
    return path if path.exists() else None


def _records(run: RunFolder, run_id: str | None = None) -> list[dict[str, Any]]:
    path = _path(run)
    return list(read_records(path, run_id or run.spec_id())) if path.exists() else []


def _path(run: RunFolder) -> Path:
    return run.path / "waves.jsonl"
