"""Run summaries: metrics from the database, warnings, labels, and the printed table.

A launch prints the summary at the end of a run; `results.json` in the run folder contains the same object. Metrics are
rows of the table `estimate`, with names from warehouse/measures.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict
from rich.console import Console

from grading.records import FAILED
from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed, number, percent, sides, span
from harness.cli.screen import Column, Line, Screen, Table, terminal
from harness.engine import Role
from harness.engines import registry
from harness.engines.speculation import greedy_drafts_notice
from harness.trace import DECIDING_KINDS
from jobs.run.spec import RunSpec
from warehouse.database import Connection, Record, Row, reader, rows
from warehouse.files import WarehouseError
from warehouse.loading.convert import SkippedFile
from warehouse.measures import MEASURES, SAMPLES_PER_SLOT
from warehouse.sql.model_columns import column_of, model_in
from warehouse.statistics.intervals import Interval

SCHEMA_VERSION = 2
"""Schema version of `results.json`. It increases if a key is removed or changes its meaning, not for new keys."""
_BUSY = 1.5
"""Minimum load per core for the BUSY MACHINE warning."""
_MANY_TRUNCATED = 0.5
"""Share of truncated samples above which a run gets the TRUNCATED warning."""
_NEARLY_FULL = 0.9
"""The median number of samples in flight is printed if it is at most this share of the concurrency."""
_RUN = """
SELECT run.run_id, run.method, run.params, run.dataset, run.dataset_size, run.limited, run.draft_name AS draft,
    run.target_name || coalesce(' with ' || run.selection_name, '') AS target, run.reward_name AS reward,
    run.tag, run.seed, run.temperature, run.top_p, run.token_budget, run.is_greedy, run.engine_kind, run.concurrency,
    run.engine_take_turns AS take_turns, score.n, score.k, score.num_samples AS planned,
    score.num_samples - score.num_not_run AS finished,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason = 'error') AS failed,
    score.num_not_run, score.num_ungraded,
    (SELECT avg((num_not_run + num_ungraded) / num_samples) FROM problem_score WHERE run_id = run.run_id)
        AS missing_share,
    score.grader_version, score.num_grader_versions,
    coalesce(fallback.num_decisions, 0) AS num_decisions, coalesce(fallback.num_refused, 0) AS num_refused,
    coalesce((SELECT list(DISTINCT kind ORDER BY kind) FROM refusals WHERE run_id = run.run_id), []) AS decision_kinds,
    coalesce((SELECT sum(num_repeated) FROM refusals WHERE run_id = run.run_id), 0)::BIGINT AS num_repeated,
    coalesce(latency.num_samples, 0) AS num_timed, latency.median_seconds AS median_latency_seconds,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason <> 'error'
        AND sample_id NOT IN (SELECT sample_id FROM sample_work WHERE sample_work.run_id = run.run_id)) AS num_unasked,
    latency_at_one.num_timed AS num_timed_at_one,
    (SELECT max(greatest(load_at_start, load_at_end) / try_cast(hardware ->> '$.cores' AS DOUBLE))
        FROM attempt WHERE attempt.run_id = run.run_id) AS load_per_core,
    run_conditions.devices, run_conditions.num_cards, run_conditions.regime, run_throughput.median_samples_in_flight
FROM run
JOIN pass_at_1 AS score USING (run_id)
JOIN run_conditions USING (run_id)
LEFT JOIN fallback_rate AS fallback USING (run_id)
LEFT JOIN latency USING (run_id)
LEFT JOIN latency_at_one USING (run_id)
LEFT JOIN run_throughput USING (run_id)
WHERE run_id = $run_id
"""
_NUMBERS = """
SELECT metric, role, baseline_run_id, estimate AS value, low_95, high_95, standard_error, interval_kind AS interval, n,
    num_samples, rerun_standard_error, run_factor, unit
FROM counted_estimate
WHERE run_id = $run_id AND group_kind IS NULL AND estimate IS NOT NULL AND metric NOT IN ('pass_at_k', 'maj_at_k')
ORDER BY ALL
"""
_BASELINES = """
SELECT baseline_run_id, same_versions, base.devices, base.num_cards, len(repeats) AS num_runs,
    len(repeats_of_baseline) AS num_runs_of_baseline, timed.num_timed AS num_timed_at_one
