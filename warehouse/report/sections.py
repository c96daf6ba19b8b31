"""The report's sections: charts and tables in order, with their captions. HTML, Markdown and LaTeX share the tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote

from grading.records import VERDICTS
from harness.cli.number_format import NOTHING, fixed, number, percent, span
from harness.cli.screen import Cell, Column, Table
from warehouse.comparison import show
from warehouse.comparison.compared_runs import read_runs
from warehouse.comparison.contrasts import Comparison, Row, Settings, compare
from warehouse.comparison.manifests import UNKNOWN, Manifest, differences, sweeps
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.database import Connection, WarehouseError, literal
from warehouse.measures import MEASURES
from warehouse.report.charts import Bar, Chart, Curve, Dot, Dots, Reference, Scatter, StackedBars
from warehouse.report.facts import RunFacts, other_problems, over_the_same_problems, scaled
from warehouse.report.summary import labels, plain
from warehouse.statistics.intervals import Interval


@dataclass(frozen=True)
class RunTable(Table):
    """A table of the report. The first column names the row."""

    name: str = ""
    """CSS class in the page, and label in LaTeX."""
    places: Sequence[int] = ()
    """Index in the report of the run that each row is about, whose mark is drawn beside it; empty: none."""
    is_sortable: bool = True
    """Whether the page lets its rows be sorted, and numbers are aligned right."""
    differs: frozenset[int] = frozenset()
    """Indices of the rows that are marked because the runs differ in what affects results."""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """The chart's file without its ending, unique in the report."""
    title: str
    chart: Chart
    caption: str
    keyed: Sequence[tuple[int, str]] = ()
    """The key below the chart: index of a color and mark, and what has it."""
    sql: str = ""
    """The statement behind the figure, for `warehouse.query`."""
    command: str = ""
    """The command that prints what it shows; empty: the statement does."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """Anchor in the page."""
    title: str
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[RunTable] = field(default=())


@dataclass(frozen=True)
class Compared:
    """The comparison of the runs of a report."""

    comparison: Comparison | None
    reasons: Sequence[str] = ()
    """Why runs are not in it, or why there is none."""

    @property
    def rows(self) -> dict[str, Row]:
        """Each run's row by run id."""
        return {row.run.run_id: row for row in self.comparison.rows} if self.comparison else {}


def read_comparison(
    connection: Connection, run_ids: Sequence[str], settings: Settings, baseline: str | None = None
) -> Compared:
    """Compare the runs with their baselines as `warehouse.compare` does, else those that share problems with the first.

    Raises WarehouseError where `baseline`, a run id, is given and not comparable.
    """
    if len(run_ids) < 2:
        return Compared(None)
    runs, reasons = read_runs(connection, run_ids, votes=False), list[str]()
    first = {run.dataset: run.outcomes for run in reversed(runs)}
    for some in (runs, [run for run in runs if num_shared_problems(run.outcomes, first[run.dataset])]):
        try:
            return Compared(compare(some, settings, baseline), reasons)
        except WarehouseError as error:
            if baseline is not None:
                raise
            reasons.append(str(error))
    return Compared(None, list(dict.fromkeys(reasons)))


def sections(runs: Sequence[RunFacts], compared: Compared, manifests: Mapping[str, Manifest]) -> list[Section]:
    """Return everything above the trace viewer, without tables and sections that would be empty."""
    figures = [*_by_problems(_accuracy, runs), *_differences(runs, compared)]
    trade_offs = _by_problems(partial(_trade_offs, manifests), runs)
    candidates = [
        Section("results", "Results", figures, [_results(runs, compared), _verdicts(runs)]),
        Section("trade-off", "Accuracy against latency", trade_offs, [_latency(runs)]),
        Section("budgets", "Accuracy against token budget", _by_problems(_budgets, runs)),
        Section(
            "speculation",
            "Fallback and tokens",
            [*_by_problems(_fallback, runs), *_by_problems(tokens, runs)],
            [_efficiency(runs), _pairs(runs)],
        ),
        Section("cost", "Cost", (), [_costs(runs)]),
        Section("conditions", "Settings and environment", (), [_conditions(runs, manifests)]),
    ]
    filled = [replace(section, tables=[table for table in section.tables if table.rows]) for section in candidates]
    return [section for section in filled if section.figures or section.tables]


