"""The papers' tables and figures: required runs, published values, and the timing of our runs.

A suite is a TOML file in `harness/papers/suites`. Its cells are rows × columns × metrics. A run belongs to a row and a
column. Its flags are the suite's defaults, overridden by the column's flags, then by the row's. Published values are
listed as printed. Information missing in the paper is listed with the conditions that it covers. For these
conditions, the suite's flags are our choice, and any other choice is equally comparable. All other flags are from the
paper or its authors' code.

A run with one sample in flight leaves the GPUs nearly idle. It is therefore executed in full batches, and some samples
are rerun one at a time (`--latency-sample`, warehouse/statistics/two_phase.py), if the table's times can be estimated
from the rerun samples and the run has enough samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.cli.messages import did_you_mean, place_and_problem
from harness.cli.toml_file import parse_toml
from harness.methods import defaults, parameter_names
from harness.problems import benchmarks
from harness.settings import layers
from harness.settings.launch_settings import Launch
from harness.settings.roles import flattened
from harness.weights import models
from warehouse.measures import CORRELATED, MEASURES, REWARDS, TENTHS, Measure
from warehouse.suites.measured import ESTIMATED, NOT_ESTIMATED

OF_THOUGHT = {"emitted_tokens": "thinking_tokens", "tokens_per_second": "thought_tokens_per_second"}
"""Measures of the reasoning only, by the measure of the whole sample. Latencies use the stopwatch `scot` instead."""
CONDITIONS = frozenset({
    "concurrency", "devices", "draft", "draft-tensor-parallel", "engine", "placement", "problems", "prompts", "samples",
    "spec-decode", "spec-tokens", "target", "target-tensor-parallel", "temperature", "token-budget", "top-p",
    *(name.replace("_", "-") for name in parameter_names()),
})  # fmt: skip
"""Conditions that affect a run's result, named as launcher flags in the suites. `problems`: how many and which."""
TIMED, AT_ONCE = 100, 64
"""Default number of timed samples per run, and number of samples in flight of runs in batches."""
LEAST_SAMPLES = 2 * TIMED
"""Minimum number of samples of a run in batches; with fewer, timing only TIMED of them saves almost nothing."""

Flags = Annotated[Mapping[str, Any], BeforeValidator(flattened)]
Overrides = Mapping[str, Any]
"""Launcher flags as written on the command line, by option name."""
Includes = Literal["sample", "thought", "answer"]
"""Part covered by a published time or token count: reasoning and answer, reasoning only, or answer only."""
Stopwatch = Literal["measured", "scot", "specreason"]
"""Definitions of latency in the view `stopwatch` that the suites' papers use."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _among(known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"unknown name {name!r}; valid: {', '.join(sorted(known))}")
        return name

    return AfterValidator(check)


def _in_brackets(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_in_brackets)]
"""A list of words; a single word needs no brackets."""
_Conditions = Annotated[tuple[Annotated[str, _among(CONDITIONS)], ...], BeforeValidator(_in_brackets)]


class _Somewhere(_Strict):
    """A note on some or all rows and columns of a suite."""

    rows: Words = ()
    """Row labels; empty: all."""
    columns: Words = ()
    """Column keys; empty: all."""

    def holds_for(self, row: str, column: str) -> bool:
        """Return whether the note applies to the cell at this row and column."""
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


class Unstated(_Somewhere):
    """A condition not stated by the paper, so every possible value is comparable."""

    what: str
    covers: _Conditions = ()
    """Names in `CONDITIONS` that are left open. Empty: no flag is affected."""
    among: tuple[str | int | float, ...] = ()
    """Values that the paper allows; other values differ from the paper. Empty: any value is possible."""


class Unlike(_Somewhere):
    """Why a cell cannot be compared with any run."""

    why: str
    metrics: Words = ()
    """Keys of the affected metrics; empty: all."""


def _sentence(key: str) -> BeforeValidator:
    """Accept a plain string in place of a table with only this key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class Metric(_Strict):
    """A metric of the table, shown in every cell."""

    label: str
    measure: Annotated[str, _among(MEASURES)]
    k: int | None = None
    """Samples per problem, for pass@k."""
    digits: int = 0
    includes: Includes = "sample"
    """Part of a sample covered by the published values, according to the paper's text or numbers."""
    stopwatch: Stopwatch = "measured"
    """Definition of latency, for latency measures."""
    baseline: str | None = None
    """Label of the baseline row for all rows. None: each row's `baseline`."""
    beside: str | None = None
    """Key of another metric, for the same quantity measured differently, whose published value is shown here too."""

    @property
    def registered(self) -> Measure:
        return MEASURES[self.measure]

    @property
    def needs_rewards(self) -> bool:
        """Whether it requires scores of a process reward model (python -m jobs score)."""
        return self.registered.source in (REWARDS, TENTHS, CORRELATED)