FROM comparable_baseline AS pair LEFT JOIN timed_pair USING (run_id, baseline_run_id)
JOIN run_conditions AS base ON base.run_id = baseline_run_id
LEFT JOIN latency_at_one AS timed ON timed.run_id = baseline_run_id
WHERE pair.run_id = $run_id
"""
_VERDICTS = "SELECT verdict, num_samples FROM verdict_counts WHERE run_id = $run_id ORDER BY verdict"
_GRADER_EXCEPTIONS = f"""
SELECT regexp_extract(detail, '^{FAILED} (\\w+)', 1) AS exception, count(*) AS number FROM sample_grade
WHERE run_id = $run_id AND starts_with(detail, '{FAILED}') GROUP BY ALL ORDER BY number DESC, exception
"""
_SHARES = "SELECT part, share FROM latency_split WHERE run_id = $run_id AND share IS NOT NULL ORDER BY share DESC"
_SPEEDS = """
SELECT model, tokens_per_call_second FROM call_speed WHERE run_id = $run_id AND tokens_per_call_second IS NOT NULL
ORDER BY model
"""
_TOKEN_SPECULATION = """
SELECT proposer, model, num_tokens, draft_sampling, acceptance_rate, tokens_per_pass
FROM token_speculation_setting WHERE run_id = $run_id
"""
_CODES = """
SELECT code_hash, git_commits, num_samples FROM run_code WHERE run_id = $run_id ORDER BY first_used_at, code_hash
"""
_SKIPPED = "SELECT name, error AS reason FROM loaded_file WHERE run_id = $run_id AND error IS NOT NULL ORDER BY name"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Number(_Part):
    """A metric with its 95 % interval over problems."""

    value: float
    """Estimate."""
    low_95: float | None
    """Lower end of the 95 % interval; None: no interval."""
    high_95: float | None
    """Upper end of the 95 % interval."""
    standard_error: float | None
    """Standard error over problems; for a ratio of times, of its logarithm."""
    interval: str
    """Method of the interval, or the reason for no interval."""
    n: int
    """Number of problems."""
    num_samples: int | None
    """Number of samples; None if the metric does not count samples."""
    rerun_standard_error: float | None
    """Standard error over reruns of the same problems; None if unknown."""
    run_factor: float | None
    """Run-to-run standard deviation of log times, included in the interval of a speed-up; None: too few repeats, so the
    interval holds within these runs only."""
    unit: str
    """Unit of the value and of the interval."""

    @property
    def as_interval(self) -> Interval:
        """The metric as an `Interval`."""
        return Interval(self.value, self.low_95, self.high_95, self.standard_error, self.interval)


class Against(_Part):
    """Comparison of a run with its baseline (a run of the target alone)."""

    baseline_run_id: str
    """Run id of the baseline."""
    same_versions: bool | None
    """Whether both used the same package versions; None if times are not compared."""
    devices: str | None
    """Devices per worker of the baseline, e.g. `2 × NVIDIA H100`."""
    num_cards: int | None
    """Number of GPUs per worker of the baseline; None if zero, unknown, or different between workers."""
    num_runs: int | None
    """Number of finished repeats of the run, including itself; their times are averaged."""
    num_runs_of_baseline: int | None
    """Number of finished repeats of the baseline."""
    num_timed_at_one: int | None
    """Number of timing samples of the baseline; None if there are none."""
    measures: Mapping[str, Number]
    """Paired metrics by name: speed_up (geometric mean over problems), ratio_of_means (as in papers), speed_up_at_one
    (one sample in flight), …"""

    @property
    def runs(self) -> tuple[int, int]:
        """Numbers of repeats of the run and the baseline."""
        return self.num_runs or 1, self.num_runs_of_baseline or 1


class TokenSpeculation(_Part):
    """Token-level speculation in the target's engine; see the view `token_speculation_setting`."""

    proposer: str
    """Proposer, as named by `--spec-decode` (docs/engines.md)."""
    model: str | None
    """Name of the proposing weights; None: the target's own layers, or no weights."""
    num_tokens: int
    """Maximum number of tokens proposed at a time."""
    draft_sampling: str | None
    """`greedy` or `probabilistic`; None if no model proposes."""
    acceptance_rate: float | None
    """Share of proposed tokens that are accepted."""
    tokens_per_pass: float | None
    """Mean number of tokens per forward pass of the target."""


class CodeShare(_Part):
    """A code version used for a run; see the view `run_code`."""

    code_hash: str | None
    """Hash of the code that determines results; None if not recorded."""
    git_commits: str | None
    """Git commits with this code."""
    num_samples: int
    """Samples finished by this code version."""


