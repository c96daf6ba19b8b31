"""The result of a run: its numbers from the database, what is to be said of them, its name, and how it is printed.

A launch prints it at the end of a run, and `results.json` in the run folder is the same object. Its numbers are the
rows of the table `estimate`, under the names of warehouse/measures.py.
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
"""Version of the keys of `results.json`: a new key does not change it, a key that is gone or means something else does.
"""
_BUSY = 1.5
"""Load for each core from which times are no longer those of the run's own work."""
_NEARLY_FULL = 0.9
"""Share of the concurrency from which the mean number of samples in flight is not printed beside it."""
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
LEFT JOIN (
    SELECT run_id, count(*) AS num_samples, median(latency_seconds) AS median_seconds FROM timed_sample GROUP BY run_id
) AS latency USING (run_id)
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
    """A measure with its 95 % interval over problems."""

    value: float
    """Its value."""
    low_95: float | None
    """Lower end of its interval; None: there is none."""
    high_95: float | None
    """Upper end of its interval."""
    standard_error: float | None
    """Its standard error over problems; of a ratio of times that of its logarithm."""
    interval: str
    """Method of the interval, or why there is none."""
    n: int
    """Problems that it is over."""
    num_samples: int | None
    """Samples that it is over; None: it does not count samples."""
    rerun_standard_error: float | None
    """Standard error over re-runs of the same problems; None: it has none."""
    run_factor: float | None
    """Standard deviation of a run's times in logarithms over the repeats, which the interval of a speed-up covers;
    None: too few repeats show it, and the interval holds within these runs only."""
    unit: str
    """Unit of the value."""

    @property
    def as_interval(self) -> Interval:
        """The same as functions of statistics return it."""
        return Interval(self.value, self.low_95, self.high_95, self.standard_error, self.interval)


class Against(_Part):
    """What a run is to a run of the target alone."""

    baseline_run_id: str
    """The run of the target alone."""
    same_versions: bool | None
    """Whether both had the same packages; None: only texts are compared."""
    devices: str | None
    """Devices of each worker of the baseline, as `2 × NVIDIA H100`."""
    num_cards: int | None
    """How many GPUs these are; None: none, unknown, or not the same of all workers."""
    num_runs: int | None
    """Finished repeats of the run, itself included, whose times are averaged."""
    num_runs_of_baseline: int | None
    """The same of the baseline."""
    num_timed_at_one: int | None
    """Timing samples of the baseline; None: it has none."""
    measures: Mapping[str, Number]
    """Measures of the two runs by name: speed_up, a geometric mean over problems; ratio_of_means, as papers publish it;
    speed_up_at_one, with one sample in flight; …"""

    @property
    def runs(self) -> tuple[int, int]:
        """Repeats of the run and of the baseline."""
        return self.num_runs or 1, self.num_runs_of_baseline or 1


class TokenSpeculation(_Part):
    """Token-level speculation in the target's engine; see the view `token_speculation_setting`."""

    proposer: str
    """Who proposes."""
    model: str | None
    """Name of the weights that propose tokens; None: the target's own layers, or none."""
    num_tokens: int
    """Tokens proposed at a time."""
    draft_sampling: str | None
    """`greedy` or `probabilistic`; None where no model proposes."""
    acceptance_rate: float | None
    """Share of the proposed tokens that are confirmed."""
    tokens_per_pass: float | None
    """Tokens that a pass of the target adds."""


class CodeShare(_Part):
    """One code that worked on a run; see the view `run_code`."""

    code_hash: str | None
    """Hash of the code that decides results; None where it was not recorded."""
    git_commits: str | None
    """Its commits."""
    num_samples: int
    """Finished samples that it completed."""


