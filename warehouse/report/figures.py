"""The report's sections: charts and tables in order, with their captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from warehouse.formatting import number, percent, span
from warehouse.report import tables, verdicts
from warehouse.report.charts.bars import Bar, stacked
from warehouse.report.charts.lines import Line, Place, lines
from warehouse.report.charts.points import Dot, Point, dots, scatter
from warehouse.report.conditions import conditions
from warehouse.report.facts import Estimate, Flips, RunFacts
from warehouse.report.tables import Table

PARTS = {
    "drafting": "drafting", "guidance": "guidance", "verdict": "verdict", "fallback": "fallback", "rethink": "rethink",
    "chain": "chain", "answer": "answer", "queueing": "queueing", "overhead": "overhead",
}  # fmt: skip
_MIN_VERDICTS = 5
"""Positions in the chain with fewer verdicts are not drawn."""


@dataclass(frozen=True)
class Figure:
    """Drawings with a common caption."""

    title: str
    drawings: Sequence[Markup]
    caption: str
    keyed: Sequence[int] = ()
    """Indices of the runs in the key below the drawings."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """Anchor in the page."""
    title: str
    short: str
    """Title in the page's navigation."""
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[Table] = field(default=())


def sections(runs: Sequence[RunFacts], flips: Sequence[Flips]) -> list[Section]:
    """Return everything above the trace viewer, without sections that would be empty."""
    speed = [table for table in (tables.latency(runs), tables.speed_ups(runs)) if table is not None]
    costs = tables.costs(runs)
    candidates = [
        Section("results", "Results", "Results", _accuracy(runs), [tables.results(runs)]),
        Section("trade-off", "Accuracy against latency", "Trade-off", _trade_offs(runs), speed),
        Section(
            "speculation",
            "Fallback and tokens",
            "Speculation",
            [*_fallback(runs), *_tokens(runs)],
            [tables.efficiency(runs)],
        ),
        Section("time", "Where the time goes", "Time", _latency_parts(runs)),
        Section("acceptance", "Acceptance along the chain", "Acceptance", _acceptance(runs)),
        Section("cost", "Cost", "Cost", (), [costs] if costs.rows else ()),
        Section("verdicts", "Verdicts", "Verdicts", [_verdicts(runs)], [verdicts.table(runs)]),
        Section("flips", "Flips", "Flips", (), [tables.flip_counts(runs, flips)] if flips else ()),
        Section("conditions", "Settings and environment", "Settings", (), [conditions(runs)]),
    ]
    return [section for section in candidates if section.figures or section.tables]


