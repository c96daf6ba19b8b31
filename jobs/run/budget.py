"""The budget of a run, or of several runs together: GPU-hours after which no further sample is begun.

It is no part of the specification: a run that was stopped by its budget goes on under another one. Each launch with
`--max-gpu-hours` appends a record to `budget.jsonl` in the run folder, and so does one without it where there was a
budget before. Workers append what each attempt has used, and that the budget is used up when they begin no more
samples for it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.plural import counted
from jobs.run.device_time import AttemptTime, DeviceTimes, of_record
from jobs.run.files import append_record, read_records
from jobs.run.folder import RunFolder


@dataclass(frozen=True)
class Budget:
    """A limit on the machine time of a run, or of several that share it."""

    max_gpu_hours: float
    runs: tuple[str, ...] = ()
    """Names of the run folders that share it, all in one folder; empty: the run alone."""
    budget_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """Equal in all runs that share it."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the attempts of one run, or of several, have used."""

    device_hours: float = 0.0
    has_gpu: bool = False

    def __str__(self) -> str:
        return f"{hours(self.device_hours)} {unit(has_gpu=self.has_gpu)}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the rest of a run is likely to take."""

    worker_hours: float
    low: float
    """The ends of the range, in hours of the same unit as `hours`."""
    high: float
    num_gpus: int
    """GPUs that a worker holds; 0 where it has none."""
    source: str
    """What it is estimated from."""
    not_timed: int = 0
    """Samples to be timed again, one at a time, that it is without because nothing tells of them."""

    @property
    def has_gpu(self) -> bool:
        """Whether GPU-hours are meant, and not hours of workers."""
        return self.num_gpus > 0

    @property
    def hours(self) -> float:
        """GPU-hours, or hours of workers where these have no GPU."""
        return self.worker_hours * max(1, self.num_gpus)


@dataclass(frozen=True, slots=True)
class Stop:
    """A run that its budget has stopped: no further sample of it is begun."""

    max_gpu_hours: float
    used: Used
    num_runs: int
    """Number of runs that share the budget; 1: the run alone."""

    def __str__(self) -> str:
        together = f" of {counted(self.num_runs, 'run')} together" if self.num_runs > 1 else ""
        limit = f"--max-gpu-hours {self.max_gpu_hours:g}"
        return f"its budget is used up ({limit}{together}; used: {self.used})"


def unit(*, has_gpu: bool) -> str:
    """Return what is counted: GPU-hours, or hours of workers that have no GPU."""
    return "GPU-hours" if has_gpu else "worker-hours without a GPU"


def hours(number: float) -> str:
    """Return hours with as many digits as say something."""
    return f"{number:,.1f}" if number >= 1 else f"{number:.2g}"


def record(run: RunFolder, budget: Budget | None) -> None:
    """Set the budget of a run, or none; durable when this returns. Nothing is written where it has that already."""
    if budget == read(run):
        return
    limit = None if budget is None else budget.max_gpu_hours
    shared = {} if budget is None else {"runs": list(budget.runs), "budget_id": budget.budget_id}
    _append(run, {"max_gpu_hours": limit, **shared, "at": time.time()})


def record_attempt(run: RunFolder, attempt: AttemptTime, attempt_id: str) -> None:
    """Record what an attempt has used that has ended."""
    used = {"attempt_id": attempt_id, "started_at": attempt.started_at, "ended_at": attempt.ended_at}
    engines = {"startup_seconds": attempt.startup_seconds}
    device = {} if attempt.has_gpu else {"device": "cpu"}
    _append(run, {**used, "engines": engines, "num_devices": attempt.num_devices, **device})


def record_used_up(run: RunFolder, budget: Budget) -> None:
    """Record that a worker begins no more samples because the budget is used up."""
    _append(run, {"used_up": budget.budget_id, "at": time.time()})


def path_of(run: RunFolder) -> Path:
    """Return the path of the file; there is none in a run that never had a budget."""
    return run.path / "budget.jsonl"


def read(run: RunFolder) -> Budget | None:
    """Return the budget that is in force; None where there is none."""
    return _in_force(_records(run))


