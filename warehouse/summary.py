"""Summarize the results of runs, from the views alone. The launcher prints these summaries at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grading.grade import FAILED
from warehouse.database import Connection, Record, reader, rows
from warehouse.loading.convert import SkippedFile
from warehouse.statistics.intervals import Interval

_RUN = """
SELECT run.run_id, run.method, run.params, run.dataset, run.draft_name AS draft,
    run.target_name || coalesce(' with ' || run.selection_name, '') AS target, run.reward_name AS reward,
    run.temperature, run.engine_kind, run.concurrency, run.engine_take_turns AS take_turns, run.dataset_size,
    run.limited, run.is_greedy,
    score.num_samples AS num_planned,
    (SELECT avg((num_not_run + num_ungraded) / num_samples) FROM problem_score WHERE run_id = run.run_id)
        AS missing_share,
    score.n, score.k, score.pass_at_1,
    score.num_not_run, score.num_ungraded, score.grader_version, score.num_grader_versions,
    coalesce(fallback.num_verdicts, 0) AS num_verdicts,
    coalesce(fallback.num_decisions, 0) AS num_decisions, coalesce(fallback.num_refused, 0) AS num_refused,
    coalesce((SELECT list(DISTINCT kind ORDER BY kind) FROM refusals WHERE run_id = run.run_id), []) AS decision_kinds,
    coalesce((SELECT sum(num_repeated) FROM refusals WHERE run_id = run.run_id), 0)::BIGINT AS num_repeated,
    coalesce(latency.num_samples, 0) AS num_timed,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason <> 'error'
        AND sample_id NOT IN (SELECT sample_id FROM sample_work WHERE sample_work.run_id = run.run_id)) AS num_unasked,
    latency.median_seconds AS median_latency_seconds,
    (SELECT max(greatest(load_at_start, load_at_end) / try_cast(hardware ->> '$.cores' AS DOUBLE))
        FROM attempt WHERE attempt.run_id = run.run_id) AS load_per_core,
    run_conditions.regime, run_throughput.emitted_tokens_per_second, run_throughput.mean_samples_in_flight
FROM run
JOIN pass_at_1 AS score USING (run_id)
JOIN run_conditions USING (run_id)
LEFT JOIN fallback_rate AS fallback USING (run_id)
LEFT JOIN latency USING (run_id)
LEFT JOIN run_throughput USING (run_id)
WHERE run_id = $run_id
"""
_NUMBERS = """
SELECT metric, n, num_samples, rerun_standard_error, estimate, low_95 AS low, high_95 AS high, standard_error,
    interval_kind AS kind
FROM counted_estimate
WHERE run_id = $run_id AND coalesce(baseline_run_id, role, group_kind) IS NULL AND estimate IS NOT NULL
    AND metric NOT IN ('pass_at_k', 'maj_at_k')
"""
_VERDICTS = "SELECT verdict, num_samples FROM verdict_counts WHERE run_id = $run_id"
_GRADER_EXCEPTIONS = f"""
SELECT regexp_extract(detail, '^{FAILED} (\\w+)', 1) AS exception, count(*) AS number FROM sample_grade
WHERE run_id = $run_id AND starts_with(detail, '{FAILED}') GROUP BY ALL ORDER BY number DESC, exception
"""
_SHARES = "SELECT part, share FROM latency_split WHERE run_id = $run_id AND share IS NOT NULL ORDER BY share DESC"
_SPEEDS = """
SELECT model, tokens_per_call_second FROM throughput WHERE run_id = $run_id AND tokens_per_call_second IS NOT NULL
ORDER BY model
"""
_TOKENS = """
SELECT model, emitted_tokens_per_sample AS emitted_per_sample, spent_tokens_per_sample AS spent_per_sample,
    critical_path_tokens_per_sample AS critical_path_per_sample, emitted_share
FROM token_split WHERE run_id = $run_id ORDER BY model
"""
_SPEED_UPS = """
SELECT baseline_run_id, n, speed_up, low_95, high_95, rate_ratio, chain_length_ratio, same_versions, ratio_of_means,
    ratio_of_means_low_95, ratio_of_means_high_95, run_factor