def _accuracy(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = []
    for place, run in enumerate(runs):
        s = run.summary
        if not run.is_graded:
            continue
        interval = "" if s.low_95 is None else f"  ({span(s.low_95, s.high_95, 1, 100)})"
        value = f"{percent(s.pass_at_1)}{interval}"
        marks.append(Dot(run.label, place, 100 * s.pass_at_1, _as_percent(s.low_95), _as_percent(s.high_95), value))
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
    drawing = dots(marks, f"{name} (%)", "Accuracy of each run with its interval", high=100.0)
    return [Figure(f"{name}, percent", [drawing], caption)]


def _small_n_caution(runs: Sequence[RunFacts]) -> str:
    n = min(run.summary.n for run in runs)
    return f"With only {n} problems the interval itself is imprecise. " if n < 30 else ""


def _trade_offs(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return a figure for each dataset and set of conditions, because times under other conditions do not compare."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for place, run in enumerate(runs):
        if run.latency is not None and run.is_graded:
            devices = str(run.conditions["device_kinds"] or "unknown device")
            key = (run.summary.dataset, run.summary.concurrency, devices)
            groups.setdefault(key, []).append(place)
    figures = []
    for (dataset, concurrency, devices), places in groups.items():
        points = [_point(runs[place], place) for place in places]
        drawing = scatter(
            points, "mean latency per sample (s)", "pass@1 (%)", "Accuracy against latency, one mark per run"
        )
        caption = (
            "Up and to the left is better. Lines: 95 % intervals over problems, of accuracy (vertical) and of mean "
            "latency (horizontal)."
        )
        if concurrency > 1:
            caption += (
                f" {concurrency} samples in flight shared the engines, so a sample's time includes waiting for the "
                "others."
            )
        figures.append(Figure(f"{dataset}, {concurrency} in flight, {devices}", [drawing], caption))
    return figures


def _point(run: RunFacts, place: int) -> Point:
    s, latency = run.summary, run.latency
    assert latency is not None
    low, high = latency.clipped() or (None, None)
    return Point(
        run.label,
        place,
        latency.value,
        low,
        high,
        100 * s.pass_at_1,
        _as_percent(s.low_95),
        _as_percent(s.high_95),
        f"pass@1 {percent(s.pass_at_1)}, {latency.value:.3g} s",
    )


def _fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    marks = []
    for place, run in enumerate(runs):
        if run.fallback is not None:
            low, high = _percent_ends(run.fallback)
            value = f"{percent(run.fallback.value)} of {run.summary.num_verdicts}"
            marks.append(Dot(run.label, place, 100 * run.fallback.value, low, high, value))
    if not marks:
        return []
    caption = (
        "Share of the verdicts that rejected every candidate, so that the target wrote the step. Line: 95 % t "
        "interval over problems of the ratio of sums over problems."
    )
    drawing = dots(marks, "fallback rate (% of verdicts)", "Fallback rate of each run with its interval", high=100.0)
    return [Figure("Fallback rate", [drawing], caption)]


def _tokens(runs: Sequence[RunFacts]) -> list[Figure]:
    bars = []
    for run in runs:
        tokens = run.summary.tokens
        for kind, parts in (
            ("emitted", {model: t.emitted_per_sample for model, t in tokens.items()}),
            ("spent", {model: t.spent_per_sample for model, t in tokens.items()}),
            ("critical path", {model: t.critical_path_per_sample for model, t in tokens.items()}),
        ):
            label = f"{run.label}: {kind}" if kind == "emitted" else kind
            if parts:
                bars.append(Bar(label, parts, number(sum(parts.values())), kind == "emitted"))
    if not bars:
        return []
    caption = (
        "Tokens per finished sample by the model that generated them, mean over samples. Emitted: tokens of the "
        "accepted chain. Spent: all output tokens of all calls, including rejected candidates and verdicts. Critical "
        "path: tokens that a user waits for, which counts only the longest of parallel candidates."
    )
    names = {"draft": "draft", "target": "target"}
    drawing = stacked(bars, "tokens per sample", "Tokens by model", unit="tokens", names=names)
    return [Figure("Token split", [drawing], caption)]


def _latency_parts(runs: Sequence[RunFacts]) -> list[Figure]:
    bars = [
        Bar(run.label, run.latency_parts, f"{number(sum(run.latency_parts.values()))} s")
        for run in runs
        if run.latency_parts
    ]
    if not bars:
        return []
    parts = {part for run in runs for part in run.latency_parts}
    names = {**PARTS, **{part: part for part in sorted(parts - set(PARTS))}}
    caption = (
        "Mean wall time per sample by part: calls by purpose without their queueing, queueing in the engines, and "
        "overhead, which is the time outside calls. Only samples that finished in one attempt without an error."
    )
    drawing = stacked(bars, "seconds per sample", "Latency by part", unit="s", names=names)
    return [Figure("Latency split", [drawing], caption)]


def _acceptance(runs: Sequence[RunFacts]) -> list[Figure]:
    by_axis: dict[str, list[Line]] = {}
    for place, run in enumerate(runs):
        for axis, rates in run.acceptance.items():
            places = [_place(a.position, a.rate, a.num_verdicts) for a in rates if a.num_verdicts >= _MIN_VERDICTS]
            if places:
                by_axis.setdefault(axis, []).append(Line(run.label, place, places))
    drawings = [
        lines(by_axis[axis], name, "verdicts that accepted (%)", f"Acceptance by {name}")
        for axis, name in (("tenth", "tenth of the chain (1: start, 10: end)"), ("step", "step index"))
        if axis in by_axis
    ]
    if not drawings:
        return []
    caption = (
        "Share of verdicts that accepted a candidate. Left: by tenth of the chain, so that chains of different length "
        "are comparable. Right: by step index; only longer chains have later steps. Band: 95 % t interval over "
        f"problems. Positions with fewer than {_MIN_VERDICTS} verdicts are not drawn. The rates are over steps, not "
        "over problems."
    )
    keyed = sorted({line.index for axis_lines in by_axis.values() for line in axis_lines})
    return [Figure("Acceptance by position", drawings, caption, keyed)]


def _place(position: int, rate: Estimate, num_verdicts: int) -> Place:
    low, high = _percent_ends(rate)
    description = f"position {position}: {percent(rate.value)} of {num_verdicts} verdicts"
    return Place(position, 100 * rate.value, low, high, description)


def _verdicts(runs: Sequence[RunFacts]) -> Figure:
    kinds = verdicts.ordered_verdicts(runs)
    totals = [sum(run.summary.verdicts.values()) for run in runs]
    bars = [
        Bar(run.label, {k: 100 * n / total for k, n in run.summary.verdicts.items()}, f"of {total:,}")
        for run, total in zip(runs, totals, strict=True)
    ]
    names = {kind: kind.replace("_", " ") for kind in kinds}
    drawing = stacked(bars, "samples (%)", "Samples by verdict", unit="% of samples", names=names, whole=100.0)
    caption = (
        "Every planned sample has exactly one verdict, including samples that were not run. The number of samples is "
        f"to the right of each bar.{verdicts.ungraded(runs)}"
    )
    return Figure("Samples by verdict", [drawing], caption)


def _percent_ends(estimate: Estimate) -> tuple[float | None, float | None]:
    """Return both ends of the interval of a share, in percent."""
    low, high = estimate.clipped(1.0) or (None, None)
    return _as_percent(low), _as_percent(high)


def _as_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def all_tables(runs: Sequence[RunFacts], flips: Sequence[Flips]) -> list[Table]:
    """Return every table of the report, in order."""
    return [table for section in sections(runs, flips) for table in section.tables]
