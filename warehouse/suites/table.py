"""A suite's table: rows are methods, columns are datasets, and cells have our values and any published ones.

Values are measures of warehouse/measures.py. Differences and speed-ups of custom suites come from a comparison of their
runs. Output formats are terminal text, Markdown, LaTeX and CSV. All text is escaped, so none acts as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import IO

from harness import prompts
from harness.cli.messages import counted
from harness.cli.number_format import MINUS, NOTHING, sides
from harness.cli.program import typed
from harness.cli.screen import Column, Line, Page, Screen, Table
from harness.settings.launch_settings import Launch
from warehouse.comparison.compared_runs import read_runs
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.contrasts import Row as Compared
from warehouse.comparison.pairs import repeats_of
from warehouse.comparison.show import warnings
from warehouse.database import Connection, Record, WarehouseError
from warehouse.files import one_line
from warehouse.measures import MEASURES
from warehouse.options import TableFormat
from warehouse.report.summary import RunSummary, summaries
from warehouse.report.tables import LATEX_NEEDS, latex, markdown, write_csv
from warehouse.sql.baselines import unlike
from warehouse.statistics.intervals import Interval
from warehouse.suites import comparability
from warehouse.suites.comparability import TIMES_ONLY, Timed, run_columns
from warehouse.suites.measured import ESTIMATED, NOT_ESTIMATED, estimated, measure, progress, runs_like
from warehouse.suites.own_runs import OwnRun, by_row, recorded_ids
from warehouse.suites.published import Suite, SuiteRun, num_problems

_COLUMN_NUMBERS = 2
"""Maximum number of values per row with which a LaTeX table fits one column of a two-column paper."""
_INTERVALS = "In parentheses: 95 % interval over problems."
_UNFINISHED = f"{NOTHING}: no run yet, or the run lacks this metric."
_NO_FORCE = " (--force compares anyway)"
"""Suffix of a comparison's warnings, removed here because it names a flag of `warehouse.compare`."""
Key = tuple[str, str]
_Compares = Callable[[Compared], Interval | None]


@dataclass(frozen=True, kw_only=True)
class Heading:
    """One metric of every cell."""

    label: str
    measure: str
    digits: int
    suffix: str = ""
    about: str = ""
    """Sentence under the table that defines the metric."""
    compared: _Compares | None = None
    """Reads the value from a comparison. None: the metric describes the run alone."""

    @property
    def factor(self) -> float:
        """Factor applied to the measure for display."""
        return 100.0 if MEASURES[self.measure].is_percent else 1.0

    def shown(self, value: float, digits: int | None = None) -> str:
        """Return a value as a string, without its suffix."""
        return f"{value:,.{self.digits if digits is None else digits}f}".replace("-", MINUS)


def _own(name: str, measure: str, digits: int, compared: _Compares | None = None) -> tuple[str, Heading]:
    of, is_difference = MEASURES[measure], name == "difference"
    unit = "%" if of.is_percent else "" if of.unit in ("tokens", "ratio") else of.unit
    about = "run minus baseline in percentage points, paired by problem" if is_difference else of.meaning
    return name, Heading(
        label=f"{name} ({unit})" if unit else name,
        measure=measure,
        digits=digits,
        suffix="×" if of.is_of_pair else "",
        about=f"{name}: {about}.",
        compared=compared,
    )


def _at_one(row: Compared) -> Interval | None:
    return row.speed.at_one.ratio if row.speed and row.speed.at_one else None