class RunSummary(_Part):
    """The result of one run. Rates are fractions and times seconds; None where there is no data."""

    schema_version: int = SCHEMA_VERSION
    """Version of these keys, 2: a later version may add keys without changing it."""
    run_id: str
    """The run's id, which is the name of its folder."""
    method: str
    """The method's name, or the file or module that it is from."""
    params: Mapping[str, Any]
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
    """The name of the model that rates or compares steps."""
    models: Mapping[str, Mapping[str, Any]]
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
    is_greedy: bool
    """Whether no model was sampled, so that the samples of a problem repeat the first."""
    engine_kind: str
    """vllm, transformers, scripted, or served."""
    concurrency: int
    """Samples in flight per worker."""
    take_turns: bool
    """Whether draft and target took turns, so that they never worked at the same time."""
    token_speculation: TokenSpeculation | None
    """Token-level speculation in the target's engine; None without it."""
    state: str
    """finished, or under way where a planned sample is not finished or not graded."""
    n: int
    """Problems that are run."""
    k: int
    """Samples per problem."""
    planned: int
    """Samples that are planned, of all problems."""
    finished: int
    """Samples that have ended, those that ended in an error included."""
    failed: int
    """Samples that ended in an error."""
    num_not_run: int
    """Planned samples that are not finished."""
    num_ungraded: int
    """Finished samples without a grade."""
    missing_share: float
    """Mean over problems of the share of their planned samples that are not finished or not graded."""
    verdicts: Mapping[str, int]
    """Samples by verdict, all of grading.VERDICTS; they sum to `planned`."""
    grader_exceptions: Mapping[str, int]
    """Samples that are `unparsable` because of an exception in the grader's own code, by its name."""
    grader_version: str | None
    """The grader whose verdicts these are; None where the run is not graded."""
    num_grader_versions: int
    """Number of versions that graded the run; only one of them counts."""
    num_decisions: int
    """Steps that something decided about, a verdict or the method's own means."""
    num_refused: int
    """Decisions that rejected all candidates."""
    decision_kinds: Sequence[str]
    """By what it was decided: choice or score (a verdict), or a method's own word."""
    num_repeated: int
    """Rejections after which the target wrote exactly a text that it had rejected; see the view `refusals`."""
    num_timed: int
    """Samples finished in one attempt, without an error, and with a request to a model; times are over these."""
    num_unasked: int
    """Samples that ended without a request, because the prompt left no room in the context; they are not timed."""
    num_timed_at_one: int | None
    """Timing samples that latency_at_one is from: they ran again, one at a time; None without any."""
    median_latency_seconds: float | None
    """Median wall time of a sample."""
    latency_shares: Mapping[str, float]
    """Shares of the samples' time, by what it went to."""
    devices: str | None
    """Devices of each worker, as `2 × NVIDIA H100`; None where no sample has ended."""
    num_cards: int | None
    """How many GPUs these are; None: none, unknown, or not the same of all workers."""
    regime: str
    """latency (one sample in flight) or load."""
    median_samples_in_flight: int | None
    """On one worker, as a sample sees it. Fewer than `concurrency` where the KV cache was the limit."""
    tokens_per_call_second: Mapping[str, float]
    """Rate of each model in its calls; empty outside the regime latency."""
    load_per_core: float | None
    """Load of the busiest machine that worked on the run, at the start or end of an attempt, for each of its cores."""
    measures: Mapping[str, Number]
    """Every measure of the run by its name (warehouse/measures.py); one without data is left out."""
    by_role: Mapping[str, Mapping[str, Number]]
    """The measures of each model, by its role."""
    against: Sequence[Against]
    """Measures against each comparable run of the target alone that the database has."""
    code_hash: str | None
    """Hash of the code that decides results; None where several codes worked on the run, or none did."""
    codes: Sequence[CodeShare]
    """Every code that worked on the run. More than one where it changed while the run was under way."""
    skipped: Sequence[SkippedFile]
    """Files of the run folder that cannot be read and were left out."""
    warnings: Sequence[str] = ()
    """Why the numbers are no benchmark result, or come from a weak baseline, in words; empty: nothing is to be said."""

    def to_json(self) -> bytes:
        """Return the content of `results.json`."""
        return f"{self.model_dump_json(indent=2)}\n".encode()

    def value(self, measure: str) -> float | None:
        """Return a measure of the run; None where it has no data."""
        found = self.measures.get(measure)
        return found.value if found else None

    def against_with(self, measure: str) -> list[tuple[Against, Number]]:
        """Return the baselines under this measure of two runs, with its number."""
        return [(pair, pair.measures[measure]) for pair in self.against if measure in pair.measures]

    @property
    def pass_at_1(self) -> float:
        """Missing samples count as not correct, so that this is a lower bound while there are any."""
        return self.measures["pass_at_1"].value

    @property
    def result(self) -> Number | None:
        """pass@1 over the samples that are there, as comparisons have it; None if none is."""
        return self.measures.get("graded_pass_at_1")

    @property
    def num_result_samples(self) -> int:
        """Number of these samples."""
        return (self.result and self.result.num_samples) or 0

    @property
    def is_unfinished(self) -> bool:
        """True if a planned sample is not finished or not graded."""
        return self.state != "finished"

    @property
    def highest_pass_at_1(self) -> float:
        """pass@1 if all missing samples turned out correct."""
        return self.pass_at_1 + self.missing_share


