"""What stands in a suite's table: of own suites the numbers that are asked for, of published tables those of the paper.

Numbers of own suites that a comparison has are taken from it, the others from the measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from harness import prompts
from harness.cli.messages import counted
from harness.cli.number_format import NOTHING
from harness.cli.program import typed
from warehouse import measured
from warehouse.comparison.compared_runs import read_runs
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.contrasts import Row as Compared
from warehouse.comparison.show import warnings
from warehouse.database import Connection, Record, WarehouseError
from warehouse.files import one_line
from warehouse.measured import Measured, measure
from warehouse.pairs import unlike_baseline
from warehouse.render import limited, mixed_code, repeated, scripted, unreadable
from warehouse.statistics.intervals import Interval
from warehouse.suites import comparability
from warehouse.suites.comparability import TIMES_ONLY, Timed
from warehouse.suites.own_runs import OwnRun, by_row, recorded_ids
from warehouse.suites.published_runs import SuiteRun
from warehouse.suites.published_suites import OF_REWARDS, TIMES, Row, Suite
from warehouse.suites.suite_table import Cell, Heading, SuiteTable
from warehouse.summary import RunSummary, summaries

_NO_FORCE = " (--force compares anyway)"
"""What a comparison adds for its own flag."""


@dataclass(frozen=True)
class Source:
    """What the numbers of one run are read from."""

    connection: Connection
    summary: RunSummary
    row: Compared | None
    """The run's row of the comparison; None where it is compared with nothing."""


@dataclass(frozen=True, kw_only=True)
class Metric(Heading):
    """One number of a cell."""

    read: Callable[[Source], Measured | None]
    about: str
    """What the number is, as a sentence under the table."""


def _measured(interval: Interval | None) -> Measured | None:
    return None if interval is None else Measured(interval.estimate, interval.low, interval.high)


def _difference(source: Source) -> Measured | None:
    contrast = source.row.contrast if source.row else None
    return _measured(contrast.difference) if contrast else None


def _speed_up(source: Source) -> Measured | None:
    speed = source.row.speed if source.row else None
    return _measured(speed.ratio) if speed else None


def _latency_at_one(source: Source) -> Measured | None:
    at_one = source.summary.at_one
    return Measured(at_one.mean_seconds, at_one.low_95, at_one.high_95) if at_one else None


def _speed_up_at_one(source: Source) -> Measured | None:
    speed = source.row.speed if source.row else None
    return _measured(speed.at_one.ratio) if speed and speed.at_one else None


def _number(name: str) -> Callable[[Source], Measured | None]:
    """Return what reads a measure of the run."""

    def read(source: Source) -> Measured | None:
        found = source.summary.numbers.get(name)
        return _measured(found.interval) if found else None

    return read


METRICS: Mapping[str, Metric] = {
    "pass@1": Metric(
        "pass@1 (%)", 1, is_percent=True,
        read=lambda source: _measured(source.row.result if source.row else source.summary.result),
        about="pass@1: mean over problems of the mean over samples.",
    ),
    "difference": Metric(
        "difference", 1, is_percent=True, read=_difference,
        about="Difference: run minus baseline in percentage points, paired by problem.",
    ),
    "tokens": Metric(
        "tokens", 0, read=_number("emitted_tokens"),
        about="Tokens: emitted tokens per sample.",
    ),
    "spent-tokens": Metric(
        "spent tokens", 0,
        read=_number("spent_tokens"),
        about="Spent tokens: every output token of every call, per sample.",
    ),
    "critical-path-tokens": Metric(
        "critical path", 0,
        read=_number("critical_path_tokens"),
        about="Critical path: tokens per sample that a user waits for, of parallel candidates only the longest.",
    ),
    "latency": Metric(
        "latency (s)", 2, read=_number("latency_seconds"),
        about="Latency: seconds per sample, mean over problems, with the other samples in flight.",
    ),
    "speed-up": Metric(
        "speed-up", 2, suffix="×", read=_speed_up,
        about="Speed-up: latency of the baseline divided by that of the run, geometric mean over problems.",
    ),
    "latency-at-one": Metric(
        "latency alone (s)", 2, read=_latency_at_one,
        about="Latency alone: mean seconds per sample with one sample in flight, estimated from those that ran again "
        "one at a time (latency-sample).",
    ),
    "speed-up-at-one": Metric(
        "speed-up alone", 2, suffix="×", read=_speed_up_at_one,
        about="Speed-up alone: that latency of the baseline divided by that of the run, a ratio of mean latencies "
        "and no geometric mean.",
    ),
    "fallback": Metric(
        "fallback (%)", 1, is_percent=True, read=_number("fallback_rate"),
        about="Fallback: share of decisions that refused every draft.",
    ),
}  # fmt: skip
"""The metrics by the name that `--metric` takes."""
DEFAULT_METRICS = ("pass@1", "tokens", "latency", "speed-up")
AT_ONE = ("latency-at-one", "speed-up-at-one")
"""Metrics that need timing samples."""