METRICS: Mapping[str, Heading] = dict(
    [
        _own("pass@1", "graded_pass_at_1", 1),
        _own("difference", "graded_pass_at_1", 1, lambda row: row.contrast.difference if row.contrast else None),
        _own("tokens", "emitted_tokens", 0),
        _own("spent-tokens", "spent_tokens", 0),
        _own("critical-path-tokens", "critical_path_tokens", 0),
        _own("latency", "latency_seconds", 2),
        _own("speed-up", "speed_up", 2, lambda row: row.speed.ratio if row.speed else None),
        _own("latency-at-one", "latency_at_one", 2),
        _own("speed-up-at-one", "speed_up_at_one", 2, _at_one),
        _own("fallback", "fallback_rate", 1),
    ]
)
"""Metrics of custom suites, by their `--metric` names."""
DEFAULT_METRICS = ("pass@1", "tokens", "latency", "speed-up")
AT_ONE = ("latency-at-one", "speed-up-at-one")


@dataclass(frozen=True, kw_only=True)
class Cell:
    run_id: str | None = None
    """Run id in the database; None: no run yet (published tables)."""
    numbers: Mapping[str, Interval | None] = field(default_factory=dict)
    """Our values by metric, in the measure's unit; empty if the run is not in the database."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published values by metric."""
    cards: Mapping[str, str] = field(default_factory=dict)
    """By metric: for a ratio, the GPUs of both sides if they differ, and the repeats."""
    notes: Sequence[int] = ()
    """Numbers of the notes on this run, from 1."""
    comparable: str = ""
    """Whether our values are comparable with the published ones, as a short phrase."""
    num_finished: int = 0
    """Finished samples, from the database, or from the run folder if the database lacks the run."""
    num_samples: int = 0
    num_ungraded: int | None = None
    """Number of finished but ungraded samples."""

    @property
    def marks(self) -> str:
        """The note numbers as printed in the cell."""
        return "".join(f" [{number}]" for number in self.notes)


@dataclass(frozen=True, kw_only=True)
class SuiteTable:
    """The runs of a suite in rows and columns."""

    name: str
    head: Sequence[str] = ()
    """Lines above the table."""
    rows: Mapping[str, Sequence[str | None]]
    """Draft and target of each row."""
    columns: Mapping[str, str]
    """Headings by dataset, or by column of a published table."""
    metrics: Mapping[str, Heading]
    cells: Mapping[Key, Cell]
    """Cells by row and column; a row may lack a column."""
    notes: Sequence[str]
    """Limits of the values' validity or comparability."""
    about: Sequence[str]
    """Legend of the table, in paragraphs."""
    is_published: bool = False
    """Whether the cells contain published values."""


def own_table(connection: Connection, name: str, runs: Sequence[OwnRun], metrics: Sequence[str]) -> SuiteTable:
    """Read the table of a suite's runs; runs not in the database have no values. Raises WarehouseError."""
    ids = recorded_ids(connection, runs)
    found = {summary.run_id: summary for summary in summaries(connection, list(ids.values()))}
    comparison, lines = _comparison(connection, list(ids.values()))
    compared = {row.run.run_id: row for row in comparison.rows} if comparison else {}
    for run_id, summary in found.items():
        if run_id not in compared and not any(_id(run_id).search(line) for line in lines):
            lines += [f"{run_id}: {line}" for line in summary.warnings]
    for run in runs:
        if run.run_id not in ids and run.finished:
            command = f"{typed('warehouse.load')} {quote(str(run.prepared.run.path))}"
            ended = f"{run.finished} of {run.num_samples} samples are finished"
            lines.append(f"{run.run_id}: {ended}, but the database has none of them; load them with: {command}")
    if set(metrics) & set(AT_ONE):
        for summary in found.values():
            if summary.num_timed_at_one:
                of = f"{summary.num_timed_at_one} of {counted(summary.planned, 'sample')}"
                lines.append(f"{summary.run_id}: latency one at a time is from {of}")
    by_id = {ids.get(run.run_id, run.run_id): run for run in runs}
    notes, headings = _notes(lines, by_id), {metric: METRICS[metric] for metric in metrics}
    cells = {}
    for run_id, run in by_id.items():
        marks = [number for number, about in enumerate(notes.values(), 1) if run_id in about]
        cells[run.row, run.dataset] = _own_cell(run, run_id, found.get(run_id), compared, headings, marks)
    about = [*_baselines(comparison, by_id), *(heading.about for heading in headings.values())]
    speeds = [row.speed for row in compared.values() if row.speed and row.speed.ratio]
    if "speed-up" in metrics and any(speed.factor is None for speed in speeds):
        about.append(
            "Speed-up intervals hold only within these runs: too few repeats to estimate run-to-run variation."
        )
    specs = {row: members[0].prepared.plan.spec for row, members in by_row(runs).items()}
    return SuiteTable(
        name=name,
        rows={
            row: [model.name if model else None for model in (spec.draft, spec.target)] for row, spec in specs.items()
        },
        columns=_columns(runs),
        metrics=headings,
        cells=cells,
        notes=list(notes),
        about=[" ".join(about)],
    )