class UnknownRun(WarehouseError):
    """The warehouse holds no run of this name."""


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
        raise UnknownRun(f"the warehouse holds no run {run_id}")
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
    """Return rows of two columns as a dictionary from the first to the second."""
    return dict(tuple(row.values()) for row in two_column_rows)


def no_result(engine_kind: str) -> str:
    """Return why numbers of such engines are no result; empty where they are."""
    is_none = engine_kind in registry.uncounted()
    return f"{engine_kind.upper()} ENGINES: no model ran; the numbers mean nothing." if is_none else ""


def setting_warnings(run: RunSummary) -> Iterator[str]:
    """Yield why numbers of such runs are no benchmark result, however far the run is."""
    if warning := no_result(run.engine_kind):
        yield warning
    if run.limited:
        yield f"LIMITED RUN: {run.n} of the {run.dataset_size} problems of {run.dataset}; not a benchmark result."
    if run.is_greedy and run.k > 1:
        yield (
            f"GREEDY: no model was sampled, so that the {run.k} samples of a problem repeat the first and count as "
            "one: there is no pass@k."
        )
    if len(run.codes) > 1:
        names = [f"{c.code_hash}{f' (commit {c.git_commits})' if c.git_commits else ''}" for c in run.codes]
        shares = [f"{name}: {counted(c.num_samples, 'sample')}" for name, c in zip(names, run.codes, strict=True)]
        yield f"MIXED CODE: the code changed while the run was under way. {'; '.join(shares)}."


def _work_warnings(run: RunSummary) -> Iterator[str]:
    """Yield what is missing of a run, or lay in the way of its work."""
    if run.num_not_run:
        shorter = "; long chains finish last, so that what is there is mostly the shorter ones" if run.result else ""
        yield f"INCOMPLETE RUN: {run.num_not_run} of {run.planned} samples have not been run{shorter}."
    if run.num_ungraded:
        by = f" of the newest grader version ({run.grader_version})" if run.grader_version else ""
        yield f"NOT GRADED: {run.num_ungraded} of {run.planned} samples are finished but have no grade{by}."
    if failures := run.grader_exceptions:
        names = ", ".join(f"{name} {number}" for name, number in failures.items())
        ended = counted(sum(failures.values()), "answer")
        yield f"GRADER EXCEPTIONS: {ended} ended in an exception of the grader; counted as unparsable: {names}."
    yield from (f"LEFT OUT: {file.name} cannot be read: {file.reason}" for file in run.skipped)
    # A machine that works for a run alone has a load of about 1 for each core while it generates on them.
    is_counted = run.engine_kind not in registry.uncounted()
    if is_counted and run.load_per_core is not None and run.load_per_core >= _BUSY:
        yield (
            f"BUSY MACHINE: a load of {run.load_per_core:.1f} for each core at the start or end of the run's work; its "
            "times are longer than on an idle machine."
        )
    sampling = run.token_speculation.draft_sampling if run.token_speculation else None
    if notice := greedy_drafts_notice(sampling, run.temperature):
        yield f"{notice}."


def completion(run: str, num_not_run: int) -> str:
    """Return the command that runs the missing samples of a run, or grades them where all have run."""
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
    """Return a distinct label for each run: its method, and as much as is needed to distinguish it from the others.

    Parameters are added first, then dataset, models and so on, and finally the run id.
    """
    distinct = [method_of(run) for run in runs]
    for aspect in (differing_parameters(runs, distinct), *_ASPECTS):
        distinct = told_apart(runs, distinct, aspect)
    return distinct