class RunSummary(_Part):
    """The result of one run. Rates are fractions, times are in seconds; None: no data."""

    schema_version: int = SCHEMA_VERSION
    """Schema version, 2; keys may be added without a new version."""
    run_id: str
    """Run id, the name of the run folder."""
    method: str
    """Method name, or the file or module that defines it."""
    params: Mapping[str, Any]
    """Hyper-parameters of the method by name."""
    dataset: str
    """Dataset name."""
    dataset_size: int
    """Number of problems in the dataset."""
    limited: bool
    """Whether this is a partial run: problems are omitted, so it is not comparable with published results."""
    draft: str | None
    """Name of the draft model."""
    target: str | None
    """Name of the target model."""
    reward: str | None
    """Name of the reward model, which rates or compares steps."""
    models: Mapping[str, Mapping[str, Any]]
    """Models by role, nested as in spec.json: files and settings, including the tensor-parallel size."""
    tag: str | None
    """Tag that distinguishes runs with the same settings; the date for nightly runs."""
    seed: int
    """Sampling seed."""
    temperature: float
    """Sampling temperature."""
    top_p: float
    """Sampling top-p."""
    token_budget: int
    """Maximum number of tokens per chain."""
    is_greedy: bool
    """Whether decoding was greedy, so all samples of a problem are identical."""
    engine_kind: str
    """Kind of engine: vllm, transformers, scripted, or served."""
    concurrency: int
    """Number of samples in flight per worker."""
    take_turns: bool
    """Whether draft and target took turns and never ran at the same time."""
    token_speculation: TokenSpeculation | None
    """Token-level speculation in the target's engine; None: disabled."""
    state: str
    """`finished`, or `under way` if a planned sample is not finished or not graded."""
    n: int
    """Number of problems in the run."""
    k: int
    """Samples per problem."""
    planned: int
    """Number of planned samples over all problems."""
    finished: int
    """Number of finished samples, including samples with an error."""
    failed: int
    """Number of samples with an error."""
    num_not_run: int
    """Number of planned samples that are not finished."""
    num_ungraded: int
    """Number of finished samples without a grade."""
    missing_share: float
    """Share of planned samples not finished or not graded, averaged over problems."""
    verdicts: Mapping[str, int]
    """Number of samples per verdict (all of grading.VERDICTS); the sum is `planned`."""
    grader_exceptions: Mapping[str, int]
    """Number of samples graded `unparsable` due to an exception in the grader, by exception name."""
    grader_version: str | None
    """Version of the grader of these verdicts; None if the run is not graded."""
    num_grader_versions: int
    """Number of grader versions with grades for this run; only one is used."""
    num_decisions: int
    """Number of decisions about steps: verdicts, or method-specific decisions."""
    num_refused: int
    """Number of decisions that rejected every candidate."""
    decision_kinds: Sequence[str]
    """Kinds of decisions: `choice` or `score` (verdicts), or a kind defined by the method."""
    num_repeated: int
    """Number of rejections after which the target wrote exactly a rejected text; see the view `refusals`."""
    num_timed: int
    """Number of samples used for times: finished in one attempt, without an error, with at least one model request."""
    num_unasked: int
    """Number of samples without a model request because the prompt fills the context; such samples are not timed."""
    num_timed_at_one: int | None
    """Number of timing samples (rerun one at a time) behind latency_at_one; None if there are none."""
    median_latency_seconds: float | None
    """Median wall time of a sample."""
    latency_shares: Mapping[str, float]
    """Shares of the samples' time by activity."""
    devices: str | None
    """Devices per worker, e.g. `2 × NVIDIA H100`; None if no sample is finished."""
    num_cards: int | None
    """Number of GPUs per worker; None if zero, unknown, or different between workers."""
    regime: str
    """`latency` (one sample in flight) or `load`."""
    median_samples_in_flight: int | None
    """Median number of samples in flight per worker; below `concurrency` if the KV cache is the limit."""
    tokens_per_call_second: Mapping[str, float]
    """Tokens per second of each model during its calls; empty under load."""
    load_per_core: float | None
    """Highest load per core of any machine used, at the start or end of an attempt."""
    measures: Mapping[str, Number]
    """Metrics by name (warehouse/measures.py); metrics without data are omitted."""
    by_role: Mapping[str, Mapping[str, Number]]
    """Metrics per model, by role."""
    against: Sequence[Against]
    """Comparisons with each comparable run of the target alone in the database."""
    code_hash: str | None
    """Hash of the code that determines results; None if there is not exactly one code version."""
    codes: Sequence[CodeShare]
    """All code versions used for the run; more than one if the code changed during the run."""
    skipped: Sequence[SkippedFile]
    """Unreadable files of the run folder, which were skipped."""
    warnings: Sequence[str] = ()
    """Warnings about the validity of the results, for example for a partial run."""

    def to_json(self) -> bytes:
        """Return the content of `results.json`."""
        return f"{self.model_dump_json(indent=2)}\n".encode()

    def value(self, measure: str) -> float | None:
        """Return a metric of the run; None without data."""
        found = self.measures.get(measure)
        return found.value if found else None

    def against_with(self, measure: str) -> list[tuple[Against, Number]]:
        """Return the comparisons that have this paired metric, with its value."""
        return [(pair, pair.measures[measure]) for pair in self.against if measure in pair.measures]

    @property
    def pass_at_1(self) -> float:
        """pass@1 with missing samples counted as incorrect; a lower bound if any are missing."""
        return self.measures["pass_at_1"].value

    @property
    def result(self) -> Number | None:
        """pass@1 over the available samples, as in comparisons; None if there are none."""
        return self.measures.get("graded_pass_at_1")

    @property
    def num_result_samples(self) -> int:
        """Number of samples in `result`."""
        return (self.result and self.result.num_samples) or 0

    @property
    def is_unfinished(self) -> bool:
        """True if a planned sample is not finished or not graded."""
        return self.state != "finished"

    @property
    def highest_pass_at_1(self) -> float:
        """pass@1 if all missing samples are correct."""
        return self.pass_at_1 + self.missing_share


