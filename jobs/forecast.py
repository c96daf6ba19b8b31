"""What the rest of a run is likely to take: GPU-hours, by the time of its own attempts.

An attempt counts from the start of the engines that it waited for to the end of its last call, as the report counts
device-hours.
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
from jobs.run.spec import AttemptRow

_NO_GPU = frozenset({"cpu", "unknown server", "cpu and unknown server"})


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

    @property
    def gpu_hours(self) -> float:
        """GPU-hours; 0 where workers have no GPU."""
        return self.worker_hours * self.num_gpus


def so_far(run: RunFolder, num_finished: int, num_left: int) -> Forecast | None:
    """Return what the rest of a run takes if it goes on as it began; None where its attempts have recorded no time."""
    device_hours, has_gpu = 0.0, False
    for attempt, ended_at in _attempts(run):
        seconds = attempt["engines"].get("startup_seconds", 0.0) + max(0.0, ended_at - attempt["started_at"])
        device_hours += max(1, attempt["num_devices"]) * seconds / 3600
        has_gpu |= attempt["device"] not in _NO_GPU
    if not device_hours:
        return None
    left = device_hours / num_finished * num_left
    return Forecast(
        left, left, left, int(has_gpu), f"history: the {counted(num_finished, 'finished sample')} of this run"
    )


def _attempts(run: RunFolder) -> Iterator[tuple[AttemptRow, float]]:
    """Yield the attempts of a run, and when each ended. Files that are damaged or of another run count for nothing."""
    ids, files, timing = run.ids(), dict[str, Path](), timings.TimingFolder(run.path)
    for path in (*run.trace_files(), *run.journals(), *timing.trace_files(), *timing.journals()):
        files[path.stem] = path  # a journal that is being compacted is as long as its trace file, or longer
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
    """Return what is counted: GPU-hours, or hours of workers that have no GPU."""
    return "GPU-hours" if has_gpu else "worker-hours without a GPU"


def in_words(forecast: Forecast) -> str:
    """Return an estimate with its unit, its range and its source."""
    low, high = hours(forecast.low), hours(forecast.high)
    between = f"; {low} to {high}" if low != high else ""
    more = f"; the timing of {counted(forecast.not_timed, 'sample')} comes on top" if forecast.not_timed else ""
    return f"{hours(forecast.hours)} {unit(has_gpu=forecast.has_gpu)} left ({forecast.source}{between}{more})"


def total_of(forecasts: Sequence[Forecast | None]) -> str:
    """Return the sums of estimates, GPUs and workers without GPUs apart, and how many are unknown."""
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
        unknown += f"; the timing of {counted(not_timed, 'sample')} comes on top"
    return f"Total: {' and '.join(sums)} left{unknown}."


def check_forecasts(left: Mapping[str, Forecast | None], limit: float) -> None:
    """Raise ValueError where runs together need more than the limit, or one has no forecast. left: by run."""
    forecasts = []
    for name, forecast in left.items():
        if forecast is None:
            raise ValueError(
                f"--max-gpu-hours {limit:g}: no estimate for {name}; run a few problems without this flag first "
                "(--limit 5, of a probe --points 5)"
            )
        forecasts.append(forecast)
    needed = sum(forecast.hours for forecast in forecasts)
    if needed > limit:
        together = f"{hours(needed)} {unit(has_gpu=any(forecast.has_gpu for forecast in forecasts))} left"
        told = in_words(forecasts[0]) if len(left) == 1 else f"{together} of {len(left)} runs (see --dry-run)"
        raise ValueError(f"--max-gpu-hours {limit:g} is below the estimate: {told}")