def told_apart(
    runs: Sequence[Run], given: Sequence[str], aspect: Callable[[Run], str], within: Callable[[Run], str] = lambda _: ""
) -> list[str]:
    """Return the labels, with the aspect behind those whose runs differ in it `within` one group."""
    values: dict[tuple[str, str], set[str]] = {}
    for run, label in zip(runs, given, strict=True):
        values.setdefault((label, within(run)), set()).add(aspect(run))
    ambiguous = {label for (label, _), found in values.items() if len(found) > 1}
    return [
        f"{label} {aspect(run)}".rstrip() if label in ambiguous else label
        for run, label in zip(runs, given, strict=True)
    ]


def method_of(run: RunSummary | RunSpec) -> str:
    """Return the method of a run, with the model of vanilla."""
    return f"vanilla {run.params['model']}" if run.method == "vanilla" and "model" in run.params else run.method


def differing_parameters(runs: Sequence[Run], given: Sequence[str]) -> Callable[[Run], str]:
    """Return a function of a run that names what runs of its label differ in: their methods, and their parameters."""
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
    """Return the value of a parameter, a number without insignificant digits."""
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
"""What names a row only where two runs on one dataset would otherwise be in the same cell: a budget may differ from
dataset to dataset within a row."""


def row_labels(specs: Sequence[RunSpec], named: Sequence[str | None]) -> list[str]:
    """Return the name of each run's row; runs of one dataset have different ones.

    named: what the suite's file calls the row. Otherwise it is the method. Hyper-parameters and models follow where
    runs of one such name differ in them, and further settings where that is not enough.
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
    """Return a share in percent with its standard error, or with its interval where no problem differs from another."""
    estimate = fixed(found.estimate, 1, 100)
    if found.standard_error:
        return f"{estimate} ± {fixed(found.standard_error, 1, 100)}"
    return estimate if found.low is None else f"{estimate} ({span(found.low, found.high, 0, 100)})"


def in_one_line(run: RunSummary) -> str:
    """Return the result in the numbers that tell runs of a suite apart: `96.2 ± 2.8 %  1.68×  fallback 21.3 %`."""
    shown = "not graded" if run.result is None else f"{accuracy(run.result.as_interval)} %"
    parts, speed_ups = [shown.rjust(13)], run.against_with("speed_up")
    parts += [f"{found.value:.2f}×" for _, found in speed_ups if len(speed_ups) == 1]
    parts += [f"fallback {percent(run.value('fallback_rate'))}"] if run.num_decisions else []
    parts += [counted(errors, "error")] if (errors := run.verdicts.get("error", 0)) else []
    parts += [f"{missing} of {run.planned} missing"] if (missing := run.num_not_run + run.num_ungraded) else []
    return "  ".join(parts)


def lines(run: RunSummary) -> list[tuple[str, str]]:
    """Return the name and the value of every line of the table."""
    share = run.value("draft_share") if "draft" in run.by_role else None
    by_draft = "" if share is None else f" ({percent(share)} by the draft)"
    emitted, spent, critical = (number(run.value(f"{kind}_tokens")) for kind in ("emitted", "spent", "critical_path"))
    params = ", ".join(f"{name} {value}" for name, value in run.params.items())
    parts = ", ".join(f"{part} {percent(s)}" for part, s in run.latency_shares.items())
    rates = ", ".join(f"{model} {number(s)} in its calls" for model, s in run.tokens_per_call_second.items())
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
    """Yield the measures that have a line of their own."""
    for name, measure in MEASURES.items():
        if "summary" in measure.shown and (found := run.measures.get(name)):
            factor, unit = (100, " %") if measure.is_percent else (1, f" {measure.unit}")
            interval = "" if found.low_95 is None else f" (95 % {span(found.low_95, found.high_95, 1, factor)})"
            yield measure.title, f"{number(factor * found.value)}{unit}{interval}"


def token_speculation(setting: TokenSpeculation) -> str:
    """Return who proposes tokens to the target, how, and how many of them are confirmed."""
    model = f" ({setting.model})" if setting.model else ""
    sampling = f", {setting.draft_sampling} drafts" if setting.draft_sampling else ""
    confirmed = ""
    if setting.acceptance_rate is not None:
        confirmed = f": {percent(setting.acceptance_rate)} of the proposed tokens confirmed"
        confirmed += f", {setting.tokens_per_pass:.2f} tokens per pass" if setting.tokens_per_pass else ""
    return f"{setting.proposer}{model}, up to {setting.num_tokens} at a time{sampling}{confirmed}"


def _accuracy(run: RunSummary) -> list[tuple[str, str]]:
    """Return the lines of pass@1, which is over the samples that are there, as in a comparison."""
    result = run.result
    there = f", {run.num_result_samples} of {run.planned} samples" if run.is_unfinished else ""
    name = f"pass@1[avg-of-{run.k}{there}]"
    if result is None:
        return [(name, f"{NOTHING} (no sample is finished and graded)")]
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
    return [(name, shown), ("once complete", f"{ends}: if all missing samples are wrong, or all are right")]


def fallback(run: RunSummary) -> str:
    """Return the fallback rate with the number of decisions that it is over, and by what they were made."""
    if not run.num_decisions:
        return NOTHING
    shown = f"{percent(run.value('fallback_rate'))} of {run.num_decisions}"
    are_verdicts = set(run.decision_kinds) <= DECIDING_KINDS
    return f"{shown} verdicts" if are_verdicts else f"{shown} decisions ({', '.join(run.decision_kinds)})"


def _repeated(run: RunSummary) -> str:
    """Say how often the target wrote what it had just rejected: above half, the judge's question is to be doubted."""
    shown = f"{run.num_repeated} of {run.num_refused} fallbacks have the text of a rejected candidate"
    return f"{shown}: CHECK THE JUDGE (SELECT * FROM refusals)" if 2 * run.num_repeated > run.num_refused else shown