class UnknownRun(WarehouseError):
    """The database does not contain the run."""


def summary(database: Path, run_ids: Sequence[str]) -> list[RunSummary]:
    """Return the summaries of runs, in the order of `run_ids`. Raises UnknownRun and WarehouseError."""
    with reader(database) as connection:
        return summaries(connection, run_ids)


def summaries(connection: Connection, run_ids: Sequence[str]) -> list[RunSummary]:
    """Return the summaries of runs from an open connection, in the order of `run_ids`. Raises UnknownRun."""
    return [_summary(connection, run_id) for run_id in run_ids]


def _summary(connection: Connection, run_id: str) -> RunSummary:
    def query(sql: str) -> list[Row]:
        return rows(connection, sql, {"run_id": run_id})

    found = query(_RUN)
    if not found:
        raise UnknownRun(f"the database contains no run {run_id}")
    columns, [row] = found[0], query("SELECT * FROM run WHERE run_id = $run_id")
    numbers: dict[tuple[str | None, str | None], dict[str, Number]] = {}
    for one in query(_NUMBERS):
        name, role, base = (one.pop(key) for key in ("metric", "role", "baseline_run_id"))
        numbers.setdefault((role, base), {})[name] = Number(**one)
    pairs = {pair["baseline_run_id"]: pair for pair in query(_BASELINES)}
    unpaired = dict.fromkeys(
        ("same_versions", "devices", "num_cards", "num_runs", "num_runs_of_baseline", "num_timed_at_one")
    )
    codes = [CodeShare(**code) for code in query(_CODES)]
    run = RunSummary(
        **{**columns, "params": json.loads(columns["params"])},
        state="under way" if columns["num_not_run"] + columns["num_ungraded"] else "finished",
        models={role: model_in(row, role) for role in get_args(Role) if row[column_of(role, "model")] is not None},
        token_speculation=next((TokenSpeculation(**one) for one in query(_TOKEN_SPECULATION)), None),
        verdicts=_pairs(query(_VERDICTS)),
        grader_exceptions=_pairs(query(_GRADER_EXCEPTIONS)),
        latency_shares=_pairs(query(_SHARES)),
        tokens_per_call_second=_pairs(query(_SPEEDS)),
        measures=numbers.get((None, None), {}),
        by_role={role: found for (role, _), found in numbers.items() if role},
        against=[
            Against(**{"baseline_run_id": base, **unpaired, **pairs.get(base, {})}, measures=found)
            for (_, base), found in numbers.items()
            if base
        ],
        code_hash=codes[0].code_hash if len(codes) == 1 else None,
        codes=codes,
        skipped=[SkippedFile(**one) for one in query(_SKIPPED)],
    )
    return run.model_copy(update={"warnings": [*setting_warnings(run), *_work_warnings(run)]})


def _pairs(two_column_rows: Sequence[Record]) -> Row:
    return dict(tuple(row.values()) for row in two_column_rows)


def no_result(engine_kind: str) -> str:
    """Return a warning if engines of this kind do not run a model; otherwise an empty string."""
    is_none = engine_kind in registry.uncounted()
    return f"{engine_kind.upper()} ENGINES: no model ran; the metrics are meaningless." if is_none else ""


