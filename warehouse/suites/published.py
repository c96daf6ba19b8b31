"""The papers' tables and figures: the runs that each needs, the published values, and how ours are timed.

A suite is a TOML file in `harness/papers/suites`. Its cells are rows × columns × metrics. A run belongs to a row and a
column; its flags are the launcher's: the defaults, the column's on top, then the row's. Published values stand as
printed. What the paper leaves out is listed with the conditions that it covers: there the flags of the suite are a
choice of ours, and another choice is as comparable as that one. Every other flag is the paper's, or that of the
authors' own program.

A run with one sample in flight is planned with all samples in full batches and some of them again, one at a time
(`--latency-sample`, warehouse/statistics/two_phase.py), where the table can read its times from these and the run has
enough samples: one sample in flight leaves the GPUs nearly idle.
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
"""What measures the thought alone as a measure does the whole sample; for latencies that is SCoT's stopwatch."""
CONDITIONS = frozenset({
    "concurrency", "devices", "draft", "draft-tensor-parallel", "engine", "placement", "problems", "prompts", "samples",
    "spec-decode", "spec-tokens", "target", "target-tensor-parallel", "temperature", "token-budget", "top-p",
    *(name.replace("_", "-") for name in parameter_names()),
})  # fmt: skip
"""What a run's result depends on, as the suites name it: the launcher's flags. `problems`: how many and which."""
TIMED, AT_ONCE = 100, 64
"""Samples of each run that are timed, and samples in flight of a full batch, where a launch asks for neither."""
LEAST_SAMPLES = 2 * TIMED
"""Fewer samples than these in a run, and timing TIMED of them again after the batches saves next to nothing."""

Flags = Annotated[Mapping[str, Any], BeforeValidator(flattened)]
"""Flags of a launch, by flat name."""
Overrides = Mapping[str, Any]
"""Flags of the launcher as typed, with the names of its options."""
Includes = Literal["sample", "thought", "answer"]
"""What a published time or number of tokens covers: thought and answer, the thought alone, the answer alone."""
Stopwatch = Literal["measured", "scot", "specreason"]
"""Definitions of latency of the view `stopwatch` that the papers of the suites use."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _among(known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"no {name!r}; valid: {', '.join(sorted(known))}")
        return name

    return AfterValidator(check)


def _in_brackets(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_in_brackets)]
"""Several words, or one without brackets."""
_Conditions = Annotated[tuple[Annotated[str, _among(CONDITIONS)], ...], BeforeValidator(_in_brackets)]


class _Somewhere(_Strict):
    """A statement about some rows or columns of a suite, or about all."""

    rows: Words = ()
    """Labels; empty: all."""
    columns: Words = ()
    """Keys; empty: all."""

    def holds_for(self, row: str, column: str) -> bool:
        """Return whether the statement is about the cells of this row and column."""
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


class Unstated(_Somewhere):
    """Something that the paper leaves out, and with it the choice to whoever repeats the measurement."""

    what: str
    covers: _Conditions = ()
    """The conditions (`CONDITIONS`) that follow from it; none: no flag depends on it."""
    among: tuple[str | int | float, ...] = ()
    """The values that the paper leaves open; empty: any. Any other value is not the paper's."""


class Unlike(_Somewhere):
    """Why a cell cannot be compared, whoever runs it."""

    why: str
    metrics: Words = ()
    """Keys of the metrics that it concerns; empty: all."""


def _sentence(key: str) -> BeforeValidator:
    """Accept a bare sentence for a table that holds nothing else."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class Metric(_Strict):
    """One number of a cell."""

    label: str
    measure: Annotated[str, _among(MEASURES)]
    k: int | None = None
    """Samples of a problem, of pass@k."""
    digits: int = 0
    includes: Includes = "sample"
    """What the published values cover, by the paper's words or its numbers."""
    stopwatch: Stopwatch = "measured"
    """The definition of latency, for a measure of latencies."""
    baseline: str | None = None
    """Label of the row that a ratio is against, if not each row's own."""
    beside: str | None = None
    """Key of the metric whose published value is printed under this one too: another way to measure the same."""

    @property
    def registered(self) -> Measure:
        """The measure."""
        return MEASURES[self.measure]

    @property
    def needs_rewards(self) -> bool:
        """Whether it needs the scores of a process reward model (python -m jobs score)."""
        return self.registered.source in (REWARDS, TENTHS, CORRELATED)


class Column(_Strict):
    """A column of cells, e.g. a dataset."""

    label: str
    flags: Flags = {}
    costs_of: str | None = None
    """Key of the column to whose runs the published times, tokens and fallback rates belong, where the paper prints
    them under another column's name."""