class Meter:
    """The budget of a run and what has been used of it, read again and again."""

    def __init__(self, run: RunFolder) -> None:
        """Nothing is read yet."""
        self._run = run
        self._times: dict[str, DeviceTimes] = {}

    def used(self, budget: Budget, own: Mapping[str, AttemptTime] | None = None) -> Used:
        """Return what the runs of a budget have used; `own`: attempts that are known better than their files tell."""
        return together(self._used_by(name, own or {}) for name in budget.runs or (self._run.path.name,))

    def stop(self, budget: Budget | None = None) -> Stop | None:
        """Return why no further sample is begun under a budget, by default the one in force; None: it is not used up.

        A worker that found it used up may have counted a moment more than the files tell later, so its word counts.
        """
        in_force = read(self._run)
        budget = budget or in_force
        if budget is None:
            return None
        used = self.used(budget)
        is_same = in_force is not None and in_force.max_gpu_hours >= budget.max_gpu_hours
        said = in_force is not None and is_same and self._is_said(in_force)
        is_used_up = said or used.device_hours >= budget.max_gpu_hours
        return Stop(budget.max_gpu_hours, used, max(1, len(budget.runs))) if is_used_up else None

    def _is_said(self, budget: Budget) -> bool:
        runs = [self._beside(name) for name in budget.runs or (self._run.path.name,)]
        return any(entry.get("used_up") == budget.budget_id for run in runs for entry in _records(run))

    def _used_by(self, name: str, own: Mapping[str, AttemptTime]) -> Used:
        run = self._beside(name)
        times = self._times.setdefault(name, DeviceTimes(run)).read()
        for attempt_id, ended in _ended_attempts(run).items():
            before = times.get(attempt_id)
            times[attempt_id] = ended if before is None or ended.ended_at > before.ended_at else before
        if run.path.name == self._run.path.name:
            times |= own
        return Used(sum(time.device_hours for time in times.values()), any(time.has_gpu for time in times.values()))

    def _beside(self, name: str) -> RunFolder:
        return self._run if name == self._run.path.name else RunFolder(self._run.path.parent / name)


def together(parts: Iterable[Used]) -> Used:
    """Add up what several runs have used."""
    every = list(parts)
    return Used(sum(part.device_hours for part in every), any(part.has_gpu for part in every))


def stopped(run: RunFolder, is_unfinished: Callable[[RunFolder], object]) -> Stop | None:
    """Return the budget that has stopped a run; None where none has, or every sample of it is finished."""
    return Meter(run).stop() if path_of(run).exists() and is_unfinished(run) else None


def so_far(run: RunFolder, num_finished: int, num_left: int) -> Forecast | None:
    """Return what the rest of a run takes if it goes on as it began; None where its attempts have recorded no time."""
    used = Meter(run).used(Budget(1.0))
    if not used.device_hours:
        return None
    left = used.device_hours / num_finished * num_left
    source = f"history: the {counted(num_finished, 'finished sample')} of this run"
    return Forecast(left, left, left, int(used.has_gpu), source)


def shared_by(runs: Sequence[str], max_gpu_hours: float) -> Budget:
    """Return one budget for the runs of these names, all in one folder."""
    names = tuple(dict.fromkeys(runs))
    return Budget(max_gpu_hours, names if len(names) > 1 else ())


def _in_force(records: Iterable[Mapping[str, Any]]) -> Budget | None:
    budget = None
    for entry in records:
        if "max_gpu_hours" not in entry:
            continue
        limit, names = entry["max_gpu_hours"], entry.get("runs")
        names = names if isinstance(names, list) else ()
        if isinstance(limit, int | float):
            own = tuple(name for name in names if isinstance(name, str) and Path(name).name == name)
            budget = Budget(float(limit), own, str(entry.get("budget_id")))
        else:
            budget = None
    return budget


def _ended_attempts(run: RunFolder) -> dict[str, AttemptTime]:
    found = {}
    for entry in _records(run):
        if "attempt_id" in entry:
            try:
                found[str(entry["attempt_id"])] = of_record(entry, float(entry.get("ended_at", 0.0)))
            except (TypeError, ValueError):  # a record of another version
                continue
    return found


def _records(run: RunFolder) -> list[dict[str, Any]]:
    path = path_of(run)
    return list(read_records(path, run.spec_id())) if path.exists() else []


def _append(run: RunFolder, entry: Mapping[str, Any]) -> None:
    append_record(path_of(run), entry, run.spec_id() or "")