class Column(_Strict):
    """A column of cells, e.g. a dataset."""

    label: str
    flags: Flags = {}
    costs_of: str | None = None
    """Key of the column whose runs gave this column's published times, tokens and fallback rates, if another."""


class Row(_Strict):
    """A row of cells, e.g. a method with its models."""

    label: str
    flags: Flags = {}
    baseline: str | None = None
    """Label of the baseline row for metrics that name none; may be this row, with ratio 1."""
    adapter: Literal["needed", "never"] | None = None
    """Whether SCoT's selection adapter, which users must train and pass, is needed. None: optional for method scot."""
    model_of: Literal["aligned"] | None = None
    """`aligned`: the draft is SCoT's aligned one, which users must train and pass."""
    trained: tuple[Literal["draft", "selector"], ...] = ()
    """Models that the paper trained for this row (SCoT). Runs with untrained models are possible but not comparable."""
    includes: Includes | None = None
    """Part covered by this row's published times and tokens, if different from the other rows."""
    values: Mapping[str, Mapping[str, float]] = {}
    """Published values by column and metric."""


class Suite(_Strict):
    """A published table or figure."""

    name: str
    """File name."""
    paper: Literal["scot", "speccot", "specreason"]
    version: str
    """Paper version of the values. SCoT and SpecReason have second versions with other values."""
    place: str
    title: str
    devices: str
    """Devices, as described by the paper."""
    engine: str
    no_numbers: str | None = None
    """Why there are no published values."""
    only_graphics: bool = False
    """Whether the paper shows its values in figures; `values` then contains only those quoted in the text."""
    unlike: tuple[Annotated[Unlike, _sentence("why")], ...] = ()
    unstated: tuple[Annotated[Unstated, _sentence("what")], ...] = ()
    stated: tuple[str, ...] = ()
    """Values and claims in the text, with their sections, and contradictions within the paper."""
    defaults: Flags = {}
    metrics: Mapping[str, Metric] = Field(min_length=1)
    columns: Mapping[str, Column] = Field(min_length=1)
    rows: tuple[Row, ...] = Field(min_length=1)

    @property
    def heading(self) -> str:
        """One line with title and source."""
        return f"{self.name}: {self.title} ({self.paper}, {self.version}, {self.place})"

    @property
    def times(self) -> set[str]:
        """Measures of its metrics that depend on the machine and the samples in flight."""
        return {metric.measure for metric in self.metrics.values() if metric.registered.is_of_times}

    def measured(self, row: Row, metric: str) -> tuple[str, Stopwatch]:
        """Return the measure and the definition of latency that match the published values of this row's metric."""
        of = self.metrics[metric]
        if row.includes != "thought":
            return of.measure, of.stopwatch
        return OF_THOUGHT.get(of.measure, of.measure), "scot" if of.stopwatch == "measured" else of.stopwatch

    def baseline(self, row: Row, metric: str) -> str | None:
        """Return the label of the baseline row for this row's metric; None if the metric is not a ratio, or if there is
        no baseline.
        """
        of = self.metrics[metric]
        return (of.baseline or row.baseline) if of.registered.is_of_pair else None


@dataclass(frozen=True, slots=True)
class Planned:
    row: Row
    column: str
    flags: Flags
    """Launcher flags, without leading dashes."""

    def published(self, suite: Suite, metric: str) -> float | None:
        """Return the published value shown next to this metric of the run."""
        values = self.row.values.get(self.column, {})
        return values.get(metric, values.get(suite.metrics[metric].beside or ""))