def report_warnings(runs: Sequence[RunFacts]) -> list[str]:
    """Return the warnings on all runs, each once, with the labels of the runs that it applies to."""
    names = {run.summary.run_id: run.label for run in runs}
    lines = show.merged((f"{run.summary.run_id}: {line}" for run in runs for line in run.summary.warnings), names)
    return [*lines, *other_problems(runs)]


def _behind(runs: Sequence[RunFacts], *metrics: str) -> str:
    """Return the SQL of measures of runs, ready to be pasted into `warehouse.query`."""
    ids, names = (", ".join(map(literal, texts)) for texts in ((run.summary.run_id for run in runs), metrics))
    return (
        "SELECT run_id, metric, role, n, estimate, low_95, high_95 FROM counted_estimate\n"
        f"WHERE metric IN ({names}) AND run_id IN ({ids}) ORDER BY ALL"
    )


def _by_problems(draw: Callable[[Sequence[RunFacts]], list[Figure]], runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figures of every group over the same problems: others are not drawn side by side."""
    groups = over_the_same_problems(runs)
    if len(groups) == 1:
        return draw(runs)
    return [
        replace(figure, title=f"{figure.title} ({name})", name=f"{figure.name}-problems-{place}")
        for place, (name, members) in enumerate(groups.items(), start=1)
        for figure in draw(members)
    ]


def _accuracy(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = []
    for run in runs:
        if (result := run.accuracy) is not None:
            interval = "" if result.low is None else f"  ({span(result.low, result.high, 1)})"
            marks.append(
                Dot(run.label, run.place, result, f"{percent(result.estimate / 100)}{interval}{_of_planned(run)}")
            )
    ks = sorted({run.summary.k for run in runs})
    name = f"pass@1[avg-of-{ks[0]}]" if len(ks) == 1 else "pass@1"
    caption = (
        "Mark: mean over problems. Line: 95 % interval over problems. The axis does not necessarily start at zero."
    )
    if len(marks) < len(runs):
        caption += f" Runs without graded samples are not drawn: {len(runs) - len(marks)}."
    chart = Dots(marks, f"{name} (%)", "Accuracy of each run with its interval", high=100.0)
    sql = _behind(runs, "graded_pass_at_1", "pass_at_1")
    return [Figure("accuracy", f"{name}, percent", chart, caption, sql=sql)] if marks else []


def _of_planned(run: RunFacts) -> str:
    """Return how many samples an unfinished run's accuracy is over."""
    s = run.summary
    return f", {s.num_result_samples} of {s.planned} samples" if s.is_unfinished else ""


def _differences(runs: Sequence[RunFacts], compared: Compared) -> list[Figure]:
    """Return a figure of the rows with the same baseline on the same problems."""
    members, figures = {run.summary.run_id: run for run in runs}, list[Figure]()
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[Row]] = {}
    for row in compared.comparison.rows if compared.comparison else ():
        if row.contrast is not None:
            shared = members[row.run.run_id].problems & members[row.contrast.baseline].problems
            groups.setdefault((row.contrast.baseline, shared), []).append(row)
    for (baseline, _), rows in groups.items():
        assert compared.comparison is not None
        name = f"differences-{len(figures) + 1}" if figures else "differences"
        figures.append(_difference(members, compared.comparison, rows, members[baseline].label, name))
    return figures


