"""The measures of times in the papers' tables, with one sample in flight, of runs of which some samples were timed so.

Each is the estimate of warehouse/statistics/two_phase.py from the timing samples (`--latency-sample`), by the stopwatch
that the table asks for, with an interval that covers the choice of the problems and that of the timed samples. The
geometric mean of the problems' ratios needs times of every problem, and is not estimated.
"""

from __future__ import annotations

import numpy as np

from warehouse import latency_at_one
from warehouse.database import Connection, Record, rows
from warehouse.latency_at_one import TimedRun
from warehouse.measures import Measured
from warehouse.pairs import alike_but_in_flight, run_factors
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.run_factor import between_runs
from warehouse.statistics.two_phase import mean_interval, two_phase_difference, two_phase_ratio

_RATES = ("tokens_per_second", "thought_tokens_per_second")
_SHARES = {"drafting_share": "draft", "selection_share": "verdict", "target_share": "rest"}
_OF_PAIRS = ("latency_saved", "latency_saved_seconds", "ratio_of_means")
NOT_ESTIMATED = frozenset({"speed_up"})
"""Measures of latencies that a sample of the samples cannot give."""
MEASURES = frozenset({"latency_seconds", *_RATES, *_SHARES, *_OF_PAIRS})
"""Measures of times that timing samples give."""
_USABLE = "num_attempts = 1 AND stop_reason <> 'error' AND latency_seconds IS NOT NULL AND isfinite(latency_seconds)"
_VALUES = f"""
WITH timed AS (FROM timing_sample WHERE run_id = $run_id AND {_USABLE}), called AS (
    SELECT timing_call.* FROM timing_call SEMI JOIN timed USING (run_id, sample_id) WHERE purpose <> 'lookahead'
), token AS (
    SELECT model, nullif(sum(end_seconds - first_token_seconds), 0)
        / nullif(sum(greatest(longest_output_tokens - 1, 0)), 0) AS seconds
    FROM called WHERE purpose <> 'verdict' GROUP BY model
), prefill AS (
    SELECT model, purpose, avg(first_token_seconds - queued_seconds) AS seconds FROM called GROUP BY ALL
), of_calls AS (
    SELECT sample_id, sum(end_seconds - overlapped_seconds) AS waited,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (called.purpose = 'draft'), 0) AS draft,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (called.purpose = 'verdict'), 0) AS verdict,
        CASE WHEN NOT bool_or(called.purpose <> 'verdict' AND token.seconds IS NULL) THEN
            coalesce(sum(longest_output_tokens * token.seconds) FILTER (called.purpose <> 'verdict'), 0)
            + coalesce(sum(prefill.seconds) FILTER (called.purpose IN ('verdict', 'chain')), 0) END AS specreason
    FROM called LEFT JOIN token USING (model) LEFT JOIN prefill USING (model, purpose) GROUP BY sample_id
)
SELECT sample_id, latency_seconds AS measured, specreason, greatest(latency_seconds - answer_seconds, 0) AS scot,
    emitted_tokens / nullif(latency_seconds, 0) AS tokens_per_second,
    (emitted_tokens - answer_tokens) / nullif(scot, 0) AS thought_tokens_per_second,
    draft, verdict, waited - answer_seconds AS thought, thought - draft - verdict AS rest
FROM timed LEFT JOIN of_calls USING (sample_id)
"""
"""The stopwatches as in sql/views/stopwatches.sql and modelled.sql, the shares as in measure_sql.py."""
_PROGRESS = """
SELECT num_timed, num_drawn, num_samples FROM latency_at_one WHERE run_id = $run_id
"""


def progress(connection: Connection, run_id: str) -> tuple[int, int, int] | None:
    """Return how many samples of a run were timed, were to be timed, and are there; None: none was timed."""
    for row in rows(connection, _PROGRESS, {"run_id": run_id}):
        return int(str(row["num_timed"])), int(str(row["num_drawn"])), int(str(row["num_samples"]))
    return None


def measure(
    connection: Connection,
    name: str,
    run: Record,
    baseline: Record | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Measured | None:
    """Return a measure of times as `warehouse.measures.measure` does; None where timing samples do not give it.

    `run` and `baseline` are rows of `warehouse.measures.runs_like`; both have timing samples. Raises KeyError for
    a name that is not in `MEASURES`.
    """
    own = _Quantities(connection, str(run["run_id"]))
    if name in _OF_PAIRS:
        if baseline is None or not alike_but_in_flight(run, baseline):
            return None
        base = _Quantities(connection, str(baseline["run_id"]))
        return _of_pair(connection, name, own.of(stopwatch), base.of(of_baseline or stopwatch))
    if name in _SHARES:
        return _share(own.of(_SHARES[name]), own.of("thought"))
    found = own.of(name if name in _RATES else {"latency_seconds": stopwatch}[name])
    return None if found is None else _measured(mean_interval(found.mean()), len(set(found.problems)))


class _Quantities:
    """Quantities of a run's timed chains."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._run = latency_at_one.read(connection, run_id)
        found = rows(connection, _VALUES, {"run_id": run_id})
        self._values = {str(row["sample_id"]): row for row in found}

    def of(self, name: str) -> TimedRun | None:
        """Return the run with a quantity in the place of its seconds; None where a timed chain lacks it."""
        if self._run is None:
            return None
        values = [self._values[sample_id][name] for sample_id in self._run.timed_ids]
        if name == "measured":
            return self._run
        if any(value is None for value in values):
            return None
        numbers: Floats = np.array([float(str(value)) for value in values])
        return self._run.measuring(numbers, grows_with_time=name not in _RATES)


def _share(part: TimedRun | None, whole: TimedRun | None) -> Measured | None:
    """Return a part in percent of the whole, both of the same run."""
    if part is None or whole is None or whole.mean().estimate <= 0:
        return None
    if not part.seconds.any():
        return Measured(0.0, n=len(set(part.problems)))
    return _measured(two_phase_ratio(part.mean(), whole.mean()), len(set(part.problems)), 100)


def _of_pair(connection: Connection, name: str, own: TimedRun | None, base: TimedRun | None) -> Measured | None:
    """Return what a run takes to what its baseline takes, over the problems that both have."""
    if own is None or base is None:
        return None
    shared = set(own.problems) & set(base.problems)
    try:
        first, second = base.mean(shared), own.mean(shared)
    except ValueError:
        return None
    if name == "latency_saved_seconds":
        return _measured(two_phase_difference(first, second), len(shared))
    ratio = between_runs(two_phase_ratio(first, second), run_factors(connection, [own.run_id]).get(own.run_id))
    if name == "ratio_of_means" or not np.isfinite(ratio.estimate):
        return _measured(ratio, len(shared))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (ratio.low, ratio.high))
    return Measured(100 - 100 / ratio.estimate, low, high, len(shared))


def _measured(found: Interval, n: int, unit: float = 1.0) -> Measured | None:
    """Return an interval over n problems as a measure in another unit; None where its estimate is no number."""
    if not np.isfinite(found.estimate):
        return None
    low, high = (None if bound is None else unit * bound for bound in (found.low, found.high))
    return Measured(unit * found.estimate, low, high, n)