def own_table(connection: Connection, name: str, runs: Sequence[OwnRun], metrics: Sequence[str]) -> SuiteTable:
    """Read the table of a suite's runs; what the warehouse lacks has no numbers. Raises WarehouseError."""
    ids = recorded_ids(connection, runs)
    summarized = {summary.run_id: summary for summary in summaries(connection, list(ids.values()))}
    comparison, lines = _comparison(connection, list(ids.values()))
    compared = {row.run.run_id: row for row in comparison.rows} if comparison else {}
    for summary in summarized.values():
        if summary.run_id not in compared and not any(_id(summary.run_id).search(line) for line in lines):
            lines += _alone(summary)
    lines += [line for run in runs for line in _of_suite(run, ids.get(run.run_id))]
    if set(metrics) & set(AT_ONE):
        lines += [line for summary in summarized.values() for line in _at_one(summary)]
    labels = {ids.get(run.run_id, run.run_id): run for run in runs}
    notes = _notes(lines, labels)
    cells = {}
    for run in runs:
        recorded = ids.get(run.run_id, run.run_id)
        numbers: dict[str, Measured | None] = {}
        finished = ungraded = run.finished
        if found := summarized.get(recorded):
            source = Source(connection, found, compared.get(recorded))
            numbers = {metric: METRICS[metric].read(source) for metric in metrics}
            finished, ungraded = found.num_planned - found.num_not_run, found.num_ungraded
        marks = [number for number, about in enumerate(notes.values(), 1) if recorded in about]
        cells[run.row, run.dataset] = Cell(
            recorded, numbers, notes=marks, num_finished=finished, num_samples=run.num_samples, num_ungraded=ungraded
        )
    about = [
        *_baselines(comparison, labels),
        *(METRICS[metric].about for metric in metrics),
        *_within(comparison, metrics),
    ]
    return SuiteTable(
        name,
        head=(),
        rows={row: _models(members[0]) for row, members in by_row(runs).items()},
        columns=_columns(runs),
        metrics={metric: METRICS[metric] for metric in metrics},
        cells=cells,
        notes=list(notes),
        about=[" ".join(about)],
    )


def _models(run: OwnRun) -> tuple[str | None, str | None]:
    spec = run.prepared.plan.spec
    return spec.draft.name if spec.draft else None, spec.target.name if spec.target else None


def _comparison(connection: Connection, run_ids: Sequence[str]) -> tuple[Comparison | None, list[str]]:
    """Return the comparison of these runs as `warehouse.compare` has it, and what limits its validity.

    None, and why, where they cannot be compared: two runs may have nothing in common yet, and each has its own result.
    """
    records = read_runs(connection, run_ids, votes=False) if run_ids else []
    if sum(not record.is_empty for record in records) < 2:
        return None, []
    try:
        comparison = compare(records, Settings())
    except WarehouseError as error:
        return None, [f"NOT COMPARED: {one_line(error)}"]
    return comparison, list(warnings(comparison))


def _alone(summary: RunSummary) -> list[str]:
    """Return what limits the numbers of a run that is compared with nothing."""
    total = summary.num_planned
    missing = []
    if summary.num_not_run:
        missing.append(f"INCOMPLETE RUN: {summary.num_not_run} of {total} samples have not been run.")
    if summary.num_ungraded:
        missing.append(f"NOT GRADED: {summary.num_ungraded} of {total} samples are finished but not graded.")
    return [
        f"{summary.run_id}: {line}"
        for line in (
            *scripted(summary),
            *limited(summary),
            *repeated(summary),
            *mixed_code(summary),
            *missing,
            *unreadable(summary),
        )
    ]