def _difference(
    members: Mapping[str, RunFacts], comparison: Comparison, rows: Sequence[Row], baseline: str, name: str
) -> Figure:
    dots = []
    for row in rows:
        assert row.contrast is not None
        found, run = row.contrast.difference, members[row.run.run_id]
        low, high = (None if end is None else 100 * end for end in (found.low, found.high))
        estimate, interval, *_ = show.contrast_cells(row.contrast)
        value = replace(found, estimate=100 * found.estimate, low=low, high=high)
        dots.append(Dot(run.label, run.place, value, estimate if low is None else f"{estimate} ({interval})"))
    margin = 100 * comparison.settings.margin
    chart = Dots(
        dots,
        "difference in pass@1 (points)",
        "Difference in accuracy of each run from its baseline, with interval",
        low=-100.0,
        high=100.0,
        references=[Reference(0.0, is_dashed=False), Reference(-margin, is_dashed=True)],
    )
    caption = (
        "Mark: mean over the problems that both runs have, of the samples that neither lacks. Line: 95 % interval, "
        f"paired by problem. Solid: no difference. Dashed: the margin, −{margin:g} points."
    )
    compared = " ".join(quote(run_id) for run_id in dict.fromkeys(row.run.run_id for row in comparison.rows))
    command = f"python -m warehouse.compare {compared} --margin {margin:g} --all"
    return Figure(name, f"pass@1 minus that of {baseline}, percentage points", chart, caption, command=command)


def _trade_offs(manifests: Mapping[str, Manifest], runs: Sequence[RunFacts]) -> list[Figure]:
    """Return a figure for each dataset and set of conditions, because times under other conditions do not compare."""
    groups: dict[tuple[str, int, str], list[tuple[RunFacts, Dot]]] = {}
    for run in runs:
        if (latency := run.estimate("latency_seconds")) is not None and run.accuracy is not None:
            devices = str(run.conditions["device_kinds"] or "unknown device")
            words = f"pass@1 {percent(run.accuracy.estimate / 100)}, {latency.estimate:.3g} s{_of_planned(run)}"
            point = Dot(run.label, run.place, scaled(latency), words, run.accuracy)
            groups.setdefault((run.summary.dataset, run.summary.concurrency, devices), []).append((run, point))
    figures: list[Figure] = []
    for (dataset, concurrency, devices), members in groups.items():
        axes = ("mean latency per sample (s)", "pass@1 (%)")
        drawn, points = [run for run, _ in members], [point for _, point in members]
        curves, front = _curves(drawn, manifests), pareto_front(points) if len(points) > 1 else []
        chart = Scatter(points, *axes, "Accuracy against latency, one mark per run", curves, front)
        caption = "Up and to the left is better. Lines with ends: 95 % intervals over problems."
        if curves:
            caption += " Runs that differ in one parameter only are connected, with one mark; its value is beside each."
        if front:
            names = "; ".join(f"{drawn[i].label}{_of_planned(drawn[i])}" for i in front)
            caption += (
                f" Dashed: Pareto front of the estimates (no run is as good in both and better in one): {names}. "
                "Neighbours whose intervals overlap may change places."
            )
        if concurrency > 1:
            caption += f" {concurrency} samples in flight shared the engines: a sample's time includes waiting."
        name = f"trade-off-{len(figures) + 1}" if figures else "trade-off"
        title = f"{dataset}, {concurrency} in flight, {devices}"
        sql = _behind(drawn, "graded_pass_at_1", "latency_seconds")
        figures.append(Figure(name, title, chart, caption, chart.key, sql))
    return figures


def _curves(runs: Sequence[RunFacts], manifests: Mapping[str, Manifest]) -> list[Curve]:
    """Return the sweeps among the runs of a figure."""
    places = {run.summary.run_id: i for i, run in enumerate(runs)}
    found = sweeps([manifests[run_id] for run_id in places])
    of_sweeps = [[places[run_id] for run_id in sweep.runs.values()] for sweep in found]
    names = labels([runs[points[0]].summary for points in of_sweeps])
    return [
        Curve(f"{name}, {sweep.parameter.replace('_', ' ')}", points, list(map(plain, sweep.runs)))
        for name, sweep, points in zip(names, found, of_sweeps, strict=True)
    ]


