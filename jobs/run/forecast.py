"""What samples are likely to take: shards that are likely to end at the same time, and the time of the rest of a run.

Shards are balanced by how many tokens a sample of each problem is likely to spend. Only ratios matter, and a wrong
estimate costs nothing but time.

What tells what the rest of a run takes is the time of its own attempts. An attempt counts from the start of the engines
that it waited for to the end of its last call, as the report counts device-hours.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.cli.messages import counted
from harness.cli.number_format import hours
from harness.problems.problem import Problem
from jobs.run import timing as timings
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import attempt_in, is_own_journal
from jobs.run.spec import AttemptRow, Unit

_CALL = ("calls.list.element.submitted_at", "calls.list.element.end_seconds")
_TIMES = re.compile(rb'"submitted_at":([\d.e+-]+),[^{}]*?"end_seconds":([\d.e+-]+)')
_TAIL_BYTES = 64 << 10
"""How much of a journal's end is read. Its last calls stand there, unless a single line is longer."""
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


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The time of one worker's attempt."""

    ended_at: float
    device_hours: float
    """Devices times hours, with the start of the engines."""
    has_gpu: bool


def so_far(run: RunFolder, num_finished: int, num_left: int) -> Forecast | None:
    """Return what the rest of a run takes if it goes on as it began; None where its attempts have recorded no time."""
    attempts = _attempts(run)
    device_hours = sum(attempt.device_hours for attempt in attempts)
    if not device_hours:
        return None
    left = device_hours / num_finished * num_left
    has_gpu = any(attempt.has_gpu for attempt in attempts)
    return Forecast(
        left, left, left, int(has_gpu), f"history: the {counted(num_finished, 'finished sample')} of this run"
    )


def _attempts(run: RunFolder) -> list[_Attempt]:
    """Return the attempts of a run. Files that are damaged or of another run count for nothing."""
    ids = run.ids()
    found: dict[str, _Attempt] = {}
    folders = run, timings.of(run)
    for path in [file for folder in folders for file in (*folder.trace_files(), *folder.journals())]:
        try:
            attempt = _of_journal(path, ids) if path.suffix == ".jsonl" else _of_trace_file(path)
        except FileNotFoundError:  # compacted since the listing
            continue
        if attempt is not None:
            before = found.get(path.stem)
            found[path.stem] = attempt if before is None or attempt.ended_at > before.ended_at else before
    return list(found.values())


def _of_record(attempt: AttemptRow, ended_at: float) -> _Attempt:
    """Return the time of an attempt by its record, as a journal and a trace file hold it. Raises ValueError."""
    try:
        started_at, engines = float(attempt["started_at"]), attempt.get("engines") or {}
        startup = float(engines.get("startup_seconds") or 0.0)
        devices = max(1, int(attempt.get("num_devices") or 1))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"no attempt: {error}") from error
    ended_at = max(started_at, ended_at)
    hours = devices * (startup + max(0.0, ended_at - started_at)) / 3600
    return _Attempt(ended_at, hours, attempt.get("device") not in _NO_GPU)


