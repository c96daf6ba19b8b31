"""The report's sections: charts and tables in order, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from warehouse.formatting import percent, span
from warehouse.report import differences, distance, queries, tables, token_figures
from warehouse.report.charts import Bar, Dot, Dots, Point, Scatter, StackedBars
from warehouse.report.differences import Differences, drawn_together
from warehouse.report.distance import Distances
from warehouse.report.facts import Flips, RunFacts
from warehouse.report.tables import Figure, Section, Table, behind, conditions, latencies_at_one


def sections(
    runs: Sequence[RunFacts], flips: Sequence[Flips], compared: Differences, distances: Distances
) -> list[Section]:
    """Return everything above the trace viewer, without sections that would be empty."""
    speed = [*differences.tables_by_regime(tables.latency, runs), *differences.tables_by_regime(tables.speed_ups, runs)]
    speed += [table for table in (latencies_at_one(runs),) if table is not None]
    costs = tables.costs(runs)
    candidates = [
        differences.overview(compared),
        Section(
            "results",
            "Results",
            "Results",
            _by_problems(_accuracy, runs),
            differences.tables_by_regime(tables.results, runs),
        ),
        differences.section(runs, compared),
        Section("trade-off", "Accuracy against latency", "Trade-off", _by_problems(_trade_offs, runs), speed),
        distance.section(runs, distances, compared),
        Section(
            "speculation",
            "Fallback and tokens",
            "Speculation",
            [*_by_problems(token_figures.fallback, runs), *_by_problems(token_figures.tokens, runs)],
            differences.tables_by_regime(tables.efficiency, runs),
        ),
        Section("time", "Where the time goes", "Time", _by_problems(token_figures.latency_parts, runs)),
        Section(
            "acceptance",
            "Acceptance along the chain",
            "Acceptance",
            _by_problems(token_figures.acceptance, runs),
            tables.probe_tables(runs),
        ),
        Section("cost", "Cost", "Cost", (), [costs] if costs.rows else ()),
        Section("verdicts", "Verdicts", "Verdicts", _by_problems(_verdicts, runs), [tables.verdict_table(runs)]),
        Section("flips", "Flips", "Flips", (), [tables.flip_counts(runs, flips)] if flips else ()),
        Section("conditions", "Settings and environment", "Settings", (), [conditions(runs)]),
    ]
    return [section for section in candidates if section.figures or section.tables]


def _by_problems(draw: Callable[[Sequence[RunFacts]], list[Figure]], runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figures of every group of one regime over the same problems: others are not drawn side by side."""
    groups = drawn_together(runs)
    if len(groups) == 1:
        return draw(runs)
    return [
        replace(
            figure,
            title=f"{figure.title} ({name})",
            charts={f"{chart_name}-problems-{number}": chart for chart_name, chart in figure.charts.items()},
        )
        for number, (name, members) in enumerate(groups.items(), start=1)
        for figure in draw(members)
    ]


def _accuracy(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = []
    for run in runs:
        result = run.summary.result
        if result is None:
            continue
        interval = "" if result.low is None else f"  ({span(result.low, result.high, 1, 100)})"
        value = f"{percent(result.estimate)}{interval}{_of_planned(run)}"
        low, high = _as_percent(result.low), _as_percent(result.high)
        marks.append(Dot(run.label, run.place, 100 * result.estimate, low, high, value))
    if not marks:
        return []
    ks = sorted({run.summary.k for run in runs})
    name = f"pass@1[avg-of-{ks[0]}]" if len(ks) == 1 else "pass@1"
    caption = (
        f"Mark: mean over problems. Line: 95 % interval over problems. {_small_n_caution(runs)}"
        "The axis does not necessarily start at zero."
    )
    if len(marks) < len(runs):
        caption += f" Runs without graded samples are not drawn: {len(runs) - len(marks)}."
    chart = Dots(marks, f"{name} (%)", "Accuracy of each run with its interval", high=100.0)
    return [Figure(f"{name}, percent", {"accuracy": chart}, caption, sql=behind(queries.ACCURACY, runs))]


def _of_planned(run: RunFacts) -> str:
    """Return how many samples an unfinished run's accuracy is over."""
    s = run.summary
    return f", {s.num_result_samples} of {s.num_planned} samples" if s.is_unfinished else ""


def _small_n_caution(runs: Sequence[RunFacts]) -> str:
    n = min(run.summary.n for run in runs)
    return f"With only {n} problems the interval itself is imprecise. " if n < 30 else ""


def _trade_offs(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return a figure for each dataset and set of conditions, because times under other conditions do not compare."""
    groups: dict[tuple[str, int, str], list[RunFacts]] = {}
    for run in runs:
        if run.latency is not None and run.is_graded:
            devices = str(run.conditions["device_kinds"] or "unknown device")
            key = (run.summary.dataset, run.summary.concurrency, devices)
            groups.setdefault(key, []).append(run)
    figures: list[Figure] = []
    for (dataset, concurrency, devices), members in groups.items():
        points = [_point(run) for run in members]
        axes = ("mean latency per sample (s)", "pass@1 (%)")
        chart = Scatter(points, *axes, "Accuracy against latency, one mark per run")
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
        title, statement = f"{dataset}, {concurrency} in flight, {devices}", behind(queries.TRADE_OFF, members)
        figures.append(Figure(title, {name: chart}, caption, sql=statement))
    return figures


def _point(run: RunFacts) -> Point:
    result, latency = run.summary.result, run.latency
    assert latency is not None
    assert result is not None
    low, high = latency.clipped() or (None, None)
    return Point(
        run.label,
        run.place,
        latency.value,
        low,
        high,
        100 * result.estimate,
        _as_percent(result.low),
        _as_percent(result.high),
        f"pass@1 {percent(result.estimate)}, {latency.value:.3g} s{_of_planned(run)}",
    )


def _verdicts(runs: Sequence[RunFacts]) -> list[Figure]:
    kinds = tables.ordered_verdicts(runs)
    totals = [sum(run.summary.verdicts.values()) for run in runs]
    bars = [
        Bar(run.label, {k: 100 * n / total for k, n in run.summary.verdicts.items()}, f"of {total:,}")
        for run, total in zip(runs, totals, strict=True)
    ]
    names = {kind: kind.replace("_", " ") for kind in kinds}
    chart = StackedBars(bars, "samples (%)", "Samples by verdict", "% of samples", names, whole=100.0)
    caption = (
        "Every planned sample has exactly one verdict, including samples that were not run. The number of samples is "
        f"to the right of each bar.{tables.ungraded(runs)}"
    )
    return [Figure("Samples by verdict", {"verdicts": chart}, caption, sql=behind(queries.VERDICTS, runs))]


def _as_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def all_tables(sections: Sequence[Section]) -> list[Table]:
    """Return every table of the report, in order."""
    return [table for section in sections for table in section.tables]


def all_figures(sections: Sequence[Section]) -> list[Figure]:
    """Return every figure of the report, in order."""
    return [figure for section in sections for figure in section.figures]