def _budgets(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of the sweeps of budgets over the runs' chains; none where there are none."""
    points, curves = list[Dot](), list[Curve]()
    for run in runs:
        newest = [row for row in run.budgets if row["run_id"] == run.budgets[-1]["run_id"]]
        sweep = [row for row in newest if row["pass_at_1"] is not None]
        how = "" if all(row["is_exact"] for row in sweep) else ", not re-planned"
        curves.append(Curve(f"{run.label}{how}", range(len(points), len(points) + len(sweep))))
        for row in sweep:
            budget = Interval(row["budget"], None, None, None, "none: it is chosen")
            ends = (row["low_95"], row["high_95"], row["standard_error"], row["interval_kind"])
            right = scaled(Interval(row["pass_at_1"], *ends), 100, 1.0)
            text = f"{fixed(right.estimate, 1)} % within {number(row['budget'])} tokens"
            points.append(Dot(run.label, run.place, budget, text, right))
    if not points:
        return []
    axes = ("token budget, answer not counted (tokens)", "pass@1 (%)")
    chart = Scatter(points, *axes, "Accuracy against token budget, one line per run", [c for c in curves if c.points])
    caption = (
        "From the chains of each run: those that had not ended within a budget are cut there, closed, and answered, in "
        "tokens beside it. The newest sweep of each run. Not re-planned: cut at the ends of steps, where a method that "
        "knew the budget may have done better. Lines with ends: 95 % intervals over problems."
    )
    swept = ", ".join(literal(run.budgets[-1]["run_id"]) for run in runs if run.budgets)
    sql = (
        "SELECT run_id, group_value AS budget, n, estimate, low_95, high_95 FROM counted_estimate\n"
        f"WHERE metric = 'accuracy_at_budget' AND run_id IN ({swept}) ORDER BY run_id, budget::INT"
    )
    return [Figure("budgets", "Accuracy against token budget", chart, caption, chart.key, sql)]


def pareto_front(points: Sequence[Dot]) -> list[int]:
    """Return the indices, from left to right, of points that no other is at least as high and as far left as.

    Points at one place do not beat each other.
    """
    places = [(p.x.estimate, -p.y.estimate) for p in points if p.y]
    front = [i for i, (x, y) in enumerate(places) if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in places)]
    return sorted(front, key=places.__getitem__)


def _fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = [
        Dot(run.label, run.place, scaled(rate, 100, 1.0), f"{percent(rate.estimate)} of {run.summary.num_decisions}")
        for run in runs
        if (rate := run.estimate("fallback_rate")) is not None
    ]
    caption = (
        "Share of the decisions that rejected every candidate, so that the target wrote the step. Line: 95 % interval "
        "over problems."
    )
    chart = Dots(marks, "fallback rate (% of decisions)", "Fallback rate of each run with its interval", high=100.0)
    sql = _behind(runs, "fallback_rate")
    return [Figure("fallback", "Fallback rate", chart, caption, sql=sql)] if marks else []


_TOKENS = ("emitted_tokens", "spent_tokens", "critical_path_tokens")


