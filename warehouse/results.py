"""The result of a run for programs: the numbers of its summary with their intervals, as `results.json` holds them.

The keys are those of the other commands' JSON: a number NAME has its interval in NAME_low_95 and NAME_high_95, its
standard error in NAME_standard_error and the method in NAME_interval.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from harness.engine import Role
from warehouse.database import Connection, reader, rows
from warehouse.measures import MEASURES
from warehouse.model_columns import column_of, model_in
from warehouse.render import warnings
from warehouse.summary import CodeShare, ModelTokens, RunSummary, SpeedUp, summaries

SCHEMA_VERSION = 1
"""Version of the keys: a new key does not change it, a key that is gone or means something else does."""
_SETTINGS = "SELECT tag, seed, top_p, token_budget, engine_kind FROM run WHERE run_id = $run_id"
_SIDES = ("num_runs", "num_runs_of_baseline", "num_cards", "num_cards_of_baseline")
_SHOWN = [measure.name for measure in MEASURES.values() if "results" in measure.shown]


class RunResults(BaseModel):
    """The result of one run. Rates are fractions and times seconds; None where there is no data, or no interval."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    schema_version: int
    """Version of these keys, 1: a later version may add keys without changing it."""
    run_id: str
    """The run's id, which is the name of its folder."""
    method: str
    """The method's name, or the file or entry point that it is from."""
    params: dict[str, Any]
    """The method's hyper-parameters by name."""
    dataset: str
    """The dataset's name."""
    dataset_size: int
    """Problems that the dataset has."""
    limited: bool
    """Whether the run leaves out problems of the dataset, so that it is no benchmark result."""
    draft: str | None
    """The draft model's name."""
    target: str | None
    """The target model's name."""
    reward: str | None
    """The name of the model that rates steps."""
    models: dict[str, dict[str, Any]]
    """Each model by its role, nested as in spec.json: its files, and its settings with the width that it had."""
    tag: str | None
    """What sets the run apart from others of the same settings; of a night its date."""
    seed: int
    """Seed of the sampling."""
    temperature: float
    """Sampling temperature."""
    top_p: float
    """Sampling top-p."""
    token_budget: int
    """Most tokens of a chain."""
    engine_kind: str
    """vllm, transformers or scripted."""
    concurrency: int
    """Samples in flight per worker."""
    state: str
    """finished, or under way where a planned sample is not finished or not graded."""
    n: int
    """Problems that are run."""
    k: int
    """Samples per problem."""
    planned: int
    """Samples that are planned: n × k."""
    finished: int
    """Samples that have ended, those that ended in an error included."""
    failed: int
    """Samples that ended in an error."""
    num_not_run: int
    """Planned samples that are not finished."""
    num_ungraded: int
    """Finished samples without a grade."""
    verdicts: dict[str, int]
    """Samples by verdict; they sum to `planned`."""
    pass_at_1: float
    """Mean over problems of the mean over samples; missing samples count as not correct."""
    pass_at_1_low_95: float | None
    """Lower end of its 95 % interval; None while samples are missing."""
    pass_at_1_high_95: float | None
    """Upper end of its 95 % interval."""
    pass_at_1_standard_error: float | None
    """Its standard error over problems."""
    pass_at_1_interval: str | None
    """Method of its interval, or why there is none."""
    graded_pass_at_1: float | None
    """pass@1 over the samples that are finished and graded; equal to pass_at_1 once all are."""
    graded_pass_at_1_low_95: float | None
    """Lower end of its 95 % interval."""
    graded_pass_at_1_high_95: float | None
    """Upper end of its 95 % interval."""
    graded_pass_at_1_standard_error: float | None
    """Its standard error over problems."""
    graded_pass_at_1_interval: str | None
    """Method of its interval."""
    num_decisions: int
    """Steps that a verdict or the method's own means decided about."""
    num_refused: int
    """Decisions that rejected all candidates."""
    fallback_rate: float | None
    """num_refused / num_decisions."""
    fallback_rate_low_95: float | None
    """Lower end of its 95 % interval."""
    fallback_rate_high_95: float | None
    """Upper end of its 95 % interval."""
    fallback_rate_standard_error: float | None
    """Its standard error over problems."""
    fallback_rate_interval: str | None
    """Method of its interval."""
    num_timed: int
    """Samples that were finished in one attempt and without an error; times are over these."""
    median_latency_seconds: float | None
    """Median wall time of a sample."""
    latency_seconds: float | None
    """Wall time of a sample: mean over problems of the mean over their samples."""
    latency_seconds_low_95: float | None
    """Lower end of its 95 % interval."""
    latency_seconds_high_95: float | None
    """Upper end of its 95 % interval."""
    latency_seconds_standard_error: float | None
    """Its standard error over problems."""
    latency_seconds_interval: str | None
    """Method of its interval."""
    num_timed_at_one: int | None
    """Timing samples that the latency at one is from: they ran again, one at a time; None without any."""
    latency_at_one: float | None
    """Mean wall time of a sample with one sample in flight, estimated from timing samples, in seconds."""
    latency_at_one_low_95: float | None
    """Lower end of its 95 % interval."""
    latency_at_one_high_95: float | None
    """Upper end of its 95 % interval."""
    latency_at_one_standard_error: float | None
    """Standard error of its logarithm, over problems and timed samples."""
    latency_at_one_interval: str | None
    """Method of its interval."""
    regime: str
    """latency (one sample in flight) or load."""
    samples_per_second: float | None
    """Throughput of one worker while all its slots are full; None with fewer than 5 samples per slot."""
    emitted_tokens_per_second: float | None
    """Emitted tokens of one worker, likewise."""
    emitted_tokens_per_sample: float | None
    """Tokens in the accepted chain, of all models."""
    spent_tokens_per_sample: float | None
    """Output tokens of every call, of all models."""
    critical_path_tokens_per_sample: float | None
    """Tokens that a user waits for, of all models."""
    tokens: dict[str, ModelTokens]
    """The same of each model by its role, and its share of the emitted tokens."""
    speed_ups: list[dict[str, Any]]
    """Speed against each comparable run of the target alone that the database has; empty where it has none."""
    speed_ups_at_one: list[dict[str, Any]]
    """Ratio of mean latencies with one sample in flight over each comparable run that has timing samples too."""
    grader_version: str | None
    """The grader whose verdicts these are."""
    code_hash: str | None
    """Hash of the code that decides results; None where several codes worked on the run, or none did."""
    codes: list[CodeShare]
    """Every code that worked on the run, with its commits and the number of samples that it finished."""
    warnings: list[str]
    """Why the numbers are no benchmark result, in words; empty where nothing is to be said."""

    def to_json(self) -> bytes:
        """Return the content of `results.json`."""
        return f"{self.model_dump_json(indent=2)}\n".encode()