def _of_journal(path: Path, ids: frozenset[str]) -> _Attempt | None:
    with path.open("rb") as file:
        first = file.readline()
        file.seek(max(len(first), path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    try:
        attempt = attempt_in(path, first)
        if attempt is None or not is_own_journal(path, attempt, ids):
            return None
        ends = (float(submitted) + float(seconds) for submitted, seconds in _TIMES.findall(tail))
        return _of_record(attempt, max(ends, default=0.0))
    except ValueError:
        return None


def _of_trace_file(path: Path) -> _Attempt | None:
    try:
        with trace_files.opened(path, whole=False) as file:
            metadata = trace_files.metadata_of(file)
            calls = trace_files.columns_of(file, _CALL)["calls"].combine_chunks()
            return _of_record(trace_files.attempt_of(path, metadata), _last_end(calls))
    except FileNotFoundError:
        raise
    except (*trace_files.DAMAGED, ValueError):
        return None


def _last_end(calls: pa.ListArray) -> float:
    of_calls = calls.flatten()
    ends = pc.add(of_calls.field("submitted_at"), of_calls.field("end_seconds"))
    return float(pc.max(ends).as_py() or 0.0)


def assign_to_shards(
    units: Sequence[Unit], shards: int, expected: Mapping[str, float] | None = None
) -> list[list[Unit]]:
    """Assign units to shards by longest processing time first; empty shards are left out.

    `expected` has the tokens that one sample of a problem is likely to spend, by problem id; a problem that it lacks
    counts as much as the average one. Without it all units count the same: shards of equal size. Equal arguments give
    equal shards. Raises ValueError where `shards` is below 1, or an expectation is negative or not a finite number.
    """
    if shards < 1:
        raise ValueError(f"at least 1 shard is needed, not {shards}")
    cost = _costs(units, expected or {})
    assigned: list[list[Unit]] = [[] for _ in range(shards)]
    lightest = [(0.0, 0, shard) for shard in range(shards)]
    for unit in _longest_first(units, cost):
        load, num_units, shard = lightest[0]
        assigned[shard].append(unit)
        heapq.heapreplace(lightest, (load + cost[unit.problem_id], num_units + 1, shard))
    # Round by round, and longest first only within a round: then a run that is cut short has run every problem about
    # equally often, which its results depend on. Longest first over the whole shard would leave out the easy problems
    # and gain little, because a shard ends with the shortest problems of its last round either way.
    for shard_units in assigned:
        shard_units.sort(key=lambda unit: (unit.sample_index, -cost[unit.problem_id]))
    return [shard_units for shard_units in assigned if shard_units]


def _costs(units: Sequence[Unit], expected: Mapping[str, float]) -> dict[str, float]:
    problems = dict.fromkeys(unit.problem_id for unit in units)
    expectations = {problem: float(expected[problem]) for problem in problems if problem in expected}
    for problem, tokens in expectations.items():
        if not 0 <= tokens < float("inf"):
            raise ValueError(f"{problem}: {tokens} expected tokens")
    average = sum(expectations.values()) / len(expectations) if expectations else 1.0
    return {problem: expectations.get(problem, average) for problem in problems}


def _longest_first(units: Sequence[Unit], cost: Mapping[str, float]) -> list[Unit]:
    """Sort units by falling cost, those of equal cost round by round and within a round in the order of their hashes.

    In the order of the dataset, one shard would be assigned all samples of the same problems wherever the number of
    problems is a multiple of the number of shards. Each cost begins with another round: otherwise one shard would be
    assigned sample 0 of every problem and another one sample 1, so that its first round would be its only one.
    """
    rank = {tokens: place for place, tokens in enumerate(sorted(set(cost.values()), reverse=True))}
    rounds = 1 + max((unit.sample_index for unit in units), default=0)

    def place(unit: Unit) -> tuple[int, int, str]:
        tied = rank[cost[unit.problem_id]]
        return tied, (unit.sample_index + tied) % rounds, unit.sample_id

    return sorted(units, key=place)


_LEVEL_STEP = 0.6
"""Cost of each level above the first: the written solutions of MATH's 5,000 test problems have 226, 325, 440, 535 and
804 characters on average at levels 1 to 5, that is 1, 1.4, 1.9, 2.4 and 3.6 times as many as at level 1."""
_LENGTH_EXPONENT = 0.4
"""Exponent of the problem's length in characters: 0.4 for the written solutions of MATH and for the recorded samples of
two models on GSM8K, 0.65 for the written solutions of GSM8K, 0.36 for those of OlympiadBench."""
_PRIOR_SAMPLES = 1.0
"""Weight of the estimate, in recorded samples: one recorded sample is still half noise (two samples of one problem
correlate with 0.5 to 0.6)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What earlier runs spent on one problem."""

    spent_tokens: float
    """Mean tokens per sample, of both models together."""
    num_samples: int


def expected_tokens(problems: Sequence[Problem], history: Mapping[str, Recorded] | None = None) -> dict[str, float]:
    """Estimate the tokens that a sample of each problem spends, by problem id.

    `history` has what earlier runs spent, by the problem's text. Where it is silent, the estimate follows from the
    problem's level if every problem has one, otherwise from the problem's length. Where there is history, the estimate
    is scaled to it, stands in for problems that it lacks, and counts as one more sample of those that it has.
    """
    estimates = _estimates(problems)
    recorded = {p.id: history[p.text] for p in problems if history and p.text in history}
    if not recorded:
        return estimates
    total_recorded = sum(earlier.spent_tokens for earlier in recorded.values())
    scale = total_recorded / sum(estimates[problem_id] for problem_id in recorded)
    return {problem_id: _blended(scale * tokens, recorded.get(problem_id)) for problem_id, tokens in estimates.items()}


def _blended(estimate: float, recorded: Recorded | None) -> float:
    if recorded is None:
        return estimate
    total = recorded.spent_tokens * recorded.num_samples + estimate * _PRIOR_SAMPLES
    return total / (recorded.num_samples + _PRIOR_SAMPLES)


def _estimates(problems: Sequence[Problem]) -> dict[str, float]:
    levels = [_level(problem.level) for problem in problems]
    if None not in levels:
        return {p.id: 1 + _LEVEL_STEP * (level - 1) for p, level in zip(problems, levels, strict=True) if level}
    return {p.id: float(len(p.text) ** _LENGTH_EXPONENT) for p in problems}


def _level(text: str | None) -> int | None:
    """Return the number in a level such as `3` or `Level 3`; None where there is none from 1 to 20."""
    digits = re.search(r"\d+", text or "")
    level = int(digits[0]) if digits and len(digits[0]) < 3 else 0
    return level if 1 <= level <= 20 else None


class OverBudget(ValueError):
    """A launch that is estimated to take more than its limit, or has no estimate; the message is one line."""


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
    """Raise OverBudget where runs together need more than the limit, or one has no forecast. left: by run."""
    forecasts = []
    for name, forecast in left.items():
        if forecast is None:
            raise OverBudget(
                f"--max-gpu-hours {limit:g}: no estimate for {name}; run a few problems without this flag first "
                "(--limit 5, of a probe --points 5)"
            )
        forecasts.append(forecast)
    needed = sum(forecast.hours for forecast in forecasts)
    if needed > limit:
        together = f"{hours(needed)} {unit(has_gpu=any(forecast.has_gpu for forecast in forecasts))} left"
        told = in_words(forecasts[0]) if len(left) == 1 else f"{together} of {len(left)} runs (see --dry-run)"
        raise OverBudget(f"--max-gpu-hours {limit:g} is below the estimate: {told}")
