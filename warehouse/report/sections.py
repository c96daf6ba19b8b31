"""Sections of a report: charts and tables with captions. HTML, Markdown and LaTeX share the tables."""

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
from warehouse.comparison.manifests import UNKNOWN, Manifest, are_files_implied, differences, sweeps
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.database import Connection, WarehouseError, literal
from warehouse.measures import MEASURES
from warehouse.report.charts import Bar, Chart, Curve, Dot, Dots, Look, Reference, Scatter, StackedBars
from warehouse.report.facts import RunFacts, other_problems, over_the_same_problems, scaled
from warehouse.report.summary import labels, plain
from warehouse.statistics.intervals import Interval
from warehouse.statistics.shares import LARGEST_SHARE


@dataclass(frozen=True)
class RunTable(Table):
    """A table of the report. The first column contains row labels."""

    name: str = ""
    """CSS class in HTML, and label in LaTeX."""
    places: Sequence[int] = ()
    """For each row, the index of its run in the report, which selects the marker. Empty: no markers."""
    is_sortable: bool = True
    """Whether readers can sort the rows in the page."""
    differs: frozenset[int] = frozenset()
    """Indices of highlighted rows: settings that differ between runs and affect results."""
    is_folded: bool = False
    """Whether the table is collapsed in the page."""


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    name: str
    """File name of the chart without extension, unique in the report."""
    title: str
    chart: Chart
    caption: str
    keyed: Sequence[tuple[Look, str]] = ()
    """Legend below the chart: look and label."""
    sql: str = ""
    """SQL of the figure's data, for `warehouse.query`."""
    command: str = ""
    """Command that prints the figure's data, if `sql` is empty."""
    tab: str = ""
    """Label of the figure's tab; empty: no tabs."""
    partial: str = ""
    """Note on partial runs in the figure; empty if there are none."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """HTML anchor."""
    title: str
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[RunTable] = field(default=())

    @property
    def tabs(self) -> dict[str, list[Figure]]:
        """Figures by tab."""
        return {tab.tab: [one for one in self.figures if one.tab == tab.tab] for tab in self.figures}


@dataclass(frozen=True)
class Compared:
    """The comparison of the report's runs."""

    comparison: Comparison | None
    reasons: Sequence[str] = ()
    """Why runs are missing from the comparison, or why there is no comparison."""

    @property
    def rows(self) -> dict[str, Row]:
        """Comparison rows by run id."""
        return {row.run.run_id: row for row in self.comparison.rows} if self.comparison else {}

    def cell(self, read: Callable[[Row], Cell]) -> Callable[[RunFacts], Cell]:
        """Return a function that applies `read` to a run's row in the comparison, or returns NOTHING without a row."""
        return lambda run: read(row) if (row := self.rows.get(run.summary.run_id)) else NOTHING


