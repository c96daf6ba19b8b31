"""The report's sections: charts and tables in order, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.cli.number_format import number, percent, span
from warehouse.report import differences, distance, queries
from warehouse.report import run_tables as tables
from warehouse.report.charts import Bar, Dot, Dots, Point, Scatter, StackedBars
from warehouse.report.differences import Differences
from warehouse.report.distance import Distances
from warehouse.report.facts import RunFacts, over_the_same_problems
from warehouse.report.queries import behind
from warehouse.report.run_tables import Figure, Section


def sections(runs: Sequence[RunFacts], compared: Differences, distances: Distances) -> list[Section]:
    """Return everything above the trace viewer, without tables and sections that would be empty."""
    candidates = [
        Section("results", "Results", _by_problems(_accuracy, runs), [tables.results(runs), tables.verdicts(runs)]),
        differences.section(runs, compared),
        Section(
            "trade-off",
            "Accuracy against latency",
            _by_problems(_trade_offs, runs),
            [tables.latency(runs), tables.speed_ups(runs), tables.latencies_at_one(runs)],
        ),
        distance.section(runs, distances),
        Section(
            "speculation",
            "Fallback and tokens",
            [*_by_problems(_fallback, runs), *_by_problems(_tokens, runs)],
            [tables.efficiency(runs)],
        ),
        Section("cost", "Cost", (), [tables.costs(runs)]),
        Section("conditions", "Settings and environment", (), [tables.conditions(runs)]),
    ]
    filled = [replace(section, tables=[table for table in section.tables if table.rows]) for section in candidates]
    return [section for section in filled if section.figures or section.tables]


def _by_problems(draw: Callable[[Sequence[RunFacts]], list[Figure]], runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figures of every group over the same problems: others are not drawn side by side."""
    groups = over_the_same_problems(runs)
    if len(groups) == 1:
        return draw(runs)
    return [
        replace(figure, title=f"{figure.title} ({name})", name=f"{figure.name}-problems-{number}")
        for number, (name, members) in enumerate(groups.items(), start=1)
        for figure in draw(members)
    ]


def _accuracy(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = []
    for run in runs:
        if (result := run.accuracy) is not None:
            interval = "" if result.low is None else f"  ({span(result.low, result.high, 1)})"
            value = f"{percent(result.value / 100)}{interval}{_of_planned(run)}"
            marks.append(Dot(run.label, run.place, result, value))
    if not marks:
        return []
    ks = sorted({run.summary.k for run in runs})
    name = f"pass@1[avg-of-{ks[0]}]" if len(ks) == 1 else "pass@1"
    n = min(run.summary.n for run in runs)
    caution = f"With only {n} problems the interval itself is imprecise. " if n < 30 else ""
    caption = (
        f"Mark: mean over problems. Line: 95 % interval over problems. {caution}"
        "The axis does not necessarily start at zero."
    )
    if len(marks) < len(runs):
        caption += f" Runs without graded samples are not drawn: {len(runs) - len(marks)}."
    chart = Dots(marks, f"{name} (%)", "Accuracy of each run with its interval", high=100.0)
    return [Figure("accuracy", f"{name}, percent", chart, caption, sql=behind(queries.ACCURACY, runs))]


def _of_planned(run: RunFacts) -> str:
    """Return how many samples an unfinished run's accuracy is over."""
    s = run.summary
    return f", {s.num_result_samples} of {s.planned} samples" if s.is_unfinished else ""


def _trade_offs(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return a figure for each dataset and set of conditions, because times under other conditions do not compare."""
    groups: dict[tuple[str, int, str], list[tuple[RunFacts, Point]]] = {}
    for run in runs:
        if (latency := run.estimate("latency_seconds")) is not None and run.accuracy is not None:
            devices = str(run.conditions["device_kinds"] or "unknown device")
            words = f"pass@1 {percent(run.accuracy.value / 100)}, {latency.value:.3g} s{_of_planned(run)}"
            point = Point(run.label, run.place, latency.scaled(), run.accuracy, words)
            groups.setdefault((run.summary.dataset, run.summary.concurrency, devices), []).append((run, point))
    figures: list[Figure] = []
    for (dataset, concurrency, devices), members in groups.items():
        axes = ("mean latency per sample (s)", "pass@1 (%)")
        chart = Scatter([point for _, point in members], *axes, "Accuracy against latency, one mark per run")
        caption = (
            "Up and to the left is better. Lines: 95 % intervals over problems, of accuracy (vertical) and of mean "
            "latency (horizontal)."
        )
        if concurrency > 1:
            caption += (
                f" {concurrency} samples in flight shared the engines, so a sample's time includes waiting for the "
                "others."
            )
        name = f"trade-off-{len(figures) + 1}" if figures else "trade-off"
        title, drawn = f"{dataset}, {concurrency} in flight, {devices}", [run for run, _ in members]
        keyed, sql = [run.place for run in drawn], behind(queries.TRADE_OFF, drawn)
        figures.append(Figure(name, title, chart, caption, keyed, sql))
    return figures


def _fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = [
        Dot(
            run.label,
            run.place,
            fallback.scaled(100, 1.0),
            f"{percent(fallback.value)} of {run.summary.num_decisions}",
        )
        for run in runs
        if (fallback := run.estimate("fallback_rate")) is not None
    ]
    if not marks:
        return []
    caption = (
        "Share of the decisions that rejected every candidate, so that the target wrote the step. Line: 95 % "
        "interval over problems of the ratio of sums over problems."
    )
    chart = Dots(marks, "fallback rate (% of decisions)", "Fallback rate of each run with its interval", high=100.0)
    return [Figure("fallback", "Fallback rate", chart, caption, sql=behind(queries.FALLBACK, runs))]


def _tokens(runs: Sequence[RunFacts]) -> list[Figure]:
    bars = []
    for run in runs:
        for kind in ("emitted", "spent", "critical path"):
            measure = f"{kind.replace(' ', '_')}_tokens"
            parts = {model: own[measure].value for model, own in run.summary.by_role.items()}
            label = f"{run.label}: {kind}" if kind == "emitted" else kind
            if parts:
                bars.append(Bar(label, parts, number(sum(parts.values())), kind == "emitted"))
    if not bars:
        return []
    caption = "Tokens per finished sample by the model that generated them, mean over samples; what is counted: below."
    names = {"draft": "draft", "target": "target", "reward": "reward model"}
    chart = StackedBars(bars, "tokens per sample", "Tokens by model", "tokens", names)
    return [Figure("tokens", "Token split", chart, caption, sql=behind(queries.TOKENS, runs))]