def tokens(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of tokens by model; none without finished samples."""
    bars = []
    for run in runs:
        for kind in ("emitted", "spent", "critical_path"):
            parts = {model: own[f"{kind}_tokens"].value for model, own in run.summary.by_role.items()}
            label = f"{run.label}: emitted" if kind == "emitted" else kind.replace("_", " ")
            if parts:
                bars.append(Bar(label, parts, number(sum(parts.values())), kind == "emitted"))
    caption = "Tokens per finished sample by the model that generated them; what is counted: below."
    names = {"draft": "draft", "target": "target", "reward": "reward model"}
    chart = StackedBars(bars, "tokens per sample", "Tokens by model", "tokens", names)
    return [Figure("tokens", "Token split", chart, caption, sql=_behind(runs, *_TOKENS))] if bars else []


OfRun = tuple[str, Callable[[RunFacts], Cell]]
"""A column of a table with a row for each run: its name, and how its cells are read."""
Caption = Sequence[tuple[str, str]]
"""Sentences, each with the beginning of the names of the columns that it explains; empty: the whole table."""


def _table(
    name: str, title: str, headers: Sequence[str], rows: Sequence[tuple[RunFacts, Sequence[Cell]]], caption: Caption
) -> RunTable:
    """Return a table whose rows are about runs, without columns that no row has a value in and what explains them."""
    kept = [place for place in range(len(headers)) if any(cells[place] != NOTHING for _, cells in rows)]
    columns = [Column("run"), *(Column(headers[place], is_right=True) for place in kept)]
    cells = [(limited_label(run), *(values[place] for place in kept)) for run, values in rows]
    told = " ".join(text for start, text in caption if any(headers[place].startswith(start) for place in kept))
    return RunTable(columns, cells, [told], title, name, [run.place for run, _ in rows])


def _of_each_run(
    name: str, title: str, runs: Sequence[RunFacts], columns: Sequence[OfRun], caption: Caption
) -> RunTable:
    """Return a table with a row for each run."""
    rows = [(run, [read(run) for _, read in columns]) for run in runs]
    return _table(name, title, [header for header, _ in columns], rows, caption)


def _of_measure(name: str, digits: int | None = 1, *, has_interval: bool = True) -> list[OfRun]:
    """Return the columns of a measure: its value, and its interval. digits: None: as many as say something."""
    measure = MEASURES[name]
    factor, unit = (100, "%") if measure.is_percent else (1, measure.unit)

    def estimate(run: RunFacts) -> Interval | None:
        found = run.estimate(name)
        return found and scaled(found, factor, 1.0 if measure.is_percent else math.inf)

    def shown(value: float | None) -> str:
        return number(value) if digits is None else fixed(value, digits)

    def value(run: RunFacts) -> str:
        found = estimate(run)
        return shown(found.estimate) if found else NOTHING

    def interval(run: RunFacts) -> str:
        found = estimate(run)
        return f"{shown(found.low)} to {shown(found.high)}" if found and found.low is not None else NOTHING

    title = measure.title or name.replace("_", " ")
    header = title if unit in title else f"{title} {unit}"
    return [(header, value), *([("95 % interval", interval)] if has_interval else [])]


_OF_CONTRAST = ("difference", "95 %", "on these", "not worse")
"""Columns of `show.contrast_cells` that the table of results has."""


def _results(runs: Sequence[RunFacts], compared: Compared) -> RunTable:
    """Return the table of accuracies, and of differences and speed-ups as `warehouse.compare` has them."""
    rows = compared.rows

    def of_contrast(name: str) -> Callable[[RunFacts], Cell]:
        def read(run: RunFacts) -> Cell:
            row = rows.get(run.summary.run_id)
            return show.contrast_cells(row.contrast)[show.CONTRAST_HEADERS.index(name)] if row else NOTHING

        return read

    def of_speed(place: int) -> Callable[[RunFacts], Cell]:
        def read(run: RunFacts) -> Cell:
            row = rows.get(run.summary.run_id)
            return show.speed_cells(row.speed)[place] if row else NOTHING

        return read

    columns: list[OfRun] = [
        *([("dataset", lambda run: run.summary.dataset)] if len({run.summary.dataset for run in runs}) > 1 else []),
        ("n × k", _size),
        ("pass@1 %", lambda run: fixed(run.accuracy.estimate if run.accuracy else None, 2)),
        ("95 % interval", lambda run: span(run.accuracy.low, run.accuracy.high, 1) if run.accuracy else NOTHING),
        ("re-run SE", lambda run: fixed(run.rerun_standard_error, 2, 100)),
        ("once complete %", _once_complete),
    ]
    columns += [("95 % interval" if name == "95 %" else name, of_contrast(name)) for name in _OF_CONTRAST]
    columns += [("speed-up", of_speed(0)), ("95 % interval", of_speed(1))]
    graders = "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))
    about = list(compared.reasons)
    if one := compared.comparison:
        about += [*show.pairing_warnings(one), *show.baseline_lines(one), *show.contrast_legend(one, _OF_CONTRAST)]
    caption = [
        ("", "pass@1: mean over n problems of the share of their k samples that are correct, with a 95 % interval."),
        ("once complete", "In brackets: the samples that are there. Once complete: all missing ones wrong, or right."),
        ("re-run SE", "Re-run SE: standard error over re-runs of the same problems, in percentage points."),
        *(("", line if line.endswith(".") else f"{line}.") for line in (f"Grader: {graders}", *about)),
    ]
    return _of_each_run("results", "Results", runs, columns, caption)


def _size(run: RunFacts) -> str:
    s = run.summary
    return f"{s.n} × {s.k}" + (f" ({s.num_result_samples} of {s.planned})" if s.is_unfinished else "")


def _once_complete(run: RunFacts) -> str:
    s = run.summary
    return span(s.pass_at_1, s.highest_pass_at_1, 2, 100) if s.result and s.is_unfinished else NOTHING


def _verdicts(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of all samples by verdict."""
    headers = [*(kind.replace("_", " ") for kind in VERDICTS), "sum"]
    rows = [
        (run, [*(str(run.summary.verdicts.get(kind, 0)) for kind in VERDICTS), str(sum(run.summary.verdicts.values()))])
        for run in runs
    ]
    caption = 'The verdicts sum to problems × samples. "not run" includes finished samples without a grade.'
    return _table("verdicts", "Verdicts", headers, rows, [("", caption)])


def _latency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of latencies."""

    def alone(run: RunFacts) -> Cell:
        timed = run.summary.measures.get("latency_at_one")
        return f"{run.summary.num_timed_at_one} of {timed.num_samples}" if timed else NOTHING

    columns: list[OfRun] = [
        ("in flight", lambda run: str(run.summary.concurrency)),
        ("devices", lambda run: run.conditions["devices"] or NOTHING),
        ("samples timed", lambda run: str(run.summary.num_timed)),
        *_of_measure("latency_seconds", None),
        ("median s", lambda run: number(run.summary.median_latency_seconds)),
        ("95th percentile s", lambda run: number(run.conditions["p95_seconds"])),
        *_of_measure("samples_per_second", None, has_interval=False),
        *_of_measure("emitted_tokens_per_second", None, has_interval=False),
        ("samples timed alone", alone),
        *_of_measure("latency_at_one", None),
    ]
    caption = [
        (
            "",
            "Wall time per sample, over samples that finished in one attempt without an error: mean over problems with "
            "a 95 % interval, median and percentile over samples. Several samples in flight share the engines: only "
            "compare runs with the same number in flight on the same devices.",
        ),
        ("throughput", "Throughput: of a worker per second while all its slots are full."),
        ("latency alone", "Alone: one sample in flight, estimated from those that ran again one at a time."),
    ]
    return _of_each_run("latency", "Latency", runs, columns, caption)


def _efficiency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of fallback rates and tokens."""
    columns: list[OfRun] = [
        *(column for one in MEASURES.values() if "report" in one.shown for column in _of_measure(one.name)),
        ("decisions", lambda run: str(run.summary.num_decisions or NOTHING)),
        *(column for name in _TOKENS for column in _of_measure(name, None, has_interval=False)),
        *_of_measure("target_nats_per_token", 4),
    ]
    caption = [
        ("fallback", "Fallback: share of the decisions (verdicts, or the method's own) that rejected every candidate."),
        ("emitted", "Emitted: tokens of the accepted chain."),
        ("spent", "Spent: all output tokens of all calls, including rejected candidates and verdicts."),
        ("critical-path", "Critical path: tokens that a user waits for, of parallel candidates only the longest."),
    ]
    return _of_each_run("efficiency", "Fallback and tokens", runs, columns, caption)


def _pairs(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of what is known of runs and runs of the target alone that are both in the report."""
    members = {run.summary.run_id: run for run in runs}
    kinds = (("ratio_of_means", 2), ("rate_ratio", 2), ("chain_length_ratio", 2), ("speed_up_at_one", 2),
             ("distance_from_target", 4))  # fmt: skip
    rows: list[tuple[RunFacts, Sequence[Cell]]] = []
    for run in runs:
        for pair in run.summary.against:
            if pair.baseline_run_id in members:
                cells: list[Cell] = [members[pair.baseline_run_id].label]
                for kind, digits in kinds:
                    one = pair.measures.get(kind)
                    cells += [fixed(one.value, digits), span(one.low_95, one.high_95, digits)] if one else [NOTHING] * 2
                rows.append((run, cells))
    names = ("ratio of means ×", "tokens/s ×", "chain length ×", "speed-up alone ×", "distance in nats")
    headers = ["baseline", *(header for name in names for header in (name, "95 % interval"))]
    caption = [
        ("", "Of a run and the target alone under the same conditions, over the problems that both have."),
        ("ratio of means", "Ratio of means: mean latency of the baseline divided by that of the run."),
        ("tokens/s", "tokens/s, chain length: divided by those of the baseline; speed-up is the first by the second."),
        ("speed-up alone", "Alone: with one sample in flight."),
        (
            "distance",
            "Distance: negative log-probability per token of the accepted text under the target, minus that of the "
            "target's own chains (jobs target-logprobs).",
        ),
    ]
    return _table("pairs", "Against the target alone", headers, rows, caption)


def _costs(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of device time."""
    rows: list[tuple[RunFacts, Sequence[Cell]]] = []
    for run in runs:
        finished = run.summary.finished
        for cost in run.costs:
            per_each = [
                number(3600 * cost.work_hours / count if count else None)
                for count in (finished, run.summary.verdicts.get("correct", 0))
            ]
            hours = (number(cost.work_hours), number(cost.start_hours))
            rows.append((run, (cost.device, str(cost.num_attempts), *hours, *per_each)))
    headers = (
        "device", "worker attempts", "device-hours of work", "of starts", "device-seconds per sample",
        "device-seconds per correct answer",
    )  # fmt: skip
    caption = (
        "Devices of each worker (without a GPU: workers) × time from its start to the end of its last call (work), and "
        "× the start-up time of its engines. Per sample and per correct answer is work alone, because a start that "
        "runs share counts for the first of them. Not included: attempts that finished no sample, and time in the "
        "scheduler's queue."
    )
    return _table("cost", "Cost", headers, rows, [("", caption)])


def limited_label(run: RunFacts) -> str:
    """Return a run's label, marked if it is limited to some of the dataset's problems."""
    return f"{run.label} (LIMITED)" if run.summary.limited else run.label


def _conditions(runs: Sequence[RunFacts], manifests: Mapping[str, Manifest]) -> RunTable:
    """Return the table with what differs, in a column for each run, and behind it what all runs have in common."""
    of_runs = [manifests[run.summary.run_id] for run in runs]
    matters = {found.name: found.matter for found in differences(of_runs)}
    lines = {
        "run": [run.summary.run_id for run in runs],
        **{
            name: [one.values.get(name, NOTHING) for one in of_runs]
            for name in dict.fromkeys(name for one in of_runs for name in one.values)
        },
        "problems run": [f"{run.summary.n} of {run.summary.dataset_size}" for run in runs],
        "planned (UTC)": [run.conditions["created_at"].strftime("%Y-%m-%d %H:%M") for run in runs],
    }
    lines["parameters"] = [", ".join(f"{n} {v}" for n, v in json.loads(text).items()) for text in lines["parameters"]]
    own = ("run", "problems run", "planned (UTC)")
    different = {
        name: cells for name, cells in lines.items() if name in matters or (name in own and len(set(cells)) > 1)
    }
    equal = {name: next((cell for cell in cells if cell != NOTHING), NOTHING) for name, cells in lines.items()}
    common = {name: cell for name, cell in equal.items() if name not in different and cell not in ("none", UNKNOWN)}
    differs = frozenset(
        place for place, name in enumerate(different) if matters.get(name, "note") not in ("note", "subject")
    )
    if len(runs) > 1:
        headers = ["setting", "all runs", *(run.label for run in runs)]
        rows = [(name, "", *cells) for name, cells in different.items()]
        rows += [(name, cell, *("" for _ in runs)) for name, cell in common.items()]
    else:
        headers, rows = ["setting", runs[0].label], list(common.items())
    caption = "Marked lines differ between the runs and affect results." if differs else ""
    columns = [Column(header) for header in headers]
    title = "Settings and environment"
    return RunTable(columns, rows, [caption], title, "conditions", is_sortable=False, differs=differs)