def setting_warnings(run: RunSummary) -> Iterator[str]:
    """Yield warnings that follow from the settings of a run."""
    if warning := no_result(run.engine_kind):
        yield warning
    if run.limited:
        of_all = f"{run.n} of {run.dataset_size} problems of {run.dataset}"
        yield f"PARTIAL RUN: {of_all}; not comparable with published results."
    if run.is_greedy and run.k > 1:
        yield (
            f"GREEDY: decoding was greedy, so all {run.k} samples of a problem are identical and count as one. "
            "pass@k is not available."
        )
    if len(run.codes) > 1:
        names = [f"{c.code_hash}{f' (commit {c.git_commits})' if c.git_commits else ''}" for c in run.codes]
        shares = [f"{name}: {counted(c.num_samples, 'sample')}" for name, c in zip(names, run.codes, strict=True)]
        yield f"MIXED CODE: the code changed during the run. {'; '.join(shares)}."


def _work_warnings(run: RunSummary) -> Iterator[str]:
    """Yield warnings about missing data and about the conditions of the run."""
    if run.num_not_run:
        shorter = "; long chains finish last, so most available samples are short" if run.result else ""
        yield f"INCOMPLETE RUN: {run.num_not_run} of {run.planned} samples are not finished{shorter}."
    if run.num_ungraded:
        by = f" from the newest grader version ({run.grader_version})" if run.grader_version else ""
        yield f"NOT GRADED: {run.num_ungraded} of {run.planned} samples are finished but have no grade{by}."
    if failures := run.grader_exceptions:
        names = ", ".join(f"{name} {number}" for name, number in failures.items())
        failed = counted(sum(failures.values()), "answer")
        yield f"GRADER EXCEPTIONS: the grader failed on {failed}, counted as unparsable: {names}."
    truncated, graded = run.verdicts.get("truncated", 0), sum(run.verdicts.values())
    if truncated > _MANY_TRUNCATED * graded:
        yield (
            f"TRUNCATED: {truncated} of {graded} samples hit the token budget or the context limit without an answer; "
            "read one of them: python -m warehouse.trace."
        )
    yield from (f"SKIPPED FILE: {file.name} cannot be read: {file.reason}" for file in run.skipped)
    # Without other work, CPU generation causes a load of about 1 per core.
    is_counted = run.engine_kind not in registry.uncounted()
    if is_counted and run.load_per_core is not None and run.load_per_core >= _BUSY:
        yield (
            f"BUSY MACHINE: load of {run.load_per_core:.1f} per core at the start or end of the run; times are longer "
            "than on an idle machine."
        )
    sampling = run.token_speculation.draft_sampling if run.token_speculation else None
    if notice := greedy_drafts_notice(sampling, run.temperature):
        yield f"{notice}."


def completion(run: str, num_not_run: int) -> str:
    """Return the command that runs a run's missing samples, or grades them if all are finished."""
    return f"python -m jobs {'resume' if num_not_run else 'finalize'} {quote(run)}"


Run = TypeVar("Run", RunSummary, RunSpec)
_ASPECTS: tuple[Callable[[RunSummary], str], ...] = (
    lambda run: run.dataset,
    lambda run: " → ".join(model for model in (run.draft, run.target) if model),
    lambda run: f"with {run.reward}" if run.reward else "",
    lambda run: f"with {run.token_speculation.proposer}" if run.token_speculation else "",
    lambda run: f"(temperature {run.temperature:g})",
    lambda run: f"({run.concurrency} in flight)",
    lambda run: "(taking turns)" if run.take_turns else "",
    lambda run: run.run_id.rpartition("-")[2],
    lambda run: run.run_id,
)


def labels(runs: Sequence[RunSummary]) -> list[str]:
    """Return a unique label per run: the method, and settings as needed to distinguish the runs.

    Parameters are added first, then dataset, models and other settings, and finally the run id.
    """
    distinct = [method_of(run) for run in runs]
    for aspect in (differing_parameters(runs, distinct), *_ASPECTS):
        distinct = told_apart(runs, distinct, aspect)
    return distinct


def told_apart(
    runs: Sequence[Run], given: Sequence[str], aspect: Callable[[Run], str], within: Callable[[Run], str] = lambda _: ""
) -> list[str]:
    """Append the aspect to labels shared by runs that differ in it. within: group in which labels must be unique."""
    values: dict[tuple[str, str], set[str]] = {}
    for run, label in zip(runs, given, strict=True):
        values.setdefault((label, within(run)), set()).add(aspect(run))
    ambiguous = {label for (label, _), found in values.items() if len(found) > 1}
    return [
        f"{label} {aspect(run)}".rstrip() if label in ambiguous else label
        for run, label in zip(runs, given, strict=True)
    ]


