"""Estimate latency with one sample in flight: a latency model over all chains, corrected by timing samples.

The model is fitted to the calls of the timed samples, once per fold, without that fold's problems. Its inputs are token
counts that follow from a chain alone (table timing_work). Counts of cached tokens or concurrent requests are not used,
because they depend on the load: with such counts, chains from full batches would get other predictions than equal
chains that ran alone, and the estimate would be biased.

A call's time is linear in the counts of `_COUNTS`, with a coefficient per model and count: the call processes its new
prompt tokens, then generates its longest completion. A sample's calls are sequential, so its latency is the sum over
calls plus the harness's overhead. SpecReason section 4.1 and SpecCoT section 3.4 count a verdict in the same way: one
short prefill and one token. A draft started during a verdict (specreason's `--lookahead`) adds only the time beyond
that verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from warehouse.database import Connection, rows
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.two_phase import Measured, Predicted, TwoPhaseMean, two_phase_mean, two_phase_ratio

MEAN, SPEED_UP = "latency_at_one", "speed_up_at_one"
"""Metrics of the table `estimate`."""
FOLDS = 10
"""Maximum number of cross-fitting folds."""
USABLE = "num_attempts = 1 AND stop_reason <> 'error' AND latency_seconds IS NOT NULL AND isfinite(latency_seconds)"
"""SQL condition for timing samples with a valid time."""
_CALLS = f"""
SELECT sample_id, model, 1 AS num_calls, unread_prompt_tokens AS new_prompt_tokens,
    longest_output_tokens AS output_tokens, longest_output_tokens * (n - 1) AS further_output_tokens,
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
"""Inputs of the model; for their definitions see table timing_work."""
_Work = dict[tuple[str, str], Floats]
"""Counts per part of table timing_work and model: (chains, 4), in the order of `_COUNTS`."""


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Predicts the latency of samples on one machine."""

    speeds: Mapping[str, Floats]
    """Seconds per unit of each count in `_COUNTS`, by model; none is negative."""
    sample_overhead_seconds: float
    """Time that a sample spends outside its calls."""

    def seconds(self, work: _Work, number: int) -> Floats:
        """Return the predicted latency (number,) of chains. A draft begun during a verdict adds only time beyond it.

        A model without fitted calls is predicted to take no time; timed samples correct this like any prediction error.
        """
        parts = {name: np.zeros(number) for name in ("after", "ahead", "under")}
        for (part, model), counts in work.items():
            parts[part] += counts @ self.speeds.get(model, np.zeros(len(_COUNTS)))
        waited = np.maximum(0.0, parts["ahead"] - parts["under"])
        return np.asarray(self.sample_overhead_seconds + parts["after"] + waited)


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

        If `grows_with_time`, the quantity is predicted as a factor times the predicted seconds, else as a constant. The
        factor or the constant is fitted to the timed samples of the other folds, so the estimate stays unbiased.
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
    measured = _samples(connection, run_id)
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
        predicted.append(model.seconds(work, len(places)))
        own.append(model.seconds(timed_work, len(ids)))
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
    """Return the call and token counts of all chains and of the timed chains."""
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


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call with its measured time."""

    model: str
    counts: tuple[float, ...]
    """The call's counts, in the order of `_COUNTS`."""
    seconds: float
    overlapped_seconds: float = 0.0
    """Part of `seconds` during which the sample did not wait for this call."""


@dataclass(frozen=True, slots=True)
class TimedSample:
    """The calls of a sample, and its wall time."""

    calls: tuple[TimedCall, ...]
    latency_seconds: float


def _samples(connection: Connection, run_id: str) -> dict[str, TimedSample]:
    """Return a run's valid timing samples with their calls, by id."""
    calls: dict[str, list[TimedCall]] = {}
    latency: dict[str, float] = {}
    for row in rows(connection, _CALLS, {"run_id": run_id}):
        sample = str(row["sample_id"])
        latency[sample] = row["latency_seconds"]
        calls.setdefault(sample, [])
        if row["model"] is not None:
            counts = tuple(row[name] for name in _COUNTS)
            calls[sample].append(TimedCall(row["model"], counts, row["end_seconds"], row["overlapped_seconds"]))
    return {sample: TimedSample(tuple(calls[sample]), seconds) for sample, seconds in latency.items()}


def fit(samples: Sequence[TimedSample]) -> LatencyModel:
    """Fit the model by non-negative least squares over calls (Lawson and Hanson 1974, in scipy).

    The effect of a count that does not vary within the run may be attributed to other counts.
    """

    calls = [call for sample in samples for call in sample.calls]
    speeds = {model: _speed([c for c in calls if c.model == model]) for model in {call.model for call in calls}}
    overheads = [s.latency_seconds - sum(c.seconds - c.overlapped_seconds for c in s.calls) for s in samples]
    return LatencyModel(speeds, max(0.0, statistics.fmean(overheads)))


def _speed(calls: Sequence[TimedCall]) -> Floats:
    counts = np.array([call.counts for call in calls], dtype=float)
    scale = counts.max(axis=0)  # the counts differ by orders of magnitude
    scale[scale == 0] = 1.0
    from scipy.optimize import nnls

    coefficients, _ = nnls(counts / scale, np.array([call.seconds for call in calls]))
    return np.asarray(coefficients / scale)