def read_comparison(
    connection: Connection, run_ids: Sequence[str], settings: Settings, baseline: str | None = None
) -> Compared:
    """Compare the runs as `warehouse.compare` does.

    If that fails, compare only the runs that share a problem with the first run on their dataset. With `baseline`, a
    run id, a failure raises WarehouseError instead.
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
    """Return the sections above the trace viewer. Empty tables and sections are omitted."""
    members = {run.summary.run_id: run for run in runs}
    trade_offs = _grouped(partial(_trade_offs, manifests), runs, of_times=True)
    speculation = _grouped(lambda some: [*tokens(some), *_fallback(some)], runs)
    contrasts = _grouped(partial(_differences, members, compared), runs)
    candidates = [
        Section("results", "Results", (), [_results(runs, compared), _details(runs, compared), _verdicts(runs)]),
        Section("trade-off", "Accuracy against latency", trade_offs, [_latency(runs)]),
        Section("budgets", "Accuracy against token budget", _grouped(_budgets, runs)),
        Section("speculation", "Tokens and fallback", speculation, [_efficiency(runs)]),
        Section("differences", "Differences", contrasts, [_pairs(runs)]),
        Section("conditions", "Settings", (), [*_conditions(runs, manifests), _costs(runs)]),
    ]
    filled = [replace(section, tables=[table for table in section.tables if table.rows]) for section in candidates]
    return [section for section in filled if section.figures or section.tables]


def report_warnings(runs: Sequence[RunFacts]) -> tuple[str, list[str]]:
    """Return a summary line with each kind of warning and its runs, and one line per distinct warning with its runs."""
    names, kinds = {run.summary.run_id: run.label for run in runs}, dict[str, dict[str, RunFacts]]()
    told = [(run, line) for run in runs for line in run.summary.warnings if not line.startswith("PARTIAL RUN")]
    for run, line in told:
        kinds.setdefault(line.partition(":")[0].capitalize(), {})[run.summary.run_id] = run
    limited = [f"{some}; not comparable with published results."] if (some := _partial(runs, runs)) else []
    others = other_problems(runs)
    brief = [*limited, *(f"{kind}: {_which([*own.values()], runs)}." for kind, own in kinds.items())]
    brief += ["Different problems."] if others else []
    lines = [*limited, *show.merged((f"{run.summary.run_id}: {line}" for run, line in told), names), *others]
    return " ".join(brief) if len(lines) > 1 else "".join(lines), lines


def _partial(some: Sequence[RunFacts], runs: Sequence[RunFacts]) -> str:
    """Return the partial runs among `some` with their numbers of problems, as a phrase; empty if there are none."""
    sizes: dict[str, list[RunFacts]] = {}
    for run in some:
        if run.summary.limited:
            sizes.setdefault(f"{run.summary.n} of {run.summary.dataset_size} problems", []).append(run)
    parts = [size if len(own) == len(some) else f"{size}: {_which(own, runs)}" for size, own in sizes.items()]
    return f"Partial runs: {'; '.join(parts)}" if parts else ""


def _which(some: Sequence[RunFacts], runs: Sequence[RunFacts]) -> str:
    """Return a phrase for the distinct runs `some`: "all runs", "all with N in flight", or their labels."""
    if len(some) == len(runs):
        return "all runs"
    [in_flight, *others] = {run.summary.concurrency for run in some}
    if not others and len(some) == sum(run.summary.concurrency == in_flight for run in runs):
        return f"all with {in_flight} in flight"
    return ", ".join(run.label for run in some)


def _behind(runs: Sequence[RunFacts], *metrics: str) -> str:
    """Return SQL that selects these metrics of the runs, to paste into `warehouse.query`."""
    ids, names = (", ".join(map(literal, texts)) for texts in ((run.summary.run_id for run in runs), metrics))
    return (
        "SELECT run_id, metric, role, n, estimate, low_95, high_95 FROM counted_estimate\n"
        f"WHERE metric IN ({names}) AND run_id IN ({ids}) ORDER BY ALL"
    )


def _grouped(
    draw: Callable[[Sequence[RunFacts]], list[Figure]], runs: Sequence[RunFacts], *, of_times: bool = False
) -> list[Figure]:
    """Return the figures of each group of comparable runs, with one tab per group.

    Runs of a group have the same regime and problems; with of_times, also the same concurrency and devices.
    """
    groups: dict[tuple[str, ...], list[RunFacts]] = {}
    for problems, run in ((problems, run) for problems, own in over_the_same_problems(runs).items() for run in own):
        times = (str(run.summary.concurrency), str(run.conditions["device_kinds"])) if of_times else ()
        groups.setdefault((run.summary.regime, problems, *times), []).append(run)
    keys = sorted(groups, key=lambda key: key[0])
    drawn = [(key, groups[key], figures) for key in keys if (figures := draw(groups[key]))]
    tabs = [""] * len(drawn)
    for aspect in zip(*((_in_flight(group), *key[1:]) for key, group, _ in drawn), strict=True):
        if len(set(tabs)) < len(tabs) and len(set(aspect)) > 1:
            tabs = [", ".join(filter(None, pair)) for pair in zip(tabs, aspect, strict=True)]
    return [
        replace(
            one,
            name=f"{one.name}-{place + 1}" if place else one.name,
            title=f"{one.title} ({tab})" if tab else one.title,
            tab=tab,
            partial=_partial(group, runs),
        )
        for place, (tab, (_, group, figures)) in enumerate(zip(tabs, drawn, strict=True))
        for one in figures
    ]


def _in_flight(runs: Sequence[RunFacts]) -> str:
    numbers = sorted({run.summary.concurrency for run in runs})
    return f"{' to '.join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))} in flight"


def _of_planned(run: RunFacts) -> str:
    """Return the available and planned samples of an unfinished run, as a suffix; empty for a finished run."""
    s = run.summary
    return f", {s.num_result_samples} of {s.planned} samples" if s.is_unfinished else ""


def _differences(members: Mapping[str, RunFacts], compared: Compared, runs: Sequence[RunFacts]) -> list[Figure]:
    """Return one figure per baseline that any of `runs` is compared with. members: all runs by run id."""
    some = {run.summary.run_id for run in runs}
    rows_by_baseline: dict[str, list[Row]] = {}
    for row in compared.comparison.rows if compared.comparison else ():
        if row.contrast is not None and row.run.run_id in some:
            rows_by_baseline.setdefault(row.contrast.baseline, []).append(row)
    return [
        _difference(
            members, compared, rows, members[baseline], f"differences-against-{place + 1}" if place else "differences"
        )
        for place, (baseline, rows) in enumerate(rows_by_baseline.items())
    ]


def _difference(
    members: Mapping[str, RunFacts], compared: Compared, rows: Sequence[Row], baseline: RunFacts, name: str
) -> Figure:
    assert compared.comparison is not None
    dots = []
    for row in rows:
        assert row.contrast is not None
        found, run = row.contrast.difference, members[row.run.run_id]
        low, high = (None if end is None else 100 * end for end in (found.low, found.high))
        estimate, interval, *_ = show.contrast_cells(row.contrast)
        value = replace(found, estimate=100 * found.estimate, low=low, high=high)
        dots.append(Dot(run.name, run.look, value, estimate if low is None else f"{estimate} ({interval})"))
    margin = 100 * compared.comparison.settings.margin
    chart = Dots(
        dots,
        "difference in pass@1 (points)",
        "Accuracy difference between each run and its baseline, with interval",
        low=-100.0,
        high=100.0,
        references=[Reference(0.0, is_dashed=False), Reference(-margin, is_dashed=True)],
    )
    caption = (
        "Mean over shared problems, from the samples that both runs have, paired by problem. Bars: 95 % CI. "
        f"Dashed line: margin (−{margin:g} points)."
    )
    ids = " ".join(quote(run_id) for run_id in compared.rows)
    command = f"python -m warehouse.compare {ids} --margin {margin:g} --all"
    return Figure(name, f"pass@1 difference from {baseline.name}", chart, caption, command=command)


def _trade_offs(manifests: Mapping[str, Manifest], runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of accuracy against latency, for runs with comparable times."""
    drawn, points = list[RunFacts](), list[Dot]()
    for run in runs:
        if (latency := run.estimate("latency_seconds")) is not None and run.accuracy is not None:
            words = f"pass@1 {percent(run.accuracy.estimate / 100)}, {latency.estimate:.3g} s{_of_planned(run)}"
            drawn.append(run)
            points.append(Dot(run.name, run.look, scaled(latency), words, run.accuracy))
    if not points:
        return []
    axes = (f"mean latency per sample (s), {_in_flight(drawn)}", "pass@1 (%)")
    curves, front = _curves(drawn, manifests), pareto_front(points) if len(points) > 1 else []
    chart = Scatter(points, *axes, "Accuracy against latency, one mark per run", curves, front)
    caption = "Up and left is better. Bars: 95 % CI over problems."
    if curves:
        caption += " Lines connect runs that differ in one parameter; labels are its values."
    if front:
        names = "; ".join(f"{drawn[i].name}{_of_planned(drawn[i])}" for i in front)
        caption += f" Dashed line: Pareto front of the estimates ({names}). Overlapping intervals leave the order open."
    if drawn[0].summary.concurrency > 1:
        caption += " Latency is measured under the load of concurrent samples."
    title = f"{drawn[0].summary.dataset}, {drawn[0].conditions['device_kinds'] or 'unknown device'}"
    sql = _behind(drawn, "graded_pass_at_1", "latency_seconds")
    return [Figure("trade-off", title, chart, caption, chart.key, sql)]