def method_of(run: RunSummary | RunSpec) -> str:
    """Return the method of a run; for vanilla, with its model."""
    return f"vanilla {run.params['model']}" if run.method == "vanilla" and "model" in run.params else run.method


def differing_parameters(runs: Sequence[Run], given: Sequence[str]) -> Callable[[Run], str]:
    """Return a function that formats a run's method and parameters where they differ among runs with the same label."""
    values: dict[tuple[str, str], set[str]] = {}
    of_run = {id(run): label for run, label in zip(runs, given, strict=True)}
    for run, label in zip(runs, given, strict=True):
        for name, value in {**run.params, "": run.method}.items():
            values.setdefault((label, name), set()).add(json.dumps(value, sort_keys=True))

    def differing(run: Run) -> str:
        label = of_run[id(run)]
        changed = [f"{name} {plain(v)}" for name, v in run.params.items() if len(values[label, name]) > 1]
        method = f"{run.method} " if len(values[label, ""]) > 1 else ""
        return method + ", ".join(changed).replace("_", " ")

    return differing


def plain(value: str | float | None) -> str:
    """Format a parameter value; numbers without trailing zeros."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _models_of(spec: RunSpec) -> str:
    named = " → ".join(model.name for model in (spec.draft, spec.target) if model)
    return f"{named} with {spec.reward.name}" if spec.reward else named


_MORE: tuple[Callable[[RunSpec], str], ...] = (
    lambda spec: f"with {spec.engine.spec_decode}" if spec.engine.spec_decode else "",
    lambda spec: f"with {spec.selection.name}" if spec.selection else "",
    lambda spec: f"(prompts {spec.prompt_hash[:8]})",
    lambda spec: f"(temperature {spec.temperature:g})",
    lambda spec: f"(top-p {spec.top_p:g})",
    lambda spec: f"(budget {spec.token_budget})",
    lambda spec: f"({spec.concurrency} in flight)",
    lambda spec: "(taking turns)" if spec.engine.take_turns else "",
    lambda spec: f"({spec.samples} samples)",
    lambda spec: f"({spec.num_problems} problems)",
    lambda spec: f"(tag {spec.tag})" if spec.tag else "",
    lambda spec: spec.digest,
)
"""Settings added to a row label only if two runs on one dataset would otherwise share a cell.