def _at_one(summary: RunSummary) -> list[str]:
    """Return from how many timing samples the latency of a sample alone is estimated."""
    at_one = summary.at_one
    if at_one is None:
        return []
    return [f"{summary.run_id}: one at a time, from {at_one.num_timed} of {counted(at_one.num_samples, 'sample')}"]


def _of_suite(run: OwnRun, recorded: str | None) -> list[str]:
    """Return that the warehouse lacks what has ended of a run, with the command that loads it."""
    if recorded is None and run.finished:
        command = f"{typed('warehouse.load')} {quote(str(run.prepared.run.path))}"
        ended = f"{run.finished} of {run.num_samples} samples have ended"
        return [f"{run.run_id}: {ended}, and the database has none of them: {command}"]
    return []


def _notes(lines: Sequence[str], runs: Mapping[str, OwnRun]) -> dict[str, set[str]]:
    """Return what limits the numbers, with the ids of the runs that it marks.

    A line is about the run that it names first. Where it begins with that, the mark says so, and runs of which the
    same is said share the note. Other ids become row and column, except where they are part of a path.
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
    """Return what finds a run id that is no part of a path or of another id."""
    return re.compile(rf"(?<![\w/-]){re.escape(run_id)}(?![\w-])")


def _columns(runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the heading of each dataset, with its size where all of its runs have the same."""
    sizes: dict[str, set[str]] = {}
    for run in runs:
        spec = run.prepared.plan.spec
        whole = f" of {spec.dataset_size}" if spec.limited else ""
        sizes.setdefault(run.dataset, set()).add(f"{spec.num_problems}{whole} × {spec.samples}")
    return {name: f"{name} ({found.pop()})" if len(found) == 1 else name for name, found in sizes.items()}


def _within(comparison: Comparison | None, metrics: Sequence[str]) -> Iterator[str]:
    """Yield that intervals of speed-ups do not cover what differs between runs, where that is not known."""
    speeds = [row.speed for row in comparison.rows if row.speed and row.speed.ratio] if comparison else []
    if "speed-up" in metrics and any(speed.factor is None for speed in speeds):
        yield "Intervals of speed-ups hold within these runs; too few were repeated to know how times vary."


def _baselines(comparison: Comparison | None, runs: Mapping[str, OwnRun]) -> Iterator[str]:
    """Yield which row is the baseline, once for all datasets that have the same."""
    datasets: dict[str, list[str]] = {}
    for base in comparison.baselines if comparison else ():
        datasets.setdefault(runs[base.run.run_id].row, []).append(base.run.dataset)
    for label, names in datasets.items():
        where = "" if len(datasets) == 1 else f" of {', '.join(names)}"
        yield f"Baseline{where}: {label}."


def published_table(
    connection: Connection,
    chosen: Suite,
    runs: Sequence[SuiteRun],
    recorded: Mapping[tuple[str, str], Record | None],
    metrics: Sequence[str],
) -> SuiteTable:
    """Read the table of a published suite's runs: ours beside what is published, and whether the two compare.

    `recorded`: the rows of the runs in the warehouse, by row and column.
    """
    plans = {run.key: run for run in runs}
    columns = {key: column.label for key, column in chosen.columns.items() if any(key == run[1] for run in plans)}
    notes: list[str] = []
    cells, timed = {}, set()
    for column in columns:
        for row in chosen.rows:
            key = row.label, column
            found = _Recorded(connection, chosen, plans, recorded, plans[key], metrics)
            cells[key] = found.cell(notes)
            timed.add(found.timed)
    return SuiteTable(
        chosen.name,
        head=(
            f"{chosen.name}: {chosen.title} ({chosen.paper}, {chosen.version}, {chosen.place})",
            f"Published on {chosen.devices}, {chosen.engine}. Ours (95 % interval); below it the published value.",
        ),
        rows={row.label: _published_models(chosen, row) for row in chosen.rows},
        columns=columns,
        metrics={name: Heading(chosen.metrics[name].label, chosen.metrics[name].digits) for name in metrics},
        cells=cells,
        notes=notes,
        about=[*_about_timing(chosen, sorted(numbers for numbers in timed if numbers)), *about(chosen)],
        is_published=True,
    )


