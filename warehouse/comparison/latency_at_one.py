"""Estimate latency with one sample in flight: a latency model over all chains, corrected by timing samples.

The model is fitted to the calls of the timed samples, once per fold, without that fold's problems. Its inputs are token
counts that follow from a chain alone (table timing_work). Counts of cached tokens or concurrent requests are not used,
because they depend on the load: with such counts, chains from full batches would get other predictions than equal
chains that ran alone, and the estimate would be biased.

A call's time is linear in its token counts, with a few coefficients per model: first its uncached prompt tokens are
processed, then the tokens of its longest completion. Both take longer if more requests are running. A sample's calls
are sequential, so its latency is the sum over calls plus the harness's overhead. SpecReason section 4.1 and SpecCoT
section 3.4 count a verdict in the same way: one short prefill and one token. A draft started during a verdict
(specreason's `--lookahead`) adds only the time beyond that verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import groupby
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from harness.engine import Role
from warehouse.database import Connection, Record, rows
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.two_phase import Measured, Predicted, TwoPhaseMean, two_phase_mean, two_phase_ratio

MEAN, SPEED_UP = "latency_at_one", "speed_up_at_one"
"""Metrics of the table `estimate`."""
FOLDS = 10
"""Maximum number of cross-fitting folds."""
USABLE = "num_attempts = 1 AND stop_reason <> 'error' AND latency_seconds IS NOT NULL AND isfinite(latency_seconds)"
"""SQL condition for timing samples with a valid time."""
_CALLS = f"""
SELECT sample_id, model, purpose, unread_prompt_tokens AS new_prompt_tokens, longest_output_tokens, n, 1 AS in_flight,
    end_seconds, overlapped_seconds, latency_seconds
FROM (FROM timing_sample WHERE {USABLE}) AS timed LEFT JOIN timing_call USING (run_id, sample_id)
WHERE run_id = $run_id ORDER BY sample_id, call_index
"""
_CHAINS = """
SELECT draw.sample_id, stratum, problem_id || ' ' || content_hash AS problem, family
FROM timing_draw AS draw JOIN sample USING (run_id, sample_id) JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id ORDER BY problem, sample_id
"""
_WORK = """
SELECT sample_id, is_timed, part, model, num_calls, new_prompt_tokens, output_tokens, further_output_tokens
FROM timing_work WHERE run_id = $run_id ORDER BY part, model
"""
_COUNTS = ("num_calls", "new_prompt_tokens", "output_tokens", "further_output_tokens")
_Work = dict[tuple[str, str], Floats]
"""Counts per part and model: (chains, 4), in the order of `_COUNTS`."""


@dataclass(frozen=True, slots=True)
class Work:
    """One call, or the sum of several calls of one model, because the latency model is linear."""

    model: Role
    calls: float
    new_prompt_tokens: float
    """Prompt tokens not in the prefix cache."""
    output_tokens: float
    """Output tokens on the critical path: if a call has several completions, only the tokens of the longest."""
    further_completions: float = 0.0
    """Number of completions of the call beyond the first."""
    further_requests: float = 0.0
    """Number of other concurrent requests to this engine."""
    begun_under: Work | None = None
    """Work that the sample waits for anyway and during which this work started. None: this work starts after all
    earlier work.
    """

    def features(self) -> tuple[float, ...]:
        """Return the number by which each field of `ModelSpeed` is multiplied, in the order of the fields."""
        crowd = self.further_requests
        return (
            self.calls,
            self.new_prompt_tokens,
            self.output_tokens,
            self.output_tokens * self.further_completions,
            self.calls * crowd,
            self.new_prompt_tokens * crowd,
            self.output_tokens * crowd,
        )


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Coefficients of one model on one machine, in seconds per unit; none is negative."""

    call: float = 0.0
    """Fixed time of a call."""
    prompt_token: float = 0.0
    output_token: float = 0.0
    output_token_per_completion: float = 0.0
    """Time added to an output token by each further completion of the call."""
    call_per_request: float = 0.0
    """Time added to a call by each further concurrent request."""
    prompt_token_per_request: float = 0.0
    output_token_per_request: float = 0.0

    def seconds(self, work: Work) -> float:
        speeds: tuple[float, ...] = astuple(self)
        return sum(speed * cause for speed, cause in zip(speeds, work.features(), strict=True))


_NO_SPEED = ModelSpeed()


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Predicts the latency of samples on one machine."""

    speeds: Mapping[Role, ModelSpeed]
    sample_overhead_seconds: float = 0.0
    """Time that a sample spends outside its calls."""

    def sample_seconds(self, work: Iterable[Work]) -> float:
        """Return one sample's predicted latency. Raises KeyError if a model has no speeds."""
        return self.sample_overhead_seconds + sum(self._waited(w) for w in work)

    def _waited(self, work: Work) -> float:
        under = work.begun_under
        seconds = self.speeds[work.model].seconds(work)
        return seconds if under is None else max(0.0, seconds - self.speeds[under.model].seconds(under))