A row's settings, such as budgets, may differ between datasets.
"""


def row_labels(specs: Sequence[RunSpec], named: Sequence[str | None]) -> list[str]:
    """Return a row label per run, unique among the runs of one dataset.

    named: labels from the suite file; None: the method. Hyper-parameters, models and other settings are appended as
    needed to distinguish runs.
    """
    labels = [name or method_of(spec) for spec, name in zip(specs, named, strict=True)]
    for aspect in (differing_parameters(specs, labels), _models_of):
        labels = told_apart(specs, labels, aspect)
    for aspect in _MORE:
        labels = told_apart(specs, labels, aspect, within=lambda spec: spec.dataset)
    return labels


def render(summaries: Sequence[RunSummary], console: Console | None = None) -> None:
    """Print the warnings and the table of each run."""
    screen = Screen(console or terminal(), is_fitted=True)
    columns = [Column("", style="bold"), Column("", is_right=False, is_folded=True)]
    for run in summaries:
        screen.show([*(Line(line, "bold red") for line in run.warnings), Table(columns, lines(run), title=run.run_id)])


def render_warnings(summaries: Sequence[RunSummary], console: Console) -> None:
    """Print the warnings of each run."""
    Screen(console, is_fitted=True).show(Line(line, "bold red") for run in summaries for line in run.warnings)


def accuracy(found: Interval) -> str:
    """Return a share in percent ± standard error, or with its interval if the standard error is 0 or unknown."""
    estimate = fixed(found.estimate, 1, 100)
    if found.standard_error:
        return f"{estimate} ± {fixed(found.standard_error, 1, 100)}"
    return estimate if found.low is None else f"{estimate} ({span(found.low, found.high, 0, 100)})"


def in_one_line(run: RunSummary) -> str:
    """Return a one-line result for suites, e.g. `96.2 ± 2.8 %  1.68×  fallback 21.3 %`."""
    shown = "not graded" if run.result is None else f"{accuracy(run.result.as_interval)} %"
    parts, speed_ups = [shown.rjust(13)], run.against_with("speed_up")
    parts += [f"{found.value:.2f}×" for _, found in speed_ups if len(speed_ups) == 1]
    parts += [f"fallback {percent(run.value('fallback_rate'))}"] if run.num_decisions else []
    parts += [counted(errors, "error")] if (errors := run.verdicts.get("error", 0)) else []
    parts += [f"{missing} of {run.planned} missing"] if (missing := run.num_not_run + run.num_ungraded) else []
    return "  ".join(parts)


def lines(run: RunSummary) -> list[tuple[str, str]]:
    """Return the table as (label, value) pairs."""
    share = run.value("draft_share") if "draft" in run.by_role else None
    by_draft = "" if share is None else f" ({percent(share)} by the draft)"
    emitted, spent, critical = (number(run.value(f"{kind}_tokens")) for kind in ("emitted", "spent", "critical_path"))
    params = ", ".join(f"{name} {value}" for name, value in run.params.items())
    parts = ", ".join(f"{part} {percent(s)}" for part, s in run.latency_shares.items())
    rates = ", ".join(f"{model} {number(s)} during its calls" for model, s in run.tokens_per_call_second.items())
    return [
        ("method", f"{run.method}: {params}" if params else run.method),
        ("dataset", f"{run.dataset}: {counted(run.n, 'problem')} × {counted(run.k, 'sample')} = {run.planned}"),
        ("models", " → ".join(model for model in (run.draft, run.target) if model)),
        *([("reward model", run.reward)] if run.reward else []),
        *_accuracy(run),
        ("verdicts", _counts(run.verdicts)),
        ("grader", _grader(run)),
        ("fallback rate", fallback(run)),
        *([("rejected, then repeated", _repeated(run))] if run.num_refused else []),
        ("tokens per sample", f"emitted {emitted}{by_draft}, spent {spent}, critical path {critical}"),
        ("latency", _latency(run)),
        *_at_one(run),
        ("latency split", parts or NOTHING),
        *_further(run),
        ("throughput", _throughput(run)),
        *([("tokens per second", rates)] if rates else []),
        *([("token speculation", token_speculation(run.token_speculation))] if run.token_speculation else []),
        *_speed_ups(run),
    ]


def _further(run: RunSummary) -> Iterator[tuple[str, str]]:
    for name, measure in MEASURES.items():
        if "summary" in measure.shown and (found := run.measures.get(name)):
            factor, unit = (100, " %") if measure.is_percent else (1, f" {measure.unit}")
            interval = "" if found.low_95 is None else f" (95 % {span(found.low_95, found.high_95, 1, factor)})"
            yield measure.title, f"{number(factor * found.value)}{unit}{interval}"


def token_speculation(setting: TokenSpeculation) -> str:
    """Describe token-level speculation: proposer, number of tokens, and acceptance rate."""
    model = f" ({setting.model})" if setting.model else ""
    sampling = f", {setting.draft_sampling} drafts" if setting.draft_sampling else ""
    accepted = ""
    if setting.acceptance_rate is not None:
        accepted = f": {percent(setting.acceptance_rate)} of proposed tokens accepted"
        accepted += f", {setting.tokens_per_pass:.2f} tokens per pass" if setting.tokens_per_pass else ""
    return f"{setting.proposer}{model}, up to {setting.num_tokens} at a time{sampling}{accepted}"


def _accuracy(run: RunSummary) -> list[tuple[str, str]]:
    """Return the lines on pass@1: over the available samples, as in a comparison, and its range once complete."""
    result = run.result
    there = f", {run.num_result_samples} of {run.planned} samples" if run.is_unfinished else ""
    name = f"pass@1[avg-of-{run.k}{there}]"
    if result is None:
        return [(name, f"{NOTHING} (no graded samples)")]
    shown = f"{100 * result.value:.2f} %"
    if result.standard_error is None or result.low_95 is None or result.high_95 is None:
        shown += f" (no interval: {(result.interval or NOTHING).removeprefix('none: ')})"
    else:
        shown += (
            f" ± {100 * result.standard_error:.2f} standard error over problems, "
            f"95 % interval {100 * result.low_95:.1f} to {100 * result.high_95:.1f} % ({result.interval})"
        )
    if not run.is_unfinished:
        return [(name, shown)]
    ends = f"{100 * run.pass_at_1:.2f} to {100 * run.highest_pass_at_1:.2f} %"
    return [(name, shown), ("once complete", f"{ends}: all missing samples wrong to all correct")]


def fallback(run: RunSummary) -> str:
    """Return the fallback rate with the number and kinds of decisions."""
    if not run.num_decisions:
        return NOTHING
    shown = f"{percent(run.value('fallback_rate'))} of {run.num_decisions}"
    are_verdicts = set(run.decision_kinds) <= DECIDING_KINDS
    return f"{shown} verdicts" if are_verdicts else f"{shown} decisions ({', '.join(run.decision_kinds)})"


def _repeated(run: RunSummary) -> str:
    """Return how often the target repeated a rejected text; if it did so in more than half of the cases, add a warning
    about the judge.
    """
    shown = f"{run.num_repeated} of {run.num_refused} fallbacks repeat the text of a rejected candidate"
    return f"{shown}: CHECK THE JUDGE (SELECT * FROM refusals)" if 2 * run.num_repeated > run.num_refused else shown


def _counts(verdicts: Mapping[str, int]) -> str:
    """List the verdict counts and their sum; zeros only for correct and wrong."""
    shown = {v: n for v, n in verdicts.items() if n or v in {"correct", "wrong"}}
    ordered = sorted(shown, key=lambda v: (v != "correct", v != "wrong", v == "not_run", v))
    return ", ".join(f"{v} {shown[v]}" for v in ordered) + f"; sum {sum(verdicts.values())}"


def _grader(run: RunSummary) -> str:
    others = run.num_grader_versions - 1
    version = run.grader_version or NOTHING
    return f"{version} (newest; {counted(others, 'other version')} not used)" if others > 0 else version


def _latency(run: RunSummary) -> str:
    """Return mean and median latency, with the median number in flight if it is well below the concurrency."""
    unasked = f"; {counted(run.num_unasked, 'sample')} without a model request" if run.num_unasked else ""
    if not run.num_timed:
        return f"{NOTHING} (no sample finished in one attempt{unasked})"
    median, in_flight = run.median_samples_in_flight, str(run.concurrency)
    if median is not None and median <= _NEARLY_FULL * run.concurrency:
        in_flight = f"at most {run.concurrency} (median {median})"
    return (
        f"mean {number(run.value('latency_seconds'))} s, median {number(run.median_latency_seconds)} s per sample, "
        f"{in_flight} in flight, {run.num_timed} samples timed{unasked}"
    )


def _throughput(run: RunSummary) -> str:
    samples, tokens = run.value("samples_per_second"), run.value("emitted_tokens_per_second")
    if samples is None or tokens is None:
        return f"{NOTHING} (fewer than {SAMPLES_PER_SLOT} samples per slot)"
    return f"{number(60 * samples)} samples/min, {number(tokens)} emitted tokens/s per worker at full concurrency"


def _at_one(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the latency with one sample in flight, from timing samples."""
    if timed := run.measures.get("latency_at_one"):
        ends = timed.low_95, timed.high_95
        interval = f" (95 % {number(ends[0])} to {number(ends[1])})" if None not in ends else ""
        of = f"from {run.num_timed_at_one} of {timed.num_samples} samples"
        yield "one at a time", f"mean {number(timed.value)} s{interval} per sample, {of}"