def _counts(verdicts: Mapping[str, int]) -> str:
    """List the verdicts that occur, correct and wrong in any case, and their sum."""
    shown = {v: n for v, n in verdicts.items() if n or v in {"correct", "wrong"}}
    ordered = sorted(shown, key=lambda v: (v != "correct", v != "wrong", v == "not_run", v))
    return ", ".join(f"{v} {shown[v]}" for v in ordered) + f"; sum {sum(verdicts.values())}"


def _grader(run: RunSummary) -> str:
    others = run.num_grader_versions - 1
    version = run.grader_version or NOTHING
    return f"{version} (the newest; {others} other version(s) kept, not counted)" if others > 0 else version


def _latency(run: RunSummary) -> str:
    """Return mean and median, with the median in flight where it is clearly lower, as with a small KV cache."""
    unasked = f"; {counted(run.num_unasked, 'sample')} without a request to a model" if run.num_unasked else ""
    if not run.num_timed:
        return f"{NOTHING} (no sample was finished in one attempt{unasked})"
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
    return f"{number(60 * samples)} samples/min, {number(tokens)} emitted tokens/s of a worker while its slots are full"


def _at_one(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the latency with one sample in flight, where there are timing samples."""
    if timed := run.measures.get("latency_at_one"):
        ends = timed.low_95, timed.high_95
        interval = f" (95 % {number(ends[0])} to {number(ends[1])})" if None not in ends else ""
        of = f"from {run.num_timed_at_one} of {timed.num_samples}"
        yield "one at a time", f"mean {number(timed.value)} s{interval} per sample, {of}"


def _speed_ups(run: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the speed-ups over runs of the target alone, and those with one sample in flight."""
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
    """Return a speed-up with the cards of both sides where they differ, the repeats, and its interval."""
    within = "" if found.run_factor else " within these runs"
    ends = f" (95 % {found.low_95:.2f} to {found.high_95:.2f}{within})" if found.low_95 and found.high_95 else ""
    told = sides((run.num_cards, pair.num_cards), runs)
    return f"{found.value:.2f}×{f' ({told})' if told else ''}{ends}"


def _unlike(pair: Against) -> str:
    return "" if pair.same_versions else "; UNLIKE PACKAGE VERSIONS"