FROM speed_up WHERE run_id = $run_id ORDER BY baseline_run_id
"""
_AT_ONE = """
SELECT n, num_samples, num_timed, mean_seconds, low_95, high_95 FROM latency_at_one WHERE run_id = $run_id
"""
_SPEED_UPS_AT_ONE = """
SELECT baseline_run_id, n, num_timed, num_timed_of_baseline, speed_up, low_95, high_95, same_versions, run_factor
FROM speed_up_at_one WHERE run_id = $run_id ORDER BY baseline_run_id
"""
_TOKEN_SPECULATION = """
SELECT proposer, model, num_tokens, draft_sampling, acceptance_rate, tokens_per_pass
FROM token_speculation_setting WHERE run_id = $run_id
"""
_CODES = """
SELECT code_hash, git_commits, num_samples FROM run_code WHERE run_id = $run_id ORDER BY first_used_at, code_hash
"""
_SKIPPED = "SELECT name, error AS reason FROM loaded_file WHERE run_id = $run_id AND error IS NOT NULL ORDER BY name"


@dataclass(frozen=True, slots=True)
class Number:
    """A measure of the run (warehouse/measures.py)."""

    interval: Interval
    n: int
    """Problems that it is over."""
    num_samples: int | None
    """Samples that it is over; None: it does not count samples."""
    rerun_standard_error: float | None


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """Tokens of one model per finished sample, and its share of the run."""

    emitted_per_sample: float
    spent_per_sample: float
    critical_path_per_sample: float
    emitted_share: float | None


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Speed against one run of the target alone; see the view `speed_up`."""

    baseline_run_id: str
    n: int
    speed_up: float
    low_95: float | None
    high_95: float | None
    rate_ratio: float
    chain_length_ratio: float
    same_versions: bool
    ratio_of_means: float
    """Mean latency of the baseline divided by that of the run, as papers publish it; `speed_up` is a geometric mean."""
    ratio_of_means_low_95: float | None
    ratio_of_means_high_95: float | None
    run_factor: float | None = None
    """Standard deviation of a run's times in logarithms, from repeated runs, which the intervals cover; None: not
    known, and the intervals hold within the two runs only."""


@dataclass(frozen=True, slots=True)
class LatencyAtOne:
    """Mean latency with one sample in flight, estimated from timing samples; see the view `latency_at_one`."""

    n: int
    num_samples: int
    """Samples that the estimate is of."""
    num_timed: int
    """Number of these samples that ran again, one at a time."""
    mean_seconds: float
    low_95: float | None
    high_95: float | None


@dataclass(frozen=True, slots=True)
class SpeedUpAtOne:
    """Speed with one sample in flight against one run of the target alone; see the view `speed_up_at_one`."""

    baseline_run_id: str
    n: int
    num_timed: int
    num_timed_of_baseline: int
    speed_up: float
    """Ratio of mean latencies."""
    low_95: float | None
    high_95: float | None
    same_versions: bool
    run_factor: float | None = None
    """As that of `SpeedUp`."""


@dataclass(frozen=True, slots=True)
class TokenSpeculation:
    """Token-level speculation in the target's engine; see the view `token_speculation_setting`."""

    proposer: str
    model: str | None
    """Name of the weights that propose tokens; None: the target's own layers, or none."""
    num_tokens: int
    """Tokens proposed at a time."""
    draft_sampling: str | None
    """`greedy` or `probabilistic`; None where no model proposes."""
    acceptance_rate: float | None
    tokens_per_pass: float | None