def _published_models(chosen: Suite, row: Row) -> tuple[str | None, str | None]:
    flags = {**chosen.defaults, **row.flags}
    draft, target = (str(flags[role]) if role in flags else None for role in ("draft", "target"))
    return draft, target


class _Recorded:
    """A run of a published table beside what is published."""

    def __init__(
        self,
        connection: Connection,
        chosen: Suite,
        plans: Mapping[tuple[str, str], SuiteRun],
        recorded: Mapping[tuple[str, str], Record | None],
        run: SuiteRun,
        metrics: Sequence[str],
    ) -> None:
        self._connection, self._suite, self._run = connection, chosen, run
        self._row = recorded[run.key] if run.paper else None
        self._published = {name: run.plan.published(chosen, name) for name in metrics}
        self.timed = _timed(connection, run, self._row) if self._row else None
        """How many of its samples were timed one at a time, were to be, and are there; None: its times are of all."""
        self._numbers: dict[str, Measured | None] = {}
        self._reasons: dict[str, list[str]] = {}
        """Why ours cannot be compared with what is published, by the metric for which a value is."""
        if self._row is None or run.paper is None:
            return
        for name, printed in self._published.items():
            baseline_key = (chosen.baseline(run.plan.row, name) or "", run.plan.column)
            baseline, base_row = plans.get(baseline_key), recorded.get(baseline_key)
            self._numbers[name] = self._number(name, baseline, self._row, base_row)
            if printed is not None:
                self._reasons[name] = self._why_not(name, baseline, self._row, base_row)

    def _number(self, metric: str, baseline: SuiteRun | None, row: Record, base_row: Record | None) -> Measured | None:
        """Return the value of a metric by its stopwatch.

        The times of a run of which samples were timed one at a time are estimated from these.
        """
        name, stopwatch = self._suite.measured(self._run.plan.row, metric)
        of_baseline = self._suite.measured(baseline.plan.row, metric)[1] if baseline else None
        if name is None or (self.timed is not None and name in measured.NOT_ESTIMATED):
            return None
        if self.timed is not None and name in measured.ESTIMATED:
            return measured.estimated(self._connection, name, row, base_row, stopwatch, of_baseline)
        baseline_id = None if base_row is None else base_row["run_id"]
        return measure(self._connection, name, row["run_id"], baseline_id, stopwatch, of_baseline)

    def _why_not(self, metric: str, baseline: SuiteRun | None, row: Record, base_row: Record | None) -> list[str]:
        run = self._run
        assert run.paper is not None
        reasons = comparability.why_not(self._suite, run.plan, run.paper, row, metric, self.timed)
        if baseline is None or baseline.paper is None or base_row is None or base_row == row:
            return reasons
        of_base = _timed(self._connection, baseline, base_row)
        against = comparability.why_not(self._suite, baseline.plan, baseline.paper, base_row, metric, of_base)
        across = baseline.paper.concurrency != run.paper.concurrency or (self.timed is not None and of_base is not None)
        return [
            *reasons,
            *(f"its baseline: {reason}" for reason in against if reason not in reasons),
            *unlike_baseline(row, base_row, across_concurrencies=across),
        ]

    def cell(self, notes: list[str]) -> Cell:
        """Return the run's cell; what it notes joins the notes where it is not among them."""
        published = {name: value for name, value in self._published.items() if value is not None}
        awaits, row, paper = self._run.plan.row.awaits, self._row, self._run.paper
        if row is None or paper is None:
            return Cell(None, {}, published, comparable=f"awaits {awaits}" if awaits else "no run yet")
        if not published:
            return self._cell(row, published, (), f"{NOTHING} (nothing published)")
        choices = comparability.choices(self._suite, self._run.plan, paper, row, self.timed)
        ours = f"our choice, because the paper does not state it: {', '.join(choices)}"
        marks = [_mark(ours, notes)] if choices else []
        against = list(dict.fromkeys(reason for reasons in self._reasons.values() for reason in reasons))
        if not against:
            return self._cell(row, published, marks, "yes, as far as stated")
        told = _mark(f"not comparable, because: {'; '.join(map(self._with_metrics, against))}", notes)
        return self._cell(row, published, [told, *marks], self._not_all(against))

    def _cell(self, row: Record, published: Mapping[str, float], marks: Sequence[int], comparable: str) -> Cell:
        return Cell(
            row["run_id"],
            self._numbers,
            published,
            marks,
            comparable,
            num_finished=row["num_finished"],
            num_samples=row["num_problems"] * row["samples"],
        )

    def _with_metrics(self, reason: str) -> str:
        """Return the reason, behind the names of the metrics if it does not hold against all that are published."""
        against = [name for name, reasons in self._reasons.items() if reason in reasons]
        if len(against) == len(self._reasons) or reason.startswith(TIMES_ONLY):
            return reason
        return f"for {self._labels(against)}: {reason}"

    def _not_all(self, against: Iterable[str]) -> str:
        """Return which of the published values ours may be read beside, in the fewest words."""
        if all(self._reasons.values()):
            return "no"
        if all(reason.startswith(TIMES_ONLY) for reason in against):
            return "all but the times"
        return f"all but {self._labels(name for name, reasons in self._reasons.items() if reasons)}"

    def _labels(self, names: Iterable[str]) -> str:
        return ", ".join(self._suite.metrics[name].label for name in names)