def _own_cell(
    run: OwnRun,
    run_id: str,
    summary: RunSummary | None,
    compared: Mapping[str, Compared],
    headings: Mapping[str, Heading],
    marks: Sequence[int],
) -> Cell:
    finished = num_ungraded = run.finished
    numbers: dict[str, Interval | None] = {}
    on_cards: dict[str, str] = {}
    if summary is not None:
        finished, num_ungraded = summary.planned - summary.num_not_run, summary.num_ungraded
        row = compared.get(run_id)
        told = row.speed.sides if row and row.speed else ""
        for metric, heading in headings.items():
            of_run = summary.measures.get(heading.measure)
            if heading.compared is None:
                numbers[metric] = of_run.as_interval if of_run else None
            else:
                numbers[metric] = heading.compared(row) if row else None
                on_cards[metric] = told if MEASURES[heading.measure].is_of_pair else ""
    return Cell(
        run_id=run_id, numbers=numbers, cards=on_cards, notes=marks, num_finished=finished,
        num_samples=run.num_samples, num_ungraded=num_ungraded,
    )  # fmt: skip


def _comparison(connection: Connection, run_ids: Sequence[str]) -> tuple[Comparison | None, list[str]]:
    """Return the comparison, as made by `warehouse.compare`, and its caveats.

    (None, reason) if the runs cannot be compared, for example because they share no problem; (None, []) if fewer
    than two have samples.
    """
    records = read_runs(connection, run_ids, votes=False) if run_ids else []
    if sum(not record.is_empty for record in records) < 2:
        return None, []
    try:
        comparison = compare(records, Settings())
    except WarehouseError as error:
        return None, [f"NOT COMPARED: {one_line(error)}"]
    return comparison, list(warnings(comparison))


def _notes(lines: Sequence[str], runs: Mapping[str, OwnRun]) -> dict[str, set[str]]:
    """Return the notes, each with the ids of the runs that it marks.

    A note marks the first run named in it. A leading run id is removed, because the mark shows the run; runs with
    equal notes share one. Other ids are replaced by row and column, except within a path.
    """
    notes: dict[str, set[str]] = {}
    for line in lines:
        places = {found.start(): run_id for run_id in runs if (found := _id(run_id).search(line))}
        first = {places[min(places)]} if places else set()
        note = line.replace(_NO_FORCE, "")
        for run_id, run in runs.items():
            note = note.removeprefix(f"{run_id}: ")
            note = f"{run.row} on {run.dataset}".join(_id(run_id).split(note))
        notes.setdefault(note, set()).update(first)
    return notes


def _id(run_id: str) -> re.Pattern[str]:
    """Return a pattern that matches a run id, but not within a path or another id."""
    return re.compile(rf"(?<![\w/-]){re.escape(run_id)}(?![\w-])")


