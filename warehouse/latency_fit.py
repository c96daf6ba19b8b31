"""The latency model fitted to recorded calls, within a run: on one machine with the same load and concurrency."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
from scipy.optimize import nnls

from harness.engine import Role
from harness.latency import LatencyModel, ModelSpeed, Work
from warehouse.database import Connection, WarehouseError, rows

_CALLS = """
SELECT sample_id, model, purpose, prompt_tokens - cached_tokens AS new_prompt_tokens, longest_output_tokens, n,
    in_flight, end_seconds, overlapped_seconds, latency_seconds
FROM timed_sample LEFT JOIN call USING (run_id, sample_id)
WHERE run_id = $run_id ORDER BY sample_id, call_index
"""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call with its measured time."""

    work: Work
    seconds: float
    purpose: str
    overlapped_seconds: float = 0.0
    """The part of `seconds` for which the sample did not wait."""


@dataclass(frozen=True, slots=True)
class TimedSample:
    """The calls of a sample, and its wall time."""

    calls: tuple[TimedCall, ...]
    latency_seconds: float

    @property
    def work(self) -> list[Work]:
        """The work that the sample waited for."""
        return [call.work for call in self.calls if call.purpose != "lookahead"]


def timed_samples(connection: Connection, run_id: str) -> list[TimedSample]:
    """Return the samples of a run with a meaningful latency, with their calls. Raises WarehouseError without any."""
    samples = read_samples(connection, _CALLS, run_id)
    if not samples:
        raise WarehouseError(f"the warehouse has no timed samples of a run {run_id!r}")
    return list(samples.values())


def read_samples(connection: Connection, sql: str, run_id: str) -> dict[str, TimedSample]:
    """Return samples with their calls by id; `sql` has the columns of `timed_samples`, a row for each call in order."""
    calls: dict[str, list[TimedCall]] = {}
    latency: dict[str, float] = {}
    for row in rows(connection, sql, {"run_id": run_id}):
        sample = str(row["sample_id"])
        latency[sample] = _number(row["latency_seconds"])
        calls.setdefault(sample, [])
        if row["model"] is not None:
            calls[sample].append(_call(row, calls[sample]))
    return {sample: TimedSample(tuple(calls[sample]), seconds) for sample, seconds in latency.items()}


def fit(samples: Sequence[TimedSample]) -> LatencyModel:
    """Fit the model by non-negative least squares over calls (Lawson and Hanson 1974, in scipy).

    If a cause does not vary within the run, its coefficient is zero or shares the effect with another.
    """
    calls = [call for sample in samples for call in sample.calls]
    roles: tuple[Role, ...] = get_args(Role)
    speeds = {role: _speed([c for c in calls if c.work.model == role]) for role in roles}
    overheads = [s.latency_seconds - sum(c.seconds - c.overlapped_seconds for c in s.calls) for s in samples]
    fitted_speeds = {role: speed for role, speed in speeds.items() if speed is not None}
    return LatencyModel(fitted_speeds, max(0.0, statistics.fmean(overheads)))


def _speed(calls: Sequence[TimedCall]) -> ModelSpeed | None:
    if not calls:
        return None
    causes = np.array([call.work.features() for call in calls], dtype=float)
    scale = causes.max(axis=0)  # the causes differ by orders of magnitude
    scale[scale == 0] = 1.0
    coefficients, _ = nnls(causes / scale, np.array([call.seconds for call in calls]))
    return ModelSpeed(**{f.name: float(x) for f, x in zip(fields(ModelSpeed), coefficients / scale, strict=True)})


def _call(row: Mapping[str, object], before: Sequence[TimedCall]) -> TimedCall:
    """Return a call; a draft that overlapped with other work began during the verdict before it."""
    overlapped = _number(row["overlapped_seconds"])
    verdicts = (call.work for call in reversed(before) if call.purpose == "verdict")
    work = Work(
        model=next(role for role in get_args(Role) if role == row["model"]),
        calls=1,
        new_prompt_tokens=_number(row["new_prompt_tokens"]),
        output_tokens=_number(row["longest_output_tokens"]),
        further_completions=_number(row["n"]) - 1,
        further_requests=_number(row["in_flight"]) - 1,
        begun_under=next(verdicts, None) if overlapped > 0 and row["purpose"] == "draft" else None,
    )
    return TimedCall(work, _number(row["end_seconds"]), str(row["purpose"]), overlapped)


def _number(value: object) -> float:
    return float(str(value))