def _curves(runs: Sequence[RunFacts], manifests: Mapping[str, Manifest]) -> list[Curve]:
    """Return a curve for each parameter sweep among the runs."""
    places = {run.summary.run_id: i for i, run in enumerate(runs)}
    found = sweeps([manifests[run_id] for run_id in places])
    of_sweeps = [[places[run_id] for run_id in sweep.runs.values()] for sweep in found]
    names = labels([runs[points[0]].summary for points in of_sweeps])
    return [
        Curve(f"{name}, {sweep.parameter.replace('_', ' ')}", points, list(map(plain, sweep.runs)))
        for name, sweep, points in zip(names, found, of_sweeps, strict=True)
    ]


def _budgets(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of accuracy by token budget, if any run has a budget sweep."""
    points, curves = list[Dot](), list[Curve]()
    for run in runs:
        newest = [row for row in run.budgets if row["run_id"] == run.budgets[-1]["run_id"]]
        sweep = [row for row in newest if row["pass_at_1"] is not None]
        how = "" if all(row["is_exact"] for row in sweep) else ", not re-planned"
        curves.append(Curve(f"{run.name}{how}", range(len(points), len(points) + len(sweep))))
        for row in sweep:
            budget = Interval(row["budget"], None, None, None, "none: it is chosen")
            ends = (row["low_95"], row["high_95"], row["standard_error"], row["interval_kind"])
            right = scaled(Interval(row["pass_at_1"], *ends), 100, 1.0)
            text = f"{fixed(right.estimate, 1)} % within {number(row['budget'])} tokens"
            points.append(Dot(run.name, run.look, budget, text, right))
    if not points:
        return []
    axes = ("token budget per chain (tokens)", "pass@1 within the budget (%)")
    chart = Scatter(points, *axes, "Accuracy against token budget, one line per run", [c for c in curves if c.points])
    caption = (
        "pass@1 of each run's chains at each token budget. A longer chain is truncated at the budget, and an answer is "
        "generated; its tokens are not counted. A missing verdict counts as incorrect. Not re-planned: a method that "
        "plans by its budget may do better. Bars: 95 % CI over problems (none if a verdict is missing)."
    )
    swept = ", ".join(literal(run.budgets[-1]["run_id"]) for run in runs if run.budgets)
    sql = (
        "SELECT run_id, group_value AS budget, n, estimate, low_95, high_95 FROM counted_estimate\n"
        f"WHERE metric = 'accuracy_at_budget' AND run_id IN ({swept}) ORDER BY run_id, budget::INT"
    )
    return [Figure("budgets", "Accuracy against token budget", chart, caption, chart.key, sql)]


def pareto_front(points: Sequence[Dot]) -> list[int]:
    """Return the indices of the Pareto-optimal points (low x, high y), from left to right.

    Equal points do not dominate each other.
    """
    places = [(p.x.estimate, -p.y.estimate) for p in points if p.y]
    front = [i for i, (x, y) in enumerate(places) if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in places)]
    return sorted(front, key=places.__getitem__)


def _fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = [
        Dot(run.name, run.look, scaled(rate, 100, 1.0), f"{percent(rate.estimate)} of {run.summary.num_decisions}")
        for run in runs
        if (rate := run.estimate("fallback_rate")) is not None
    ]
    caption = (
        "Share of decisions that rejected every candidate. "
        f"Bars: 95 % CI over problems (no bar if one problem or family has more than {100 * LARGEST_SHARE:g} % of "
        "the decisions)."
    )
    chart = Dots(marks, "fallback rate (% of decisions)", "Fallback rate per run, with interval", high=100.0)
    sql = _behind(runs, "fallback_rate")
    return [Figure("fallback", "Fallback rate", chart, caption, sql=sql)] if marks else []


_TOKENS = ("emitted_tokens", "spent_tokens", "critical_path_tokens")
_TOKEN_COUNTS = (
    "Emitted: accepted chain. Spent: all calls, including rejected candidates and verdicts. "
    "Critical path: tokens in sequence; of parallel candidates, only the longest."
)


def tokens(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of tokens by model, if any sample is finished."""
    bars = []
    for run in runs:
        for kind in ("emitted", "spent", "critical_path"):
            parts = {model: own[f"{kind}_tokens"].value for model, own in run.summary.by_role.items()}
            label = f"{run.name}: emitted" if kind == "emitted" else kind.replace("_", " ")
            if parts:
                bars.append(Bar(label, parts, number(sum(parts.values())), kind == "emitted"))
    title, names = "Tokens per sample, by model", {"draft": "draft", "target": "target", "reward": "reward model"}
    chart = StackedBars(bars, "tokens per sample", "Tokens by model", "tokens", names)
    return [Figure("tokens", title, chart, _TOKEN_COUNTS, sql=_behind(runs, *_TOKENS))] if bars else []


OfRun = tuple[str, Callable[[RunFacts], Cell]]
"""A column: its header, and a function from a run to its cell."""
Caption = Sequence[tuple[str, str]]
"""(column prefix, sentence) pairs: a sentence is shown if a column starts with the prefix."""


def _table(
    name: str, title: str, headers: Sequence[str], rows: Sequence[tuple[RunFacts, Sequence[Cell]]], caption: Caption
) -> RunTable:
    """Return a collapsed table of runs, without empty columns and the caption's sentences about them."""
    kept = [place for place in range(len(headers)) if any(cells[place] != NOTHING for _, cells in rows)]
    columns = [Column("run"), *(Column(headers[place], is_right=True) for place in kept)]
    cells = [(_marked(run), *(values[place] for place in kept)) for run, values in rows]
    told = " ".join(text for start, text in caption if any(headers[place].startswith(start) for place in kept))
    places = [run.place for run, _ in rows]
    return RunTable(columns, cells, [told] if told else (), title, name, places, is_folded=True)


def _marked(run: RunFacts) -> str:
    return f"{run.label} (partial)" if run.summary.limited else run.label


def _of_each_run(
    name: str, title: str, runs: Sequence[RunFacts], columns: Sequence[OfRun], caption: Caption
) -> RunTable:
    """Return a collapsed table with one row per run."""
    rows = [(run, [read(run) for _, read in columns]) for run in runs]
    return _table(name, title, [header for header, _ in columns], rows, caption)


def _of_measure(name: str, digits: int | None = 1) -> OfRun:
    """Return the column of a metric with its interval. digits: decimals; None: significant digits."""
    measure = MEASURES[name]
    factor, unit, highest = (100, "%", 1.0) if measure.is_percent else (1, measure.unit, math.inf)
    title = measure.title or name.replace("_", " ")

    def read(run: RunFacts) -> str:
        found = run.estimate(name)
        return _with_interval(scaled(found, factor, highest), digits) if found else NOTHING

    return title if unit in title else f"{title} {unit}", read


def _with_interval(found: Interval, digits: int | None) -> str:
    shown = [number(x) if digits is None else fixed(x, digits) for x in (found.estimate, found.low, found.high)]
    return shown[0] if found.low is None else f"{shown[0]} ({shown[1]} to {shown[2]})"


def _joined(estimate: str, interval: str) -> str:
    return estimate if interval == NOTHING else f"{estimate} ({interval})"


_OF_PLANNED = "n × k: for unfinished runs, followed by the available and planned samples in parentheses."


def _results(runs: Sequence[RunFacts], compared: Compared) -> RunTable:
    """Return the main table, with differences and speed-ups as in `warehouse.compare`."""
    one = compared.comparison
    columns: list[OfRun] = [
        *([("dataset", lambda run: run.summary.dataset)] if len({run.summary.dataset for run in runs}) > 1 else []),
        ("pass@1 %", lambda run: _with_interval(run.accuracy, 1) if run.accuracy else NOTHING),
        ("difference", compared.cell(lambda row: _joined(*show.contrast_cells(row.contrast, 1)[:2]))),
        ("not worse", compared.cell(lambda row: show.contrast_cells(row.contrast)[5])),
        ("speed-up", compared.cell(lambda row: _joined(*show.speed_cells(row.speed)))),
        ("fallback", lambda run: show.speculation(run.summary)[1]),
        ("draft's share", lambda run: show.speculation(run.summary)[0]),
        ("n × k", _size),
    ]
    has_sides = one is not None and any(row.speed and row.speed.sides for row in one.rows)
    sides = " In parentheses: numbers of GPUs and of runs, as run : baseline." if has_sides else ""
    told = [*compared.reasons, *((*show.pairing_warnings(one), *show.limits(one)) if one else ())]
    names = {run.summary.run_id: run.label for run in runs}
    limits = [show.renamed(line, names) for line in told]
    caption = [
        ("", f"Parentheses after pass@1{', difference and speed-up' if one else ''}: 95 % CI."),
        ("pass@1", "pass@1: mean over problems of the share of available samples that are correct."),
        *(_contrast_caption(one) if one else ()),
        ("speed-up", f"Speed-up: baseline latency divided by run latency, geometric mean over problems.{sides}"),
        ("fallback", "Fallback: share of decisions that rejected every candidate."),
        ("draft", "Draft's share: share of emitted tokens."),
        *([("n ×", _OF_PLANNED)] if any(run.summary.is_unfinished for run in runs) else ()),
        *(("", line if line.endswith(".") else f"{line}.") for line in limits),
    ]
    return replace(_of_each_run("results", "Results", runs, columns, caption), is_folded=False)


def _contrast_caption(comparison: Comparison) -> Caption:
    contrasts = [row.contrast for row in comparison.rows if row.contrast]
    one_method = any(contrast.is_same_subject for contrast in contrasts)
    of_reruns = " (between runs of one method: for rerunning these problems)" if one_method else ""
    return [
        (
            "difference",
            f"Difference: percentage points from the baseline, paired by problem; CI for similar problems{of_reruns}.",
        ),
        (
            "not worse",
            f"Not worse: above −{100 * comparison.settings.margin:g} points even if single problems may be lost "
            "entirely. Worse: a loss with Holm-adjusted p below 0.05.",
        ),
    ]


def _details(runs: Sequence[RunFacts], compared: Compared) -> RunTable:
    """Return the table of accuracy statistics, with the baselines and the methods of the intervals."""
    columns: list[OfRun] = [
        ("n × k", _size),
        ("re-run SE", lambda run: fixed(getattr(run.summary.result, "rerun_standard_error", None), 2, 100)),
        ("once complete %", _once_complete),
        ("on these", compared.cell(lambda row: show.on_these_cell(row.contrast))),
    ]
    graders = "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))
    shown = ("95 %", "on these")
    told = [*show.baseline_lines(one), *show.contrast_legend(one, shown)] if (one := compared.comparison) else []
    about = [show.renamed(line, {run.summary.run_id: run.label for run in runs}) for line in told]
    caption = [
        ("re-run SE", "Re-run SE: standard error of pass@1 over reruns of the same problems, in percentage points."),
        ("once complete", "Once complete: pass@1 if all missing samples are wrong, and if all are correct."),
        *([("n ×", _OF_PLANNED)] if any(run.summary.is_unfinished for run in runs) else ()),
        *(("", line) for line in (f"Grader: {graders}.", *about)),
    ]
    return _of_each_run("statistics", "Statistics", runs, columns, caption)


def _size(run: RunFacts) -> str:
    s = run.summary
    return f"{s.n} × {s.k}" + (f" ({s.num_result_samples} of {s.planned})" if s.is_unfinished else "")


def _once_complete(run: RunFacts) -> str:
    s = run.summary
    return span(s.pass_at_1, s.highest_pass_at_1, 2, 100) if s.result and s.is_unfinished else NOTHING


def _verdicts(runs: Sequence[RunFacts]) -> RunTable:
    """Return the verdict counts."""
    headers = [*(kind.replace("_", " ") for kind in VERDICTS), "sum"]
    counts = [[run.summary.verdicts.get(kind, 0) for kind in VERDICTS] for run in runs]
    rows = [(run, [*map(str, own), str(sum(own))]) for run, own in zip(runs, counts, strict=True)]
    caption = 'Sum: problems × samples. "not run" includes finished samples without a grade.'
    return _table("verdicts", "Verdicts", headers, rows, [("", caption)])


def _latency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of latency and throughput."""

    def alone(run: RunFacts) -> Cell:
        timed = run.summary.measures.get("latency_at_one")
        return f"{run.summary.num_timed_at_one} of {timed.num_samples}" if timed else NOTHING

    columns: list[OfRun] = [
        ("in flight", lambda run: str(run.summary.concurrency)),
        ("devices", lambda run: run.conditions["devices"] or NOTHING),
        ("samples timed", lambda run: str(run.summary.num_timed)),
        _of_measure("latency_seconds", None),
        ("median s", lambda run: number(run.summary.median_latency_seconds)),
        ("95th percentile s", lambda run: number(run.conditions["p95_seconds"])),
        _of_measure("samples_per_second", None),
        _of_measure("emitted_tokens_per_second", None),
        ("samples rerun alone", alone),
        _of_measure("latency_at_one", None),
    ]
    caption = [
        (
            "",
            "Times cover only samples finished in one attempt without an error. "
            "Means are over problems, "
            "percentiles over samples.",
        ),
        ("", "Compare only runs with the same number of samples in flight and the same devices."),
        ("throughput", "Throughput and emitted tokens/s: per worker while all slots are in use."),
        ("latency alone", "Latency alone: with one sample in flight, estimated from samples rerun one at a time."),
    ]
    return _of_each_run("latency", "Latency details", runs, columns, caption)


def _efficiency(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of fallback rates and token counts."""
    columns: list[OfRun] = [
        *(_of_measure(one.name) for one in MEASURES.values() if "report" in one.shown),
        ("decisions", lambda run: str(run.summary.num_decisions or NOTHING)),
        *(_of_measure(name, None) for name in _TOKENS),
        _of_measure("target_nats_per_token", 4),
    ]
    caption = [
        ("fallback", "Fallback rate: share of decisions that rejected every candidate."),
        ("decisions", "Decisions: verdicts, or method-specific decisions."),
        ("draft", "Draft's share: share of emitted tokens."),
        ("emitted", _TOKEN_COUNTS),
    ]
    return _of_each_run("efficiency", "Token and fallback details", runs, columns, caption)


def _pairs(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of paired metrics, for runs whose baselines are in the report."""
    members = {run.summary.run_id: run for run in runs}
    kinds = {
        "ratio_of_means": "ratio of means ×", "rate_ratio": "tokens/s ×", "chain_length_ratio": "chain length ×",
        "speed_up_at_one": "speed-up, 1 in flight ×", "distance_from_target": "distance in nats",
    }  # fmt: skip
    rows: list[tuple[RunFacts, Sequence[Cell]]] = []
    for run in runs:
        for pair in run.summary.against:
            if pair.baseline_run_id in members:
                found = [(pair.measures.get(kind), 4 if kind == "distance_from_target" else 2) for kind in kinds]
                cells = [_with_interval(one.as_interval, digits) if one else NOTHING for one, digits in found]
                rows.append((run, [members[pair.baseline_run_id].label, *cells]))
    caption = [
        ("", "Each run is compared with the target alone under the same conditions, over shared problems."),
        ("ratio of means", "Ratio of means: baseline's mean latency divided by the run's."),
        (
            "tokens/s",
            "tokens/s, chain length: the run's value divided by the baseline's. Speed-up = tokens/s ÷ chain length.",
        ),
        ("speed-up, 1", "1 in flight: ratio of mean latencies, from timing samples."),
        ("distance", "Distance: nats per token of the run's text under the target, minus the baseline's."),
    ]
    return _table("pairs", "Against the target alone", ["baseline", *kinds.values()], rows, caption)


def _costs(runs: Sequence[RunFacts]) -> RunTable:
    """Return the table of device time."""
    rows: list[tuple[RunFacts, Sequence[Cell]]] = []
    for run in runs:
        for cost in run.costs:
            counts = (run.summary.finished, run.summary.verdicts.get("correct", 0))
            per_each = (number(3600 * cost.work_hours / count if count else None) for count in counts)
            hours = (number(cost.work_hours), number(cost.start_hours))
            rows.append((run, (cost.device, str(cost.num_attempts), *hours, *per_each)))
    headers = (
        "device", "worker attempts", "device-hours of work", "device-hours of starts", "device-seconds per sample",
        "device-seconds per correct answer",
    )  # fmt: skip
    caption = (
        "Work: devices (without a GPU: workers) × time from start to last call. Starts: devices × engine start-up, "
        "counted once if several runs share it. Queue time and attempts without a finished sample are excluded. "
        "Per sample and per correct answer: work only."
    )
    return _table("cost", "Cost", headers, rows, [("", caption)])


def _conditions(runs: Sequence[RunFacts], manifests: Mapping[str, Manifest]) -> list[RunTable]:
    """Return the differing settings, and collapsed tables of differing ids and of equal settings."""
    of_runs = [manifests[run.summary.run_id] for run in runs]
    matters: dict[str, str] = {found.name: found.matter for found in differences(of_runs)}
    names = dict.fromkeys([*matters, *(name for one in of_runs for name in one.values)])
    lines = {name: [one.values.get(name, NOTHING) for one in of_runs] for name in names}
    lines["parameters"] = [", ".join(f"{n} {v}" for n, v in json.loads(text).items()) for text in lines["parameters"]]
    own = {
        "problems run": [f"{run.summary.n} of {run.summary.dataset_size}" for run in runs],
        "run": [run.summary.run_id for run in runs],
        "planned (UTC)": [run.conditions["created_at"].strftime("%Y-%m-%d %H:%M") for run in runs],
    }
    matters |= {name: "accuracy" if name == "problems run" else "note" for name in own if len(set(own[name])) > 1}
    lines |= own
    different, notes, equal = list[list[str]](), list[list[str]](), list[list[str]]()
    for name, cells in lines.items():
        if name not in matters:
            value = max(cells, key=lambda cell: cell != NOTHING)
            equal += [] if value in ("none", UNKNOWN) else [[name, value]]
        elif matters[name] == "note" or are_files_implied(name, lines):
            notes.append([name, *cells])
        else:
            different.append([name, *cells])
    marked = frozenset(place for place, (name, *_) in enumerate(different) if matters[name] != "subject")
    of_each = [Column("setting"), *(Column(run.label) for run in runs)]
    title, values = ("Equal settings", Column("all runs")) if len(runs) > 1 else ("Settings", of_each[1])
    table, told = partial(RunTable, is_sortable=False), ["≠: affects results."] if marked else ()
    return [
        table(of_each, different, told, "Settings that differ", "conditions", differs=marked),
        table(of_each, notes, (), "Ids and versions", "conditions-ids", is_folded=True),
        table([of_each[0], values], equal, (), title, "conditions-equal", is_folded=True),
    ]