def _speed_ups(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the speed-ups over runs of the target alone, including those with one sample in flight."""
    for pair, found in run.against_with("speed_up"):
        rate, length, means = (pair.measures[name] for name in ("rate_ratio", "chain_length_ratio", "ratio_of_means"))
        parts = f"rate {rate.value:.2f}, chain length {length.value:.2f}; ratio of mean latencies {means.value:.2f}"
        if means.low_95 and means.high_95:
            parts += f" ({means.low_95:.2f} to {means.high_95:.2f})"
        over = f"{_ratio(run, pair, found, pair.runs)} over {pair.baseline_run_id}, {found.n} problems"
        yield "speed-up", f"{over}: {parts}{_unlike(pair)}"
    for pair, found in run.against_with("speed_up_at_one"):
        timed = f"{run.num_timed_at_one} and {pair.num_timed_at_one} samples timed"
        ratio = f"{_ratio(run, pair, found)} over {pair.baseline_run_id}, ratio of mean latencies"
        yield "one at a time", f"{ratio}, {timed}{_unlike(pair)}"


def _ratio(run: RunSummary, pair: Against, found: Number, runs: tuple[int, int] = (1, 1)) -> str:
    """Format a speed-up with its interval and number of repeats; include the GPUs if they differ."""
    within = "" if found.run_factor else " within these runs"
    ends = f" (95 % {found.low_95:.2f} to {found.high_95:.2f}{within})" if found.low_95 and found.high_95 else ""
    told = sides((run.num_cards, pair.num_cards), runs)
    return f"{found.value:.2f}×{f' ({told})' if told else ''}{ends}"


def _unlike(pair: Against) -> str:
    return "" if pair.same_versions else "; DIFFERENT PACKAGE VERSIONS"