@dataclass(frozen=True, slots=True)
class CodeShare:
    """One code that worked on a run; see the view `run_code`."""

    code_hash: str
    git_commits: str | None
    num_samples: int
    """Finished samples that it completed."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of one run. Shares and rates are fractions and times are seconds; None where there is no data."""

    run_id: str
    method: str
    params: Record
    dataset: str
    draft: str | None
    target: str | None
    reward: str | None
    """The model that rates or compares steps."""
    temperature: float
    engine_kind: str
    """vllm, transformers, scripted, or served."""
    concurrency: int
    take_turns: bool
    """Whether draft and target took turns, so that they never worked at the same time."""
    n: int
    """Number of problems that are run."""
    k: int
    """Samples per problem."""
    num_planned: int
    """Planned samples of all problems."""
    missing_share: float
    """Mean over problems of the share of their planned samples that are not finished or not graded."""
    dataset_size: int
    limited: bool
    is_greedy: bool
    """Whether no model was sampled, so that the samples of a problem repeat the first."""
    pass_at_1: float
    """Missing samples count as not correct, so that this is a lower bound while there are any."""
    num_not_run: int
    num_ungraded: int
    """Finished samples without a grade."""
    grader_version: str | None
    """The version whose grades count; None where the run is not graded."""
    num_grader_versions: int
    """Number of versions that graded the run; only one of them counts."""
    verdicts: Mapping[str, int]
    """Samples by verdict, all of grading.VERDICTS; they sum to `num_planned`."""
    grader_exceptions: Mapping[str, int]
    """Samples that are `unparsable` because of an exception in the grader's own code, by its name."""
    num_verdicts: int
    num_decisions: int
    """Steps that something decided about, a verdict or the method's own means."""
    num_refused: int
    """Decisions that rejected all candidates."""
    decision_kinds: Sequence[str]
    """By what it was decided: choice or score (a verdict), or a method's own word."""
    num_repeated: int
    """Rejections after which the target wrote exactly a text that it had rejected; see the view `refusals`."""
    tokens: Mapping[str, ModelTokens]
    """Token counts of each model (draft, target)."""
    num_timed: int
    """Samples finished in one attempt, without an error, and with a request to a model."""
    median_latency_seconds: float | None
    latency_shares: Mapping[str, float]
    load_per_core: float | None
    """Load of the busiest machine that worked on the run, at the start or end of an attempt, for each of its cores."""
    regime: str
    """latency (concurrency 1) or throughput."""
    tokens_per_call_second: Mapping[str, float]
    """Rate of each model; empty outside the regime latency."""
    emitted_tokens_per_second: float | None
    """Rate of one worker over wall time."""
    mean_samples_in_flight: float | None
    """On one worker, over wall time. Fewer than `concurrency` where the KV cache was the limit."""
    skipped: tuple[SkippedFile, ...] = ()
    speed_ups: tuple[SpeedUp, ...] = field(default=())
    token_speculation: TokenSpeculation | None = None
    """None without token-level speculation."""
    codes: tuple[CodeShare, ...] = ()
    """More than one where the code changed while the run was under way."""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """The measures that the run has, by name; those of parts of it and of pairs of runs are left out."""
    at_one: LatencyAtOne | None = None
    """None without timing samples."""
    speed_ups_at_one: tuple[SpeedUpAtOne, ...] = ()
    num_unasked: int = 0
    """Samples that ended without a request, because the prompt left no room in the context; they are not timed."""

    def value(self, measure: str) -> float | None:
        """Return a measure of the run; None where it has no data."""
        found = self.numbers.get(measure)
        return found.interval.estimate if found else None

    @property
    def fallback_rate(self) -> float | None:
        """Share of the decisions that rejected all candidates."""
        return self.value("fallback_rate")

    @property
    def result(self) -> Interval | None:
        """pass@1 over the samples that are there, as comparisons have it; None if none is."""
        found = self.numbers.get("graded_pass_at_1")
        return found.interval if found else None

    @property
    def num_result_samples(self) -> int:
        """Number of these samples."""
        found = self.numbers.get("graded_pass_at_1")
        return found.num_samples or 0 if found else 0

    @property
    def is_unfinished(self) -> bool:
        """True if a planned sample is not finished or not graded."""
        return self.num_not_run + self.num_ungraded > 0

    @property
    def highest_pass_at_1(self) -> float:
        """pass@1 if all missing samples turned out correct."""
        return self.pass_at_1 + self.missing_share


class UnknownRun(LookupError):
    """The warehouse holds no run of this name."""


def summary(database: Path, run_ids: Sequence[str]) -> list[RunSummary]:
    """Return the summaries of runs, in the order of `run_ids`. Raises UnknownRun and WarehouseError."""
    with reader(database) as connection:
        return summaries(connection, run_ids)


def summaries(connection: Connection, run_ids: Sequence[str]) -> list[RunSummary]:
    """Return the summaries of runs from an open connection, in the order of `run_ids`. Raises UnknownRun."""
    return [_summary(connection, run_id) for run_id in run_ids]


def _summary(connection: Connection, run_id: str) -> RunSummary:
    def query(sql: str) -> list[dict[str, Any]]:
        return rows(connection, sql, {"run_id": run_id})

    run_rows = query(_RUN)
    if not run_rows:
        raise UnknownRun(f"the warehouse holds no run {run_id}")
    columns = run_rows[0]
    return RunSummary(
        **{**columns, "params": json.loads(columns["params"])},
        numbers={row.pop("metric"): _number(row) for row in query(_NUMBERS)},
        verdicts=_pairs(query(_VERDICTS)),
        grader_exceptions=_pairs(query(_GRADER_EXCEPTIONS)),
        tokens={row.pop("model"): ModelTokens(**row) for row in query(_TOKENS)},
        latency_shares=_pairs(query(_SHARES)),
        tokens_per_call_second=_pairs(query(_SPEEDS)),
        skipped=tuple(SkippedFile(**row) for row in query(_SKIPPED)),
        speed_ups=tuple(SpeedUp(**row) for row in query(_SPEED_UPS)),
        at_one=next((LatencyAtOne(**row) for row in query(_AT_ONE)), None),
        speed_ups_at_one=tuple(SpeedUpAtOne(**row) for row in query(_SPEED_UPS_AT_ONE)),
        codes=tuple(CodeShare(**row) for row in query(_CODES)),
        token_speculation=next((TokenSpeculation(**row) for row in query(_TOKEN_SPECULATION)), None),
    )


def _number(row: dict[str, Any]) -> Number:
    beside = {name: row.pop(name) for name in ("n", "num_samples", "rerun_standard_error")}
    return Number(Interval(**row), **beside)


def _pairs(two_column_rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return rows of two columns as a dictionary from the first to the second."""
    return dict(tuple(row.values()) for row in two_column_rows)
