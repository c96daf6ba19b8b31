"""One published table or figure: the runs it needs, the published values, and their conditions.

A suite is a TOML file in `suites/`. Its cells are rows × columns × metrics. A run belongs to a row and a column; its
flags are the launcher's: the defaults, the column's on top, then the row's. Published values stand as printed. What the
paper leaves out is listed with the conditions that it covers: there the flags of the suite are a choice of ours, and
another choice is as comparable as that one. Every other flag is the paper's, or that of the authors' own program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)  # fmt: skip

from harness.cli.messages import did_you_mean
from harness.cli.toml_file import parse_toml
from harness.methods.parameters import parameter_names
from harness.settings import layers
from harness.settings.launch_settings import Launch
from harness.settings.roles import flattened
from harness.weights import models
from warehouse.measured import NAMES
from warehouse.measures import MEASURES, REWARDS, SELECTED, TENTHS

TIMES = frozenset({
    "drafting_share", "emitted_tokens_per_wall_second", "latency_saved", "latency_saved_seconds", "latency_seconds",
    "ratio_of_means", "selection_share", "speed_up", "target_share", "thought_tokens_per_second", "tokens_per_second",
    "wall_seconds", "wall_speed_up",
})  # fmt: skip
"""Measures that depend on the machine and on the samples in flight."""
RATIOS = frozenset(["latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up", "wall_speed_up"])
"""Measures against the run of a baseline in the same column."""
OF_LATENCIES = frozenset(["latency_saved", "latency_saved_seconds", "latency_seconds", "ratio_of_means", "speed_up"])
"""Measures of the latency of a sample."""
OF_THOUGHT: Mapping[str, str] = {
    "emitted_tokens": "thinking_tokens",
    "tokens_per_second": "thought_tokens_per_second",
}
"""What measures the thought alone as a measure does the whole sample; for latencies that is SCoT's stopwatch."""
OF_REWARDS = frozenset({
    "score_reward_correlation", *(name for name, one in MEASURES.items() if one.source in (REWARDS, TENTHS)),
})  # fmt: skip
"""Measures that need the scores of a process reward model (python -m jobs score)."""
OF_GRADED_DRAFTS = frozenset(name for name, one in MEASURES.items() if one.source is SELECTED)
"""Measures that need the grades of the stored drafts (warehouse/candidates.py)."""
Stopwatch = Literal["measured", "scot", "specreason"]
"""Definitions of latency of the view `stopwatch` that the papers of the suites use."""
CONDITIONS = frozenset({
    "concurrency", "devices", "draft", "draft-tensor-parallel", "engine", "placement", "problems", "prompts", "samples",
    "spec-decode", "spec-tokens", "target", "target-tensor-parallel", "temperature", "token-budget", "top-p",
    *(name.replace("_", "-") for name in parameter_names()),
})  # fmt: skip
"""What a run's result depends on, as the suites name it: the launcher's flags. `problems`: how many and which."""


Flags = Annotated[Mapping[str, Any], BeforeValidator(flattened)]
"""Flags of a launch, by flat name."""
Overrides = Mapping[str, Any]
"""Flags of the launcher as typed, with the names of its options."""
Paper = Literal["scot", "speccot", "specreason"]
Includes = Literal["sample", "thought", "answer"]
"""What a published time or number of tokens covers: thought and answer, the thought alone, the answer alone."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _is_measured(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"no measure {name!r}; valid: {', '.join(sorted(NAMES))}")
    return name


Measure = Annotated[str, AfterValidator(_is_measured)]
"""A name of `warehouse.measured.NAMES`."""


def _words(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""Several words, or one without brackets."""


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
    covers: Words = ()
    """The conditions (`CONDITIONS`) that follow from it; none: no flag depends on it."""
    among: tuple[str | int | float, ...] = ()
    """The values that the paper leaves open; empty: any. Any other value is not the paper's."""

    @field_validator("covers")
    @classmethod
    def _conditions_exist(cls, covers: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(covers) - CONDITIONS):
            raise ValueError(f"no condition {unknown[0]!r}; valid: {', '.join(sorted(CONDITIONS))}")
        return covers


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
    measure: Measure | None = None
    digits: int = 0
    includes: Includes = "sample"
    """What the published values cover, by the paper's words or its numbers."""
    stopwatch: Stopwatch = "measured"
    """The definition of latency, for a measure of latencies."""
    baseline: str | None = None
    """Label of the row that a ratio is against, if not each row's own."""
    beside: str | None = None
    """Key of the metric whose published value is printed under this one too: another way to measure the same."""
    awaits: str | None = None
    """What the harness lacks for this metric."""

    @model_validator(mode="after")
    def _measured_or_awaited(self) -> Metric:
        if (self.measure is None) == (self.awaits is None):
            raise ValueError("give one of measure, awaits")
        return self


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
    awaits: str | None = None
    """What the harness lacks for this row: it is not planned, and its flags may name what is not there."""
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
    paper: Paper
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

    @model_validator(mode="after")
    def _rows_name_what_there_is(self) -> Suite:
        labels = [row.label for row in self.rows]
        for row in self.rows:
            if labels.count(row.label) > 1:
                raise ValueError(f"two rows are called {row.label!r}")
            if row.baseline is not None and row.baseline not in labels:
                raise ValueError(f"row {row.label!r}: no row {row.baseline!r} to be the baseline")
            for column, cells in row.values.items():
                if column not in self.columns:
                    raise ValueError(f"row {row.label!r}: no column {column!r}")
                if unknown := set(cells) - set(self.metrics):
                    raise ValueError(f"row {row.label!r}, column {column!r}: no metric {min(unknown)!r}")
        return self

    @model_validator(mode="after")
    def _metrics_and_columns_name_what_there_is(self) -> Suite:
        labels = {row.label for row in self.rows}
        if wrong := {c.costs_of for c in self.columns.values() if c.costs_of} - set(self.columns):
            raise ValueError(f"costs_of: no column {min(wrong)!r}")
        for key, metric in self.metrics.items():
            if metric.baseline is not None and metric.baseline not in labels:
                raise ValueError(f"metric {key!r}: no row {metric.baseline!r} to be the baseline")
            if metric.beside is not None and metric.beside not in self.metrics:
                raise ValueError(f"metric {key!r}: no metric {metric.beside!r} to be beside")
        return self

    @model_validator(mode="after")
    def _statements_name_what_there_is(self) -> Suite:
        labels = {row.label for row in self.rows}
        for told in (*self.unstated, *self.unlike):
            metrics = told.metrics if isinstance(told, Unlike) else ()
            for kind, named, known in (
                ("row", told.rows, labels),
                ("column", told.columns, set(self.columns)),
                ("metric", metrics, set(self.metrics)),
            ):
                if missing := [name for name in named if name not in known]:
                    raise ValueError(f"no {kind} {missing[0]!r} that something would be unstated of or unlike")
        return self

    def measured(self, row: Row, metric: str) -> tuple[Measure | None, Stopwatch]:
        """Return the measure and the definition of latency by which this metric of a row covers what is published."""
        of = self.metrics[metric]
        if row.includes != "thought" or of.measure is None:
            return of.measure, of.stopwatch
        return OF_THOUGHT.get(of.measure, of.measure), "scot" if of.stopwatch == "measured" else of.stopwatch

    def baseline(self, row: Row, metric: str) -> str | None:
        """Return the label of the row that this metric of a row is a ratio to; None: it is no ratio, or to nothing."""
        of = self.metrics[metric]
        return (of.baseline or row.baseline) if of.measure in RATIOS else None


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
        first = wrong.errors()[0]
        raise ValueError(f"suite {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from wrong


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