@dataclass(frozen=True)
class TimedRun:
    """A run with some samples timed one at a time."""

    run_id: str
    problems: Sequence[str]
    """(N,): problem id and content hash of each sample that could have been drawn for timing."""
    strata: NDArray[np.int64]
    predicted: Floats
    """(folds, N): seconds predicted by each fold's model."""
    timed: NDArray[np.int64]
    """(M,): indices of the timed samples."""
    folds: NDArray[np.int64]
    """(M,): fold of each timed sample."""
    predicted_timed: Floats
    """(folds, M): seconds predicted for the timed chains by each fold's model."""
    seconds: Floats
    """(M,): measured seconds."""
    timed_ids: Sequence[str]
    """(M,): ids of the timed samples."""
    families: Mapping[str, str]
    """Family of each problem; a problem without a family is its own family."""

    def shared(self, other: TimedRun) -> Mapping[str, str]:
        """Return the families of the problems in both runs."""
        return {problem: family for problem, family in self.families.items() if problem in other.families}

    def measuring(self, values: Floats, *, grows_with_time: bool) -> TimedRun:
        """Return a copy of the run in which `values` (M,), another quantity of the timed chains, replace the seconds.

        If `grows_with_time`, the predictions are proportional to the predicted seconds; otherwise they are constant.
        The factor or the constant is fitted to the timed samples of the other folds, so the estimate stays unbiased.
        """
        predicted, own = np.empty_like(self.predicted), np.empty_like(self.predicted_timed)
        for fold in range(len(self.predicted)):
            others = self.folds != fold if (self.folds != fold).any() else self.folds == fold
            total = self.predicted_timed[fold, others].sum()
            if grows_with_time and total > 0:
                factor = values[others].sum() / total
                predicted[fold], own[fold] = factor * self.predicted[fold], factor * self.predicted_timed[fold]
            else:
                predicted[fold] = own[fold] = values[others].mean()
        return replace(self, predicted=predicted, predicted_timed=own, seconds=values)

    def mean(self, among: Mapping[str, str] | None = None) -> TwoPhaseMean:
        """Return the estimated mean latency. Raises ValueError if no sample is timed.

        among: problems to include, with their families; None: all.
        """
        families = self.families if among is None else among
        kept = np.array([problem in families for problem in self.problems])
        numbers = {family: number for number, family in enumerate(sorted(set(families.values())))}
        problems = np.array([numbers.get(families.get(problem, ""), -1) for problem in self.problems])
        is_kept = kept[self.timed]
        timed = self.timed[is_kept]
        measured = Measured(
            self.seconds[is_kept],
            self.predicted_timed[self.folds, np.arange(len(self.folds))][is_kept],
            self.folds[is_kept],
            problems[timed],
            self.strata[timed],
        )
        has_families = len(numbers) < len(families)
        everything = Predicted(self.predicted[:, kept], problems[kept], self.strata[kept], has_families)
        return two_phase_mean(everything, measured)


@dataclass(frozen=True)
class SpeedUpAtOne:
    """How many times faster a run is than its baseline, both with one sample in flight."""

    ratio: Interval
    """Ratio of mean latencies; its interval holds within these two runs."""
    n: int
    """Number of problems."""
    num_timed: int
    num_timed_of_baseline: int


def read(connection: Connection, run_id: str) -> TimedRun | None:
    """Return a run's timing samples with their predictions; None if it has no valid timing samples."""
    measured = read_samples(connection, _CALLS, run_id)
    chains = rows(connection, _CHAINS, {"run_id": run_id})
    places = {str(chain["sample_id"]): place for place, chain in enumerate(chains)}
    ids = [sample_id for sample_id in measured if sample_id in places]
    if not ids:
        return None
    problems = [str(chain["problem"]) for chain in chains]
    families = {str(chain["problem"]): str(chain["family"] or chain["problem"]) for chain in chains}
    folds = _folds([families[problems[places[sample_id]]] for sample_id in ids])
    work, timed_work = _work(connection, run_id, places, {sample_id: place for place, sample_id in enumerate(ids)})
    predicted, own = [], []
    for fold in range(int(folds.max()) + 1):
        model = _model([measured[sample_id] for sample_id in ids], folds != fold)
        predicted.append(_seconds(model, work, len(places)))
        own.append(_seconds(model, timed_work, len(ids)))
    return TimedRun(
        run_id,
        problems,
        np.array([chain["stratum"] for chain in chains], dtype=np.int64),
        np.array(predicted),
        np.array([places[sample_id] for sample_id in ids], dtype=np.int64),
        folds,
        np.array(own),
        np.array([measured[sample_id].latency_seconds for sample_id in ids]),
        ids,
        families,
    )


def speed_up(own: TimedRun, base: TimedRun) -> SpeedUpAtOne | None:
    """Return how many times faster `own` is than `base`, over the problems in both.

    None if a run has no timed sample on these problems, or if a mean is not positive.
    """
    shared = own.shared(base)
    try:
        first, second = base.mean(shared), own.mean(shared)
    except ValueError:
        return None
    ratio = two_phase_ratio(first, second)
    if not np.isfinite(ratio.estimate):
        return None
    return SpeedUpAtOne(ratio, len(shared), second.num_timed, first.num_timed)