class Row(_Strict):
    """A row of cells, e.g. a method with its models."""

    label: str
    flags: Flags = {}
    baseline: str | None = None
    """Label of the row that ratios are against, where the metric names none; it may be this one, which is then 1."""
    adapter: Literal["needed", "never"] | None = None
    """SCoT's selection adapter, which the reader has to train and name; None: where the method is scot, if it is
    named."""
    model_of: Literal["aligned"] | None = None
    """`aligned`: the draft is SCoT's aligned one, which the reader has to train and name."""
    trained: tuple[Literal["draft", "selector"], ...] = ()
    """What the paper had trained for this row (SCoT): a run without it is made, and is not comparable."""
    includes: Includes | None = None
    """What the published times and tokens of this row cover, where it differs from the other rows."""
    values: Mapping[str, Mapping[str, float]] = {}
    """Published: by column, by metric."""


class Suite(_Strict):
    """A published table or figure."""

    name: str
    """Name of the file."""
    paper: Literal["scot", "speccot", "specreason"]
    version: str
    """The version of the paper that the values were taken from: SCoT and SpecReason have a second one, with others."""
    place: str
    title: str
    devices: str
    """The devices in the paper's own words."""
    engine: str
    no_numbers: str | None = None
    """Why no value at all is published in the text."""
    only_graphics: bool = False
    """The values are in graphics; `values` holds those alone that the prose states."""
    unlike: tuple[Annotated[Unlike, _sentence("why")], ...] = ()
    unstated: tuple[Annotated[Unstated, _sentence("what")], ...] = ()
    stated: tuple[str, ...] = ()
    """Numbers and claims of the prose, with their section, and where the paper contradicts itself."""
    defaults: Flags = {}
    metrics: Mapping[str, Metric] = Field(min_length=1)
    columns: Mapping[str, Column] = Field(min_length=1)
    rows: tuple[Row, ...] = Field(min_length=1)

    @property
    def heading(self) -> str:
        """What it is and where it stands, in one line."""
        return f"{self.name}: {self.title} ({self.paper}, {self.version}, {self.place})"

    @property
    def times(self) -> set[str]:
        """Its measures that depend on the machine and on the samples in flight."""
        return {metric.measure for metric in self.metrics.values() if metric.registered.is_of_times}

    def measured(self, row: Row, metric: str) -> tuple[str, Stopwatch]:
        """Return the measure and the definition of latency by which this metric of a row covers what is published."""
        of = self.metrics[metric]
        if row.includes != "thought":
            return of.measure, of.stopwatch
        return OF_THOUGHT.get(of.measure, of.measure), "scot" if of.stopwatch == "measured" else of.stopwatch

    def baseline(self, row: Row, metric: str) -> str | None:
        """Return the label of the row that this metric of a row is a ratio to; None: it is no ratio, or to nothing."""
        of = self.metrics[metric]
        return (of.baseline or row.baseline) if of.registered.is_of_pair else None


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a suite."""

    row: Row
    column: str
    flags: Flags
    """The launcher's, without their dashes in front."""

    def published(self, suite: Suite, metric: str) -> float | None:
        """Return the published value that belongs beside this metric of the run."""
        values = self.row.values.get(self.column, {})
        return values.get(metric, values.get(suite.metrics[metric].beside or ""))