def _timed(connection: Connection, run: SuiteRun, row: Record) -> Timed | None:
    """Return how many samples of a run were timed, were to be, and are there.

    None where the paper's has several samples in flight, and where the run's times are those of its samples. Those of a
    run in batches that is to be timed are not, also before the first sample is timed.
    """
    if run.paper is None or run.paper.concurrency != 1:
        return None
    found = measured.progress(connection, row["run_id"])
    asked = next((one.latency_sample for one in (run.launch, run.other_way) if one and one.latency_sample), None)
    if found is None and asked and row["concurrency"] != 1:
        return 0, asked, row["samples"] * row["num_problems"]
    return found


def _mark(note: str, notes: list[str]) -> int:
    """Return the number of the note; it joins the notes if it is not among them."""
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def about(chosen: Suite) -> Iterator[str]:
    """Yield what must be known beside the published values."""
    if chosen.no_numbers:
        yield f"No value is published: {chosen.no_numbers}."
    if chosen.only_graphics:
        yield "The paper shows this as graphics: no value is published but those that its prose states."
    if chosen.unstated:
        yield f"The paper does not state: {'; '.join(unstated.what for unstated in chosen.unstated)}."
    for covered in ("thought", "answer"):
        if rows := "; ".join(row.label for row in chosen.rows if row.includes == covered):
            yield f"Published times and tokens are of the {covered} alone, and so are ours: {rows}."
    if (told := prompts.published().get(chosen.paper)) is not None:
        hashes = ", ".join(f"{piece} {digest}" for piece, digest in told.pieces.items())
        yield (
            f"Prompts: {told.source}. A run counts with a file for --prompts that has these hashes, as far as its "
            f"method uses them: {hashes} (python -m harness.launch --list prompts --prompts FILE prints a file's)."
        )
    for line in chosen.stated:
        yield f"Stated: {line}."
    if any(metric.measure in OF_REWARDS for metric in chosen.metrics.values()):
        yield "Values of a process reward model need its scores: python -m jobs score RUN --model MODEL."
    for what in sorted({metric.awaits for metric in chosen.metrics.values() if metric.awaits}):
        yield f"Not measured yet, because this harness lacks {what}."


def _about_timing(chosen: Suite, timed: Sequence[Timed]) -> Iterator[str]:
    """Yield which times are estimates from a sample of samples."""
    if not timed or not any(metric.measure in TIMES for metric in chosen.metrics.values()):
        return
    in_words = ", ".join(f"{number:,} of {whole:,}" for number, _, whole in timed)
    labels = [metric.label for metric in chosen.metrics.values() if metric.measure == "speed_up"]
    needs = f" {', '.join(labels)}: needs a time of every problem (--every-sample-alone)." if labels else ""
    yield (
        f"Times are of one sample in flight, estimated from a sample of samples ({in_words} timed alone in a run); "
        f"intervals cover the choice of the problems and of the timed samples.{needs}"
    )