def _folds(problems: Sequence[str]) -> NDArray[np.int64]:
    """Return the fold of each timed sample. All samples of a problem (family) are in one fold."""
    distinct = sorted(set(problems))
    numbers = {problem: number % min(FOLDS, len(distinct)) for number, problem in enumerate(distinct)}
    return np.array([numbers[problem] for problem in problems], dtype=np.int64)


def _model(samples: Sequence[TimedSample], is_used: NDArray[np.bool_]) -> LatencyModel:
    """Return the model fitted to the used samples, or to all samples if none are used (a single problem)."""
    used = [sample for sample, is_one in zip(samples, is_used, strict=True) if is_one]
    return fit(used or samples)


def _work(
    connection: Connection, run_id: str, places: dict[str, int], timed_places: dict[str, int]
) -> tuple[_Work, _Work]:
    """Return the work of all the run's chains and of the timed chains."""
    found: tuple[_Work, _Work] = ({}, {})
    by_part = groupby(
        rows(connection, _WORK, {"run_id": run_id}), key=lambda row: (str(row["part"]), str(row["model"]))
    )
    for part, of_part in by_part:
        for work, where in zip(found, (places, timed_places), strict=True):
            work[part] = np.zeros((len(where), len(_COUNTS)))
        for row in of_part:
            work, where = (found[1], timed_places) if row["is_timed"] else (found[0], places)
            place = where.get(str(row["sample_id"]))
            if place is not None:
                work[part][place] = [row[name] for name in _COUNTS]
    return found


def _seconds(model: LatencyModel, work: _Work, number: int) -> Floats:
    """Return the predicted latency of chains (number,), as LatencyModel.sample_seconds does for one chain.

    A model without fitted calls is predicted to take no time; timed samples correct this like any prediction error.
    """
    parts = {name: np.zeros(number) for name in ("after", "ahead", "under")}
    for (part, role), counts in work.items():
        speed = next((speed for name, speed in model.speeds.items() if name == role), _NO_SPEED)
        per_count = (speed.call, speed.prompt_token, speed.output_token, speed.output_token_per_completion)
        parts[part] += counts @ np.array(per_count)
    waited = np.maximum(0.0, parts["ahead"] - parts["under"])
    return np.asarray(model.sample_overhead_seconds + parts["after"] + waited)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call with its measured time."""

    work: Work
    seconds: float
    purpose: str
    overlapped_seconds: float = 0.0
    """Part of `seconds` during which the sample did not wait."""


@dataclass(frozen=True, slots=True)
class TimedSample:
    """The calls of a sample, and its wall time."""

    calls: tuple[TimedCall, ...]
    latency_seconds: float

    @property
    def work(self) -> list[Work]:
        """Work that the sample waited for."""
        return [call.work for call in self.calls if call.purpose != "lookahead"]


def read_samples(connection: Connection, sql: str, run_id: str) -> dict[str, TimedSample]:
    """Return samples with their calls, by id. `sql` returns the columns of `_CALLS`, one row per call in order."""
    calls: dict[str, list[TimedCall]] = {}
    latency: dict[str, float] = {}
    for row in rows(connection, sql, {"run_id": run_id}):
        sample = str(row["sample_id"])
        latency[sample] = row["latency_seconds"]
        calls.setdefault(sample, [])
        if row["model"] is not None:
            calls[sample].append(_call(row, calls[sample]))
    return {sample: TimedSample(tuple(calls[sample]), seconds) for sample, seconds in latency.items()}


def fit(samples: Sequence[TimedSample]) -> LatencyModel:
    """Fit the model by non-negative least squares over calls (Lawson and Hanson 1974, in scipy).

    If a feature does not vary within the run, its coefficient is 0, or its effect is divided between features.
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
    from scipy.optimize import nnls

    coefficients, _ = nnls(causes / scale, np.array([call.seconds for call in calls]))
    return ModelSpeed(**{f.name: float(x) for f, x in zip(fields(ModelSpeed), coefficients / scale, strict=True)})


def _call(row: Record, before: Sequence[TimedCall]) -> TimedCall:
    """Convert a row to a call. A draft that overlapped with other work is assumed to begin during the last verdict."""
    overlapped = row["overlapped_seconds"]
    verdicts = (call.work for call in reversed(before) if call.purpose == "verdict")
    work = Work(
        model=next(role for role in get_args(Role) if role == row["model"]),
        calls=1,
        new_prompt_tokens=row["new_prompt_tokens"],
        output_tokens=row["longest_output_tokens"],
        further_completions=row["n"] - 1,
        further_requests=row["in_flight"] - 1,
        begun_under=next(verdicts, None) if overlapped > 0 and row["purpose"] == "draft" else None,
    )
    return TimedCall(work, row["end_seconds"], str(row["purpose"]), overlapped)