def names() -> list[str]:
    """Return the names of all suites, in the papers' order."""
    files = (resources.files("harness.papers") / "suites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load(name: str) -> Suite:
    """Load a suite by name. Raises ValueError (one line) for an unknown name or an invalid file."""
    if name not in names():
        raise ValueError(f"unknown suite {name!r}; valid: {', '.join(names())}{did_you_mean(name, names())}")
    text = (resources.files("harness.papers") / "suites" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Suite:
    """Parse a suite from TOML. Raises ValueError."""
    try:
        return Suite.model_validate({"name": name, **parse_toml(text, f"suite {name}")})
    except ValidationError as wrong:
        raise ValueError(f"suite {name}: {place_and_problem(wrong.errors()[0])}") from wrong


def planned(suite: Suite) -> Iterator[Planned]:
    """Yield the runs of a suite, row by row."""
    for row in suite.rows:
        for key, column in suite.columns.items():
            yield Planned(row, key, {**suite.defaults, **column.flags, **row.flags})


def launch_of(flags: Overrides) -> Launch:
    """Return the launch for a run's flags, with its models checked.

    Raises ValueError (one line), by the launcher's own rules, for invalid flags.
    """
    launch = layers.launch_from(flags)
    for name in (launch.draft.model, launch.target.model):
        if name is not None:
            models.resolve(name)
    return launch


def num_problems(launch: Launch) -> int:
    count = benchmarks.DATASETS[launch.dataset].count
    return min(count, launch.limit or count)


def num_samples(launch: Launch) -> int:
    return num_problems(launch) * launch.samples


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of the suite, as a launch with the suite's flags and as one with the requested flags."""

    plan: Planned
    paper: Launch | None
    """Launch with the suite's flags only; None if a model must be trained first."""
    launch: Launch | None
    """Launch with the suite's flags and the overrides."""
    awaits: str | None
    """The model or adapter that users must train and pass first. None: none."""

    @property
    def key(self) -> tuple[str, str]:
        """Row label and column key."""
        return self.plan.row.label, self.plan.column


@dataclass(frozen=True)
class Reproduction:
    """A suite with the requested options, which may deviate from the paper."""

    suite: Suite
    overrides: Overrides
    """Launcher flags that override the suite's, by name."""
    exact_scale: bool
    """Whether only recorded runs with exactly the launch's numbers of problems and samples count."""
    columns: tuple[str, ...]
    """Column keys; empty: all."""
    aligned: str | None
    """SCoT's aligned draft, for rows that need it."""
    database: Path
    max_gpu_hours: float | None = None
    """Budget in GPU-hours for all runs together. None: no budget."""
    every_sample_alone: bool = False
    """Whether latencies are measured for every sample, not estimated from timing samples."""


def timed_runs(asked: Reproduction) -> list[SuiteRun]:
    """Return the requested runs, those with one sample in flight as batches with timing samples where possible."""
    columns = asked.columns or asked.suite.columns
    plans = [plan for plan in planned(asked.suite) if plan.column in columns]
    alone = [suite_run(plan, asked.overrides, asked.aligned) for plan in plans]
    if asked.every_sample_alone or "concurrency" in asked.overrides:
        return alone
    return [replace(run, launch=with_latency_sample(asked.suite, run.launch)) if run.launch else run for run in alone]


def every_sample_alone(launch: Launch) -> Launch:
    return launch.changed(concurrency=1, latency_sample=None)


def suite_run(plan: Planned, overrides: Overrides, aligned: str | None) -> SuiteRun:
    """Build the launches of a suite's run. Raises ValueError (one line)."""
    flags, overrides = dict(plan.flags), dict(overrides)
    awaits = None
    if plan.row.model_of == "aligned":
        awaits = None if aligned else "SCoT's aligned draft: train it, then pass it with --aligned"
        flags |= {"draft": aligned} if aligned else {}
        overrides.pop("draft", None)  # --draft applies only to rows without an aligned draft
    if plan.row.adapter == "needed" and "target_adapter" not in overrides:
        awaits = awaits or "SCoT's selection adapter: train it, then pass it with --target.adapter"
    if plan.row.adapter == "never" or flags["method"] != "scot":
        overrides.pop("target_adapter", None)
    if awaits:
        return SuiteRun(plan, None, None, awaits)
    # A suite may contain several methods: a hyper-parameter applies to the rows whose method has it.
    foreign = set(parameter_names()) - set(defaults(str(flags["method"])))
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    return SuiteRun(plan, launch_of(flags), launch_of({**flags, **applicable}), None)


def distinct_runs(runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    """Return the runs without duplicate launches; a baseline may be in several rows."""
    distinct: list[SuiteRun] = []
    for run in runs:
        if run.launch is not None and run.launch not in [other.launch for other in distinct]:
            distinct.append(run)
    return distinct


def with_latency_sample(suite: Suite, launch: Launch) -> Launch:
    """Convert a launch with one sample in flight to batches, if its times can be estimated from timing samples.

    Suites without times use batches too, so they can share runs with suites that have times.
    """
    if launch.concurrency != 1:
        return launch
    if launch.latency_sample is not None:  # --latency-sample was passed and is invalid with one sample in flight
        return launch.changed(concurrency=AT_ONCE)
    return launch if num_samples(launch) < LEAST_SAMPLES else in_batches(suite, launch)


def in_batches(suite: Suite, launch: Launch) -> Launch:
    """Return a launch with one sample in flight as batches with timing samples, or unchanged if timing samples cannot
    replace it.
    """
    if suite.times - ESTIMATED - NOT_ESTIMATED:
        return launch
    return launch.changed(concurrency=AT_ONCE, latency_sample=TIMED if suite.times else None)
