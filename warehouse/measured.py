"""The numbers in the tables of suites, in the unit that the papers print: of a run alone, or against its baseline.

A measure of warehouse/measures.py is read from its row of the table `estimate`, or computed in the same way where few
runs have the data. Ratios of the latencies of two runs are paired by problem (warehouse/statistics/ratios.py). Times
can be taken by any stopwatch of the view `stopwatch` that values problems, by default the measured time. Times of a run
of which samples were timed one at a time (`--latency-sample`) are estimated from these, with intervals that cover the
choice of the problems and of the timed samples (warehouse/statistics/two_phase.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from harness.engines import registry
from warehouse import latency_at_one
from warehouse.database import Connection, Record, columns, rows
from warehouse.estimates import of_problems
from warehouse.latency_at_one import TimedRun
from warehouse.measures import CORRELATED, MEASURES, Source, ratio
from warehouse.pairs import alike_but_in_flight, latencies, run_factors
from warehouse.statistics.intervals import Floats, Interval, mean_t
from warehouse.statistics.ratios import Fractions, ratio_of_means
from warehouse.statistics.run_factor import RunFactor, between_runs
from warehouse.statistics.shares import correlation
from warehouse.statistics.two_phase import mean_interval, two_phase_difference, two_phase_ratio

_SHARES_OF_SAMPLES = {
    "accuracy": ("graded_pass_at_1", None),
    "pass_at_2": ("pass_at_k", 2),
    "pass_at_5": ("pass_at_k", 5),
    "pass_at_10": ("pass_at_k", 10),
}
"""Measure and k of what the papers' tables call otherwise; all in percent."""
_OF_PAIRS = frozenset({"latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up"})
_OF_RUNS = {
    "wall_seconds": "SELECT wall_seconds / num_workers AS value FROM run_throughput WHERE run_id = $run_id",
    "emitted_tokens_per_wall_second": (
        "SELECT emitted_tokens_per_second * num_workers AS value FROM run_throughput WHERE run_id = $run_id"
    ),
    "wall_speed_up": """
        SELECT base.wall_seconds / own.wall_seconds AS value
        FROM run_throughput AS own, run_throughput AS base
        WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
            AND own.num_workers = base.num_workers
            AND (SELECT count(DISTINCT dataset_hash) FROM run WHERE run_id IN ($run_id, $baseline)) = 1""",
}
"""Values of a whole run, which have no interval."""
_CORRELATION = "score_reward_correlation"
NAMES = frozenset({
    *(name for name, measure in MEASURES.items() if measure.x is not None), *_SHARES_OF_SAMPLES, *_OF_RUNS, *_OF_PAIRS,
    _CORRELATION,
})  # fmt: skip
"""What tables of suites can show."""
_STORED = """
SELECT estimate, low_95 AS low, high_95 AS high, n FROM counted_estimate
WHERE run_id = $run_id AND metric = $metric AND k IS NOT DISTINCT FROM coalesce($k, k) AND role IS NULL
    AND group_kind IS NULL AND baseline_run_id IS NULL
"""
_RUNS = """
SELECT run.*, run_conditions.devices, run_conditions.device_kinds, run_conditions.samples_in_flight,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason IS NOT NULL) AS num_finished,
    (SELECT bool_and(try_cast(regexp_extract(problem_id, '(\\d+)$', 1) AS INTEGER) = problem_index)
        FROM problem WHERE problem.run_id = run.run_id) AS first_problems,
    (SELECT list(DISTINCT scorer ORDER BY scorer) FROM candidate_score
        WHERE candidate_score.run_id = run.run_id) AS scorers,
    reward.num_candidates, reward.num_unscored, reward.why_unscored,
    (SELECT sum(num_workers) FROM run_throughput WHERE run_id = run.run_id) AS num_workers,
    (SELECT sum(wall_seconds) FROM run_throughput WHERE run_id = run.run_id) AS wall_seconds,
    (SELECT max(num_devices) FROM attempt WHERE attempt.run_id = run.run_id
        AND device NOT IN ('cpu', 'unknown server', 'cpu and unknown server')) AS num_gpus
FROM run JOIN run_conditions USING (run_id)
LEFT JOIN (
    SELECT run_id, count(*) AS num_candidates, count(*) - count(score) AS num_unscored,
        list(DISTINCT missing ORDER BY missing) FILTER (missing IS NOT NULL) AS why_unscored
    FROM candidate JOIN sample USING (run_id, sample_id) LEFT JOIN (
        FROM candidate_score SEMI JOIN (
            SELECT run_id, scorer FROM candidate_score GROUP BY run_id, scorer
            QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY scorer ILIKE '%shepherd%' DESC, scorer) = 1
        ) AS shown USING (run_id, scorer)
    ) AS scored USING (run_id, sample_id, step_index, candidate_index)
    WHERE stop_reason <> 'error' GROUP BY run_id
) AS reward USING (run_id)
WHERE method = $method AND dataset = $dataset AND engine_kind NOT IN $uncounted
ORDER BY num_finished DESC, created_at DESC
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of a run with its 95 % interval; None: too few problems, or this measure has no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """Number of problems."""


def measure(
    connection: Connection,
    name: str,
    run_id: str,
    baseline: str | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Measured | None:
    """Return a number of a run; None if the run lacks the data for it, or if it is not like its baseline.

    `stopwatch` is the definition of latency for the measures of latency, `of_baseline` that of the baseline, where that
    has another one. Raises KeyError for an unknown name.
    """
    if name in _OF_PAIRS:
        pairs = latencies(connection, run_id, baseline, stopwatch, of_baseline or stopwatch)
        return None if pairs is None else _ratio(name, *pairs, run_factors(connection, [run_id]).get(run_id))
    if name in _OF_RUNS:
        asked = {"run_id": run_id} | ({"baseline": baseline} if "$baseline" in _OF_RUNS[name] else {})
        values = [row["value"] for row in rows(connection, _OF_RUNS[name], asked)]
        return Measured(values[0]) if values and values[0] is not None else None
    if name == _CORRELATION:
        sql = f"FROM {CORRELATED} WHERE run_id = $run_id ORDER BY problem_id"
        found = columns(connection, sql, {"run_id": run_id})
        sums = np.stack([found[key] for key in ("n", "x", "y", "xy", "xx", "yy")], axis=1)
        return _in_unit(correlation(sums), len(sums)) if len(sums) else None
    stored, k = _SHARES_OF_SAMPLES.get(name, (name, None))
    wanted = MEASURES[stored]
    unit = 100.0 if wanted.is_percent else 1.0
    is_stored = wanted.source.is_stored
    if name == "latency_seconds" and stopwatch != "measured":
        clock = stopwatch.replace("'", "")
        by_clock = Source(f"(SELECT run_id, problem_id, x, y FROM problem_stopwatch WHERE stopwatch = '{clock}')")
        wanted, is_stored = replace(wanted, x="x", y="y", samples=None, method=ratio, source=by_clock), False
    if is_stored:
        for row in rows(connection, _STORED, {"run_id": run_id, "metric": stored, "k": k}):
            return _in_unit(Interval(row["estimate"], row["low"], row["high"], None, ""), row["n"], unit)
        return None
    return next((_in_unit(one.interval, one.n, unit) for one in of_problems(connection, [run_id], [wanted])), None)


def _ratio(name: str, own: Fractions, base: Fractions, factor: RunFactor | None) -> Measured:
    """Return what the latencies of a run are to those of its baseline.

    `speed_up` and `ratio_of_means` are baseline over run, `latency_saved` is percent of the baseline's mean, and
    `latency_saved_seconds` is the difference of the means. Ratios cover the run factor where it is known, as the view
    `speed_up` does.
    """
    if name == "latency_saved_seconds":
        found = mean_t(base.x / base.y - own.x / own.y)
    elif name == "speed_up":
        found = between_runs(MEASURES[name].compared(own.x / own.y, base.x / base.y), factor)
    else:
        found = between_runs(ratio_of_means(base, own), factor)
    if name != "latency_saved":
        return Measured(found.estimate, found.low, found.high, len(own.x))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (found.low, found.high))
    return Measured(100 - 100 / found.estimate, low, high, len(own.x))


_RATES = ("tokens_per_second", "thought_tokens_per_second")
_SHARES = {"drafting_share": "draft", "selection_share": "verdict", "target_share": "rest"}
NOT_ESTIMATED = frozenset({"speed_up"})
"""Numbers of latencies that a sample of the samples cannot give."""
ESTIMATED = frozenset({"latency_seconds", *_RATES, *_SHARES, *_OF_PAIRS}) - NOT_ESTIMATED
"""Numbers that timing samples give."""
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
"""The stopwatches as in sql/views/stopwatches.sql and modelled.sql, the shares as in measures.py."""
_PROGRESS = """
SELECT num_timed, num_drawn, num_samples FROM latency_at_one WHERE run_id = $run_id
"""


def progress(connection: Connection, run_id: str) -> tuple[int, int, int] | None:
    """Return how many samples of a run were timed, were to be timed, and are there; None: none was timed."""
    for row in rows(connection, _PROGRESS, {"run_id": run_id}):
        return int(str(row["num_timed"])), int(str(row["num_drawn"])), int(str(row["num_samples"]))
    return None


def estimated(
    connection: Connection,
    name: str,
    run: Record,
    baseline: Record | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Measured | None:
    """Return a number of times from timing samples, as `measure` does from all; None where they do not give it.

    `run` and `baseline` are rows of `runs_like`; both have timing samples. Raises KeyError for
    a name that is not in `ESTIMATED`.
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
    return None if found is None else _in_unit(mean_interval(found.mean()), len(set(found.problems)))


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
    return _in_unit(two_phase_ratio(part.mean(), whole.mean()), len(set(part.problems)), 100)


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
        return _in_unit(two_phase_difference(first, second), len(shared))
    ratio = between_runs(two_phase_ratio(first, second), run_factors(connection, [own.run_id]).get(own.run_id))
    if name == "ratio_of_means" or not np.isfinite(ratio.estimate):
        return _in_unit(ratio, len(shared))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (ratio.low, ratio.high))
    return Measured(100 - 100 / ratio.estimate, low, high, len(shared))


def runs_like(connection: Connection, wanted: Record) -> list[dict[str, object]]:
    """Return the runs with these values in the table `run`, those with the most finished samples first.

    wanted: values by column, with `params` as a dictionary; it must have `method` and `dataset`. Scripted runs, whose
    numbers are meaningless, are left out. `first_problems`: whether the run has the first problems of its dataset, by
    the row at the end of their ids.
    """
    parameters = {"method": wanted["method"], "dataset": wanted["dataset"], "uncounted": registry.uncounted()}
    candidates = rows(connection, _RUNS, parameters)
    runs = [{**row, "params": json.loads(str(row["params"]))} for row in candidates]
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def _in_unit(found: Interval | None, n: int, unit: float = 1.0) -> Measured | None:
    """Return an interval over n problems in another unit; None where its estimate is no number."""
    if found is None or not np.isfinite(found.estimate):
        return None
    low, high = (None if bound is None else unit * bound for bound in (found.low, found.high))
    return Measured(unit * found.estimate, low, high, n)