def names() -> list[str]:
    """Every suite, in the papers' order."""
    files = (resources.files("harness.papers") / "suites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load(name: str) -> Suite:
    """A suite by name. Raises ValueError with one line: unknown name, or what is wrong in the file."""
    if name not in names():
        raise ValueError(f"unknown suite {name!r}; valid: {', '.join(names())}{did_you_mean(name, names())}")
    text = (resources.files("harness.papers") / "suites" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Suite:
    """A suite from TOML. Raises ValueError."""
    try:
        return Suite.model_validate({"name": name, **parse_toml(text, f"suite {name}")})
    except ValidationError as wrong:
        raise ValueError(f"suite {name}: {place_and_problem(wrong.errors()[0])}") from wrong


def planned(suite: Suite) -> Iterator[Planned]:
    """The runs of a suite, row by row."""
    for row in suite.rows:
        for key, column in suite.columns.items():
            yield Planned(row, key, {**suite.defaults, **column.flags, **row.flags})


def launch_of(flags: Overrides) -> Launch:
    """Return the launch of a run's flags, with its models checked.

    Raises ValueError with one line, by the launcher's own rules, on whatever is not valid for this harness.
    """
    launch = layers.launch_from(flags)
    for name in (launch.draft.model, launch.target.model):
        if name is not None:
            models.resolve(name)
    return launch


def num_problems(launch: Launch) -> int:
    """Return how many problems the launch runs."""
    count = benchmarks.DATASETS[launch.dataset].count
    return min(count, launch.limit or count)


def num_samples(launch: Launch) -> int:
    """Return how many samples the launch runs."""
    return num_problems(launch) * launch.samples


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the suite, as the paper has it and as it is asked for here."""

    plan: Planned
    paper: Launch | None
    """The launch of the suite's flags alone; None where something is awaited."""
    launch: Launch | None
    """The launch of the suite's flags with the overrides."""
    awaits: str | None
    """What the reader has to train and name first."""

    @property
    def key(self) -> tuple[str, str]:
        """The label of its row and the key of its column."""
        return self.plan.row.label, self.plan.column


@dataclass(frozen=True)
class Reproduction:
    """A suite, and what is to be different from the paper."""

    suite: Suite
    overrides: Overrides
    """Flags of the launcher on top of the suite's, by name."""
    exact_scale: bool
    """Whether only runs of exactly this number of problems and samples count."""
    columns: tuple[str, ...]
    """Empty: all."""
    aligned: str | None
    """SCoT's aligned draft, for the rows that need it."""
    database: Path
    max_gpu_hours: float | None = None
    """The budget of all runs together; None: there is none."""
    every_sample_alone: bool = False
    """Whether latencies are measured of every sample, not estimated from a sample of them."""


def timed_runs(asked: Reproduction) -> list[SuiteRun]:
    """Return the runs, with the launches that measure the latencies of the suite."""
    columns = asked.columns or asked.suite.columns
    plans = [plan for plan in planned(asked.suite) if plan.column in columns]
    alone = [suite_run(plan, asked.overrides, asked.aligned) for plan in plans]
    if asked.every_sample_alone or "concurrency" in asked.overrides:
        return alone
    return [replace(run, launch=with_latency_sample(asked.suite, run.launch)) if run.launch else run for run in alone]


def every_sample_alone(launch: Launch) -> Launch:
    """Return the launch with one sample in flight."""
    return launch.changed(concurrency=1, latency_sample=None)


def suite_run(plan: Planned, overrides: Overrides, aligned: str | None) -> SuiteRun:
    """Build the launches of a suite's run. Raises ValueError with one line."""
    flags, overrides = dict(plan.flags), dict(overrides)
    awaits = None
    if plan.row.model_of == "aligned":
        awaits = None if aligned else "SCoT's aligned draft: train it and name it with --aligned"
        flags |= {"draft": aligned} if aligned else {}
        overrides.pop("draft", None)  # it names the draft of the other rows
    if plan.row.adapter == "needed" and "target_adapter" not in overrides:
        awaits = awaits or "SCoT's selection adapter: train it and name it with --target.adapter"
    if plan.row.adapter == "never" or flags["method"] != "scot":
        overrides.pop("target_adapter", None)
    if awaits:
        return SuiteRun(plan, None, None, awaits)
    # A suite may hold several methods: a hyper-parameter applies to the rows whose method has it.
    foreign = set(parameter_names()) - set(defaults(str(flags["method"])))
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    return SuiteRun(plan, launch_of(flags), launch_of({**flags, **applicable}), None)


def distinct_runs(runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    """Return the runs without those whose launch another one has: a baseline may stand in several rows."""
    distinct: list[SuiteRun] = []
    for run in runs:
        if run.launch is not None and run.launch not in [other.launch for other in distinct]:
            distinct.append(run)
    return distinct


def with_latency_sample(suite: Suite, launch: Launch) -> Launch:
    """Return the launch with a latency sample where a suite's run with one sample in flight can be timed by one.

    In a suite without times such a run is in batches as well, so that it stays the same run as that of a suite with.
    """
    if launch.concurrency != 1:
        return launch
    if launch.latency_sample is not None:  # asked for, and the suite's one sample in flight would refuse it
        return launch.changed(concurrency=AT_ONCE)
    return launch if num_samples(launch) < LEAST_SAMPLES else in_batches(suite, launch)


def in_batches(suite: Suite, launch: Launch) -> Launch:
    """Return the launch of a run alone with a latency sample, of whatever size; unchanged where no sample gives it."""
    if suite.times - ESTIMATED - NOT_ESTIMATED:
        return launch
    return launch.changed(concurrency=AT_ONCE, latency_sample=TIMED if suite.times else None)