def _columns(runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the heading of each dataset, with its size if all its runs have the same size."""
    sizes: dict[str, set[str]] = {}
    for run in runs:
        spec = run.prepared.plan.spec
        whole = f" of {spec.dataset_size}" if spec.limited else ""
        sizes.setdefault(run.dataset, set()).add(f"{spec.num_problems}{whole} × {spec.samples}")
    return {name: f"{name} ({found.pop()})" if len(found) == 1 else name for name, found in sizes.items()}


def _baselines(comparison: Comparison | None, runs: Mapping[str, OwnRun]) -> Iterator[str]:
    """Yield a sentence per baseline row that names it, with its datasets if there are several."""
    datasets: dict[str, list[str]] = {}
    for base in comparison.baselines if comparison else ():
        datasets.setdefault(runs[base.run.run_id].row, []).append(base.run.dataset)
    for label, names in datasets.items():
        where = "" if len(datasets) == 1 else f" for {', '.join(names)}"
        yield f"Baseline{where}: {label}."


def recorded_runs(connection: Connection, runs: Sequence[SuiteRun], *, exact_scale: bool) -> dict[Key, Record | None]:
    """Return the recorded run that matches each of these runs, or None, by row label and column key.

    `exact_scale`: only runs with the launch's number of problems and samples.
    """
    return {run.key: _find(connection, run.launch, exact_scale) for run in runs}


def _find(connection: Connection, launch: Launch | None, exact_scale: bool) -> Record | None:
    if launch is None:
        return None
    scale = {"num_problems": num_problems(launch), "samples": launch.samples} if exact_scale else {}
    return next(iter(runs_like(connection, {**run_columns(launch), **scale})), None)


def published_table(
    connection: Connection,
    suite: Suite,
    runs: Sequence[SuiteRun],
    recorded: Mapping[Key, Record | None],
    metrics: Sequence[str],
) -> SuiteTable:
    """Read the table of a published suite's runs: our values, the published ones, and whether they are comparable.

    `recorded`: as returned by `recorded_runs`.
    """
    columns = {
        key: column.label for key, column in suite.columns.items() if any(key == run.plan.column for run in runs)
    }
    timed = {run.key: _timed(connection, run, row) for run in runs if (row := recorded[run.key])}
    repeats = repeats_of(connection, [row["run_id"] for row in recorded.values() if row])
    beside = _Beside(connection, suite, {run.key: run for run in runs}, recorded, timed, repeats, metrics)
    notes: list[str] = []
    cells = {run.key: beside.cell(run, notes) for column in columns for run in runs if run.plan.column == column}
    models = [{**suite.defaults, **row.flags} for row in suite.rows]
    return SuiteTable(
        name=suite.name,
        head=(
            suite.heading,
            f"Published on {suite.devices}, {suite.engine}. Cells: our value (95 %), below it the published one.",
        ),
        rows={row.label: [own.get("draft"), own.get("target")] for row, own in zip(suite.rows, models, strict=True)},
        columns=columns,
        metrics={
            name: Heading(label=metric.label, measure=metric.measure, digits=metric.digits)
            for name, metric in suite.metrics.items()
            if name in metrics
        },
        cells=cells,
        notes=notes,
        about=[*_about_timing(suite, sorted({numbers for numbers in timed.values() if numbers})), *about(suite)],
        is_published=True,
    )


def _timed(connection: Connection, run: SuiteRun, row: Record) -> Timed | None:
    """Return the numbers of a run's timed samples, samples planned for timing, and all samples.

    None if the paper's run has several samples in flight, or if the run's own times are used. A run with several
    samples in flight does not use its own times if timing samples are planned for it.
    """
    if run.paper is None or run.paper.concurrency != 1:
        return None
    asked = run.launch and run.launch.latency_sample
    found = progress(connection, row["run_id"])
    if found is None and asked and row["concurrency"] != 1:
        return 0, asked, row["samples"] * row["num_problems"]
    return found


@dataclass(frozen=True)
class _Beside:
    """Recorded runs of a published suite, compared with the published values."""

    connection: Connection
    suite: Suite
    runs: Mapping[Key, SuiteRun]
    recorded: Mapping[Key, Record | None]
    timed: Mapping[Key, Timed | None]
    repeats: Mapping[str, Sequence[str]]
    """Finished repeats of each run's setting, by run id."""
    metrics: Sequence[str]

    def cell(self, run: SuiteRun, notes: list[str]) -> Cell:
        """Return the run's cell; its new notes are appended to `notes`."""
        of_metrics = {name: run.plan.published(self.suite, name) for name in self.metrics}
        published = {name: value for name, value in of_metrics.items() if value is not None}
        row, paper = self.recorded[run.key], run.paper
        if row is None or paper is None:
            return Cell(published=published, comparable=f"requires {run.awaits}" if run.awaits else "no run yet")
        reasons = {name: self._why_not(run, paper, row, name) for name in published}
        told = []
        if against := list(dict.fromkeys(reason for found in reasons.values() for reason in found)):
            told.append(f"not comparable: {'; '.join(self._with_metrics(one, reasons) for one in against)}")
        chosen = comparability.choices(self.suite, run.plan, paper, row, self.timed[run.key])
        if published and chosen:
            told.append(f"our choice (not stated by the paper): {', '.join(chosen)}")
        notes += [note for note in reversed(told) if note not in notes]
        bases = {name: self._baseline(run, name)[1] for name in self.metrics}
        return Cell(
            run_id=row["run_id"],
            numbers={name: self._number(run, row, name) for name in self.metrics},
            published=published,
            cards={name: self._sides(run, row, base) for name, base in bases.items() if base},
            notes=[notes.index(note) + 1 for note in told],
            comparable=self._verdict(against, reasons) if published else f"{NOTHING} (nothing published)",
            num_finished=row["num_finished"],
            num_samples=row["num_problems"] * row["samples"],
        )

    def _sides(self, run: SuiteRun, row: Record, base: Record) -> str:
        """Return the GPUs and repeats on both sides of a ratio; repeats are omitted for timing samples of one run."""
        cards, ids = (row["num_cards"], base["num_cards"]), (row["run_id"], base["run_id"])
        is_of_one = self.timed[run.key] is not None
        return sides(cards) if is_of_one else sides(cards, (len(self.repeats[ids[0]]), len(self.repeats[ids[1]])))

    def _baseline(self, run: SuiteRun, metric: str) -> tuple[SuiteRun | None, Record | None]:
        """Return the baseline run of a run's metric, and its recorded run."""
        key = (self.suite.baseline(run.plan.row, metric) or "", run.plan.column)
        return self.runs.get(key), self.recorded.get(key)

    def _number(self, run: SuiteRun, row: Record, metric: str) -> Interval | None:
        """Return the value of a metric; latency is defined as for the published value.

        If a run has samples timed one at a time, its times are estimated from them.
        """
        name, stopwatch = self.suite.measured(run.plan.row, metric)
        base, base_row = self._baseline(run, metric)
        of_baseline = self.suite.measured(base.plan.row, metric)[1] if base else None
        if self.timed[run.key] is not None and name in NOT_ESTIMATED:
            return None
        if self.timed[run.key] is not None and name in ESTIMATED:
            return estimated(self.connection, name, row, base_row, stopwatch, of_baseline)
        base_id, k = base_row["run_id"] if base_row else None, self.suite.metrics[metric].k
        return measure(self.connection, name, row["run_id"], base_id, stopwatch, of_baseline, k)

    def _why_not(self, run: SuiteRun, paper: Launch, row: Record, metric: str) -> list[str]:
        timed = self.timed[run.key]
        reasons = comparability.why_not(self.suite, run.plan, paper, row, metric, timed)
        base, base_row = self._baseline(run, metric)
        if base is None or base.paper is None or base_row is None or base_row == row:
            return reasons
        of_base = self.timed[base.key]
        against = comparability.why_not(self.suite, base.plan, base.paper, base_row, metric, of_base)
        across = base.paper.concurrency != paper.concurrency or (timed is not None and of_base is not None)
        return [
            *reasons,
            *(f"its baseline: {reason}" for reason in against if reason not in reasons),
            *unlike(row, base_row, across_concurrencies=across),
        ]

    def _with_metrics(self, reason: str, reasons: Mapping[str, Sequence[str]]) -> str:
        """Return the reason, prefixed by the metrics' names unless it applies to all published metrics."""
        against = [name for name, found in reasons.items() if reason in found]
        if len(against) == len(reasons) or reason.startswith(TIMES_ONLY):
            return reason
        return f"for {self._labels(against)}: {reason}"

    def _verdict(self, against: Sequence[str], reasons: Mapping[str, Sequence[str]]) -> str:
        if not against:
            return "yes, as far as stated"
        if all(reasons.values()):
            return "no"
        if all(reason.startswith(TIMES_ONLY) for reason in against):
            return "all but the times"
        return f"all but {self._labels(name for name, found in reasons.items() if found)}"

    def _labels(self, names: Iterable[str]) -> str:
        return ", ".join(self.suite.metrics[name].label for name in names)


def about(suite: Suite) -> Iterator[str]:
    """Yield notes on the published values, one or two sentences per line."""
    if suite.no_numbers:
        yield f"No value is published: {suite.no_numbers}."
    if suite.only_graphics:
        yield "The paper shows these values in figures; only those quoted in its text are listed."
    if suite.unstated:
        yield f"The paper does not state: {'; '.join(unstated.what for unstated in suite.unstated)}."
    for covered in ("thought", "answer"):
        if rows := "; ".join(row.label for row in suite.rows if row.includes == covered):
            yield f"{rows}: times and tokens, both published and ours, cover only the {covered}."
    if (told := prompts.published().get(suite.paper)) is not None:
        hashes = ", ".join(f"{piece} {digest}" for piece, digest in told.pieces.items())
        yield (
            f"Prompts: {told.source}. A run is comparable if its --prompts file has these hashes, for the parts that "
            f"its method uses: {hashes} (python -m harness.launch --list prompts --prompts FILE prints them)."
        )
    for line in suite.stated:
        yield f"Stated: {line}."
    if any(metric.needs_rewards for metric in suite.metrics.values()):
        yield "Reward-model values require scores: python -m jobs score RUN --model MODEL."


def _about_timing(suite: Suite, timed: Sequence[Timed]) -> Iterator[str]:
    """Yield a sentence on the times that are estimated from timing samples, if any are."""
    if timed and suite.times:
        in_words = ", ".join(f"{number:,} of {whole:,}" for number, _, whole in timed)
        labels = [metric.label for metric in suite.metrics.values() if metric.measure in NOT_ESTIMATED]
        needs = f" {', '.join(labels)}: requires a latency for every problem (--every-sample-alone)." if labels else ""
        yield (
            f"Times are for one sample in flight, estimated from timing samples ({in_words} samples per run); "
            f"intervals account for the sampling of problems and the draw of timed samples.{needs}"
        )


def write(table: SuiteTable, out: IO[str], shape: TableFormat, *, has_intervals: bool = True) -> None:
    """Write a table. CSV has unrounded values with intervals: shares in percent, in custom suites from 0 to 1."""
    if shape == "csv":
        write_csv(_values(table), out)
        return
    blocks = _blocks(table, "\n" if shape == "table" else "; published ", has_intervals=has_intervals)
    signs = [_INTERVALS, _UNFINISHED] if has_intervals else [_UNFINISHED]
    notes = [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]
    if shape == "latex":
        caption = [*(table.head or [f"{table.name}."]), *table.about, *signs]
        is_wide = max(len(block.columns) for block in blocks) > _COLUMN_NUMBERS + 1
        text = latex(blocks, " ".join(caption), table.name, notes=notes, is_wide=is_wide)
        out.write(f"% {LATEX_NEEDS}\n{text}\n")
        return
    below = map(Line, [*notes, *table.about[:-1], " ".join([*table.about[-1:], *signs])])
    page: Page = [*(Line(line, "bold") for line in table.head), *blocks, *below]
    if shape == "markdown":
        out.write(markdown(page))
    else:
        Screen(out, is_fitted=True).show(page)


def _blocks(table: SuiteTable, between: str, *, has_intervals: bool) -> list[Table]:
    """Return one block with all columns; for published tables, one block per column, or one for the only row.

    between: separator between our value and the published one.
    """
    labels = [heading.label for heading in table.metrics.values()]
    by_title: dict[str, list[list[str]]] = {}
    headers = ["", *labels, "comparable"]
    if table.is_published:
        for column, heading in table.columns.items():
            for row in table.rows:
                title, label = (row, heading) if len(table.rows) == 1 else (heading, row)
                cell = table.cells[row, column]
                numbers = [_number(table, cell, metric, has_intervals) for metric in table.metrics]
                values = [_published(table, cell, metric) for metric in table.metrics]
                both = [f"{number}{between}{value}" for number, value in zip(numbers, values, strict=True)]
                by_title.setdefault(title, []).append([label, *both, f"{cell.comparable}{cell.marks}"])
    else:
        headers = ["", *(f"{heading} {label}" for heading in table.columns.values() for label in labels)]
        for row in table.rows:
            of_row = [table.cells.get((row, column), Cell()) for column in table.columns]
            numbers = [
                _number(table, cell, metric, has_intervals) + ("" if place else cell.marks)
                for cell in of_row
                for place, metric in enumerate(table.metrics)
            ]
            by_title.setdefault("", []).append([row, *numbers])
    columns = [Column(name, is_right=bool(place)) for place, name in enumerate(headers)]
    return [Table(columns, lines, title=title) for title, lines in by_title.items()]


def _number(table: SuiteTable, cell: Cell, metric: str, has_interval: bool) -> str:
    """Return a cell's value with its GPUs and interval."""
    number, heading = cell.numbers.get(metric), table.metrics[metric]
    if number is None:
        return NOTHING
    text = heading.shown(heading.factor * number.estimate) + heading.suffix
    if on_cards := cell.cards.get(metric):
        text += f" ({on_cards})"
    if has_interval and number.low is not None and number.high is not None:
        low, high = (heading.shown(heading.factor * end) for end in (number.low, number.high))
        text += f" ({low}{' to ' if number.low < 0 else '–'}{high})"
    return text


def _published(table: SuiteTable, cell: Cell, metric: str) -> str:
    """Format a published value with its original number of decimals, and at least as many as ours."""
    value, heading = cell.published.get(metric), table.metrics[metric]
    if value is None:
        return NOTHING
    printed = len(repr(value).rpartition(".")[2]) if "." in repr(value) else 0
    return heading.shown(value, max(heading.digits, printed))


def _values(table: SuiteTable) -> Table:
    """Return all values unrounded, with published values in the same unit."""
    names = ["row", "draft", "target"]
    ends = ("", " low_95", " high_95", *([" published"] if table.is_published else []))
    for column in table.columns:
        names += [f"{column} {name}" for name in ("run_id", "num_finished", "num_samples", "num_ungraded")]
        names += [f"{column} {metric}{end}" for metric in table.metrics for end in ends]
    rows = []
    for row, models in table.rows.items():
        values: list[str | float | None] = [row, *models]
        for column in table.columns:
            cell = table.cells.get((row, column), Cell())
            told = (cell.run_id, cell.num_finished, cell.num_samples, cell.num_ungraded)
            values += told if cell.num_samples else [None] * 4
            for metric, heading in table.metrics.items():
                found, factor = cell.numbers.get(metric), heading.factor if table.is_published else 1
                numbers = (found.estimate, found.low, found.high) if found else (None,) * 3
                values += [number if number is None else factor * number for number in numbers]
                values += [cell.published.get(metric)] if table.is_published else []
        rows.append(values)
    return Table([Column(name) for name in names], rows)