def results(database: Path, run_id: str) -> RunResults:
    """Return the result of a run. Raises UnknownRun and WarehouseError."""
    with reader(database) as connection:
        return of_run(connection, run_id)


def of_run(connection: Connection, run_id: str) -> RunResults:
    """Return the result of a run from an open connection. Raises UnknownRun."""
    [run] = summaries(connection, [run_id])
    return RunResults.model_validate({**_flat(run), **_settings(connection, run), **_estimates(run)})


def _flat(run: RunSummary) -> dict[str, Any]:
    """Return what the summary holds, under the keys of the result."""
    tokens = run.tokens.values()
    names = (
        "run_id", "method", "dataset", "dataset_size", "limited", "draft", "target", "reward", "temperature",
        "concurrency", "n", "k", "num_not_run", "num_ungraded", "num_decisions", "num_refused", "num_timed",
        "median_latency_seconds", "regime", "grader_version",
    )  # fmt: skip
    planned = run.num_planned
    return {name: getattr(run, name) for name in names} | {
        "schema_version": SCHEMA_VERSION,
        "samples_per_second": run.value("samples_per_second"),
        "emitted_tokens_per_second": run.value("emitted_tokens_per_second"),
        "params": dict(run.params),
        "state": "under way" if run.is_unfinished else "finished",
        "planned": planned,
        "finished": planned - run.num_not_run,
        "verdicts": dict(sorted(run.verdicts.items())),
        "emitted_tokens_per_sample": sum(t.emitted_per_sample for t in tokens) if tokens else None,
        "spent_tokens_per_sample": sum(t.spent_per_sample for t in tokens) if tokens else None,
        "critical_path_tokens_per_sample": sum(t.critical_path_per_sample for t in tokens) if tokens else None,
        "tokens": dict(run.tokens),
        "speed_ups": [_speed_up(ratio) for ratio in run.speed_ups],
        "num_timed_at_one": run.at_one.num_timed if run.at_one else None,
        "speed_ups_at_one": [asdict(ratio) for ratio in run.speed_ups_at_one],
        "code_hash": run.codes[0].code_hash if len(run.codes) == 1 else None,
        "codes": list(run.codes),
        "warnings": warnings(run),
    }


def _settings(connection: Connection, run: RunSummary) -> dict[str, object]:
    query: dict[str, object] = {"run_id": run.run_id}
    [failed] = rows(
        connection,
        "SELECT count(*) AS failed FROM sample WHERE run_id = $run_id AND stop_reason = 'error'",
        query,
    )
    [settings] = rows(connection, _SETTINGS, query)
    [row] = rows(connection, "SELECT * FROM run WHERE run_id = $run_id", query)
    models = {role: model_in(row, role) for role in get_args(Role) if row[column_of(role, "model")] is not None}
    return {**settings, **failed, "models": models}


def _estimates(run: RunSummary) -> dict[str, object]:
    """Return each measure with its interval."""
    shown: dict[str, object] = {}
    for name in _SHOWN:
        interval = run.numbers[name].interval if name in run.numbers else None
        shown |= {
            name: interval.estimate if interval else None,
            f"{name}_low_95": interval.low if interval else None,
            f"{name}_high_95": interval.high if interval else None,
            f"{name}_standard_error": interval.standard_error if interval else None,
            f"{name}_interval": interval.kind if interval else None,
        }
    return shown


def _speed_up(ratio: SpeedUp) -> dict[str, object]:
    return {
        "baseline_run_id": ratio.baseline_run_id,
        "n": ratio.n,
        "speed_up": ratio.speed_up,
        "speed_up_low_95": ratio.low_95,
        "speed_up_high_95": ratio.high_95,
        "rate_ratio": ratio.rate_ratio,
        "chain_length_ratio": ratio.chain_length_ratio,
        "ratio_of_means": ratio.ratio_of_means,
        "ratio_of_means_low_95": ratio.ratio_of_means_low_95,
        "ratio_of_means_high_95": ratio.ratio_of_means_high_95,
        "run_factor": ratio.run_factor,
        **{name: getattr(ratio, name) for name in _SIDES},
        "same_versions": ratio.same_versions,
    }
