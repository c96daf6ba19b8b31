"""Estimate the remaining GPU-hours of a run from the durations of its attempts.

An attempt's duration includes the engine startup that it waited for, and ends with the last write to its journal.
In reports, the device-hours of an attempt end with its last call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli.messages import counted
from harness.cli.number_format import hours
from jobs.run import timing as timings
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import attempt_in, is_own_journal
from jobs.run.spec import UNKNOWN_SERVER, AttemptRow

_NO_GPU = frozenset({"cpu", UNKNOWN_SERVER, f"cpu and {UNKNOWN_SERVER}"})


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimated cost of the rest of a run."""

    worker_hours: float
    """Worker-hours, or device-hours if extrapolated from the run's own attempts (`so_far`)."""
    low: float
    """Lower limit of the estimate; like `high`, in the unit of `hours`."""
    high: float
    num_gpus: int
    """GPUs per worker, or 1 if `worker_hours` are GPU-hours; 0 if workers have none."""
    source: str
    """Basis of the estimate."""
    not_timed: int = 0
    """Number of timing samples that are not included, because there is no data on their duration."""

    @property
    def has_gpu(self) -> bool:
        """Whether the estimate is in GPU-hours; otherwise it is in worker-hours."""
        return self.num_gpus > 0

    @property
    def hours(self) -> float:
        """GPU-hours, or worker-hours if workers have no GPU."""
        return self.worker_hours * max(1, self.num_gpus)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours; 0 if workers have no GPU."""
        return self.worker_hours * self.num_gpus


def so_far(run: RunFolder, num_finished: int, num_left: int) -> Forecast | None:
    """Extrapolate the remaining cost from a run's attempts; None if they have recorded no time."""
    device_hours, has_gpu = 0.0, False
    for attempt, ended_at in _attempts(run):
        seconds = attempt["engines"].get("startup_seconds", 0.0) + max(0.0, ended_at - attempt["started_at"])
        device_hours += max(1, attempt["num_devices"]) * seconds / 3600
        has_gpu |= attempt["device"] not in _NO_GPU
    if not device_hours:
        return None
    left = device_hours / num_finished * num_left
    source = f"history: the {counted(num_finished, 'finished sample')} of this run"
    return Forecast(left, left, left, int(has_gpu), source)


def _attempts(run: RunFolder) -> Iterator[tuple[AttemptRow, float]]:
    """Yield the attempts of a run with their end times; files that are damaged or belong to another run are skipped."""
    ids, files, timing = run.ids(), dict[str, Path](), timings.TimingFolder(run.path)
    for path in (*run.trace_files(), *run.journals(), *timing.trace_files(), *timing.journals()):
        files[path.stem] = path  # during compaction both exist: use the journal, which is at least as long
    for path in files.values():
        with contextlib.suppress(*trace_files.DAMAGED):
            if path.suffix == ".jsonl":
                with path.open("rb") as file:
                    attempt = attempt_in(path, file.readline())
                if attempt is not None and is_own_journal(path, attempt, ids):
                    yield attempt, path.stat().st_mtime
            elif (attempt := trace_files.attempt_of(path)).get("ended_at"):
                yield attempt, attempt["ended_at"]


def unit(*, has_gpu: bool) -> str:
    """Return the unit of an estimate."""
    return "GPU-hours" if has_gpu else "worker-hours (no GPU)"


def in_words(forecast: Forecast) -> str:
    """Format an estimate with its unit, range and source."""
    low, high = hours(forecast.low), hours(forecast.high)
    between = f"; {low} to {high}" if low != high else ""
    more = f"; plus the time to measure {counted(forecast.not_timed, 'sample')}" if forecast.not_timed else ""
    return f"{hours(forecast.hours)} {unit(has_gpu=forecast.has_gpu)} left ({forecast.source}{between}{more})"


def total_of(forecasts: Sequence[Forecast | None]) -> str:
    """Format sums of estimates, separately for GPUs and workers without GPUs, and the number of unknown estimates."""
    known = [forecast for forecast in forecasts if forecast is not None]
    if not known:
        return f"Total: GPU-hours unknown for {counted(len(forecasts), 'run')}."
    sums = []
    for has_gpu in (True, False):
        if members := [forecast for forecast in known if forecast.has_gpu == has_gpu]:
            low, high = (hours(sum(ends)) for ends in zip(*((m.low, m.high) for m in members), strict=True))
            between = f" ({low} to {high})" if low != high else ""
            sums.append(f"{hours(sum(member.hours for member in members))} {unit(has_gpu=has_gpu)}{between}")
    more = len(forecasts) - len(known)
    unknown = f"; unknown for {counted(more, 'run')}" if more else ""
    if not_timed := sum(forecast.not_timed for forecast in known):
        unknown += f"; plus the time to measure {counted(not_timed, 'sample')}"
    return f"Total: {' and '.join(sums)} left{unknown}."


def check_forecasts(left: Mapping[str, Forecast | None], limit: float) -> None:
    """Raise ValueError if runs need more than the limit in total, or one has no forecast. `left`: by run name."""
    forecasts = [forecast for forecast in left.values() if forecast is not None]
    if unknown := [name for name, forecast in left.items() if forecast is None]:
        raise ValueError(
            f"--max-gpu-hours {limit:g}: no estimate for {unknown[0]}; run a few problems without this flag first "
            "(--limit 5; for a probe --points 5)"
        )
    needed = sum(forecast.hours for forecast in forecasts)
    if needed > limit:
        together = f"{hours(needed)} {unit(has_gpu=any(forecast.has_gpu for forecast in forecasts))} left"
        told = in_words(forecasts[0]) if len(left) == 1 else f"{together} for {len(left)} runs (see --dry-run)"
        raise ValueError(f"--max-gpu-hours {limit:g} is below the estimate: {told}")
