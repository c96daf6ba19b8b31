"""The report's sections: which charts and tables, in which order, with captions that say what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from warehouse.formatting import number
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
"""Places of the chain with fewer verdicts are not drawn."""


@dataclass(frozen=True)
class Figure:
    """Drawings under one caption."""

    title: str
    drawings: Sequence[Markup]
    caption: str
    keyed: Sequence[int] = ()
    """Runs to list as a key below the drawings."""


@dataclass(frozen=True)
class Section:
    """A part of the page with an anchor."""

    name: str
    title: str
    short: str
    """In the page's navigation."""
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[Table] = field(default=())


def sections(runs: Sequence[RunFacts], found: Sequence[Flips]) -> list[Section]:
    """Everything above the trace viewer; what there is nothing to say about is left out."""
    speed = [table for table in (tables.latency(runs), tables.speed_ups(runs)) if table is not None]
    costs, flips = tables.costs(runs), tables.flip_counts(runs, found)
    made = [
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
        Section("flips", "Flips", "Flips", (), [flips] if found else ()),
        Section("conditions", "What ran, and on what", "Conditions", (), [conditions(runs)]),
    ]
    return [section for section in made if section.figures or section.tables]


def _accuracy(runs: Sequence[RunFacts]) -> list[Figure]:
    shown = []
    for place, run in enumerate(runs):
        s = run.summary
        if not run.is_graded:
            continue
        low, high = _scaled(s.low_95, 100), _scaled(s.high_95, 100)
        said = f"{100 * s.pass_at_1:.1f} %" + ("" if low is None or high is None else f"  ({low:.1f} to {high:.1f})")
        shown.append(Dot(run.label, place, 100 * s.pass_at_1, low, high, said))
    if not shown:
        return []
    ks = sorted({run.summary.k for run in runs})
    name = f"pass@1[avg-of-{ks[0]}]" if len(ks) == 1 else "pass@1"
    left_out = f" {len(runs) - len(shown)} run(s) without any graded sample are not drawn." * (len(shown) < len(runs))
    caption = (
        f"Mark: mean over problems. Line: its 95 % interval over problems. {_small(runs)}"
        f"The axis need not begin at zero.{left_out}"
    )
    drawing = dots(shown, f"{name} (%)", "Accuracy of each run with its interval", high=100.0)
    return [Figure(f"{name}, percent", [drawing], caption)]


def _small(runs: Sequence[RunFacts]) -> str:
    n = min(run.summary.n for run in runs)
    return f"With {n} problems such an interval is itself rough. " if n < 30 else ""


def _trade_offs(runs: Sequence[RunFacts]) -> list[Figure]:
    """One panel for each dataset and set of conditions: times from unlike conditions share no axis."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for place, run in enumerate(runs):
        if run.latency is not None and run.is_graded:
            key = (run.summary.dataset, run.summary.concurrency, str(run.conditions["devices"] or "unknown device"))
            groups.setdefault(key, []).append(place)
    figures = []
    for (dataset, concurrency, devices), places in groups.items():
        points = [_point(runs[place], place) for place in places]
        drawing = scatter(
            points, "mean latency of a sample (s)", "pass@1 (%)", "Accuracy against latency, one mark for each run"
        )
        shared = (
            f" {concurrency} samples shared the engines: a throughput setting, where a sample's time holds its "
            "waiting for the others."
        )
        caption = (
            "Up and to the left is better. Lines: 95 % intervals over problems, of accuracy (vertical) and of "
            f"mean latency (horizontal).{shared if concurrency > 1 else ''}"
        )
        figures.append(Figure(f"{dataset}, {concurrency} in flight, {devices}", [drawing], caption))
    return figures


def _point(run: RunFacts, place: int) -> Point:
    s, latency = run.summary, run.latency
    assert latency is not None
    said = f"pass@1 {100 * s.pass_at_1:.1f} %, {latency.value:.3g} s"
    low, high = _ends(latency, 1.0, 0.0)
    return Point(
        run.label,
        place,
        latency.value,
        low,
        high,
        100 * s.pass_at_1,
        _scaled(s.low_95, 100),
        _scaled(s.high_95, 100),
        said,
    )


def _fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    shown = []
    for place, run in enumerate(runs):
        if run.fallback is not None:
            low, high = _ends(run.fallback, 100.0, 0.0, 100.0)
            said = f"{100 * run.fallback.value:.1f} % of {run.summary.num_verdicts}"
            shown.append(Dot(run.label, place, 100 * run.fallback.value, low, high, said))
    if not shown:
        return []
    caption = (
        "Share of the verdicts that refused every candidate, so that the target wrote the step. Line: 95 % t "
        "interval over problems, as a ratio of sums over problems."
    )
    drawing = dots(shown, "fallback rate (% of verdicts)", "Fallback rate of each run with its interval", high=100.0)
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
        "Tokens of a finished sample, by the model that wrote them; mean over samples. Emitted: in the accepted "
        "chain. Spent: every output token of every call, refused candidates and verdicts included. Critical path: "
        "what a user waits for, of parallel candidates the longest."
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
    known = {part for run in runs for part in run.latency_parts}
    names = {**PARTS, **{part: part for part in sorted(known - set(PARTS))}}
    caption = (
        "Mean wall time of a sample by what it was spent on: calls by purpose without their queueing, queueing in "
        "the engines, and overhead (all that is not a call). Only samples finished in one attempt without an error."
    )
    drawing = stacked(bars, "seconds per sample", "Latency by part", unit="s", names=names)
    return [Figure("Latency split", [drawing], caption)]


def _acceptance(runs: Sequence[RunFacts]) -> list[Figure]:
    by_axis: dict[str, list[Line]] = {}
    for place, run in enumerate(runs):
        for axis, found in run.acceptance.items():
            places = [_place(a.position, a.rate, a.num_verdicts) for a in found if a.num_verdicts >= _MIN_VERDICTS]
            if places:
                by_axis.setdefault(axis, []).append(Line(run.label, place, places))
    drawings = [
        lines(by_axis[axis], name, "verdicts that accepted (%)", f"Acceptance by {name}")
        for axis, name in (("tenth", "tenth of the chain (1 opening, 10 end)"), ("step", "step index"))
        if axis in by_axis
    ]
    if not drawings:
        return []
    caption = (
        "Share of verdicts that accepted a candidate. Left by tenth of the chain, so that chains of unlike length "
        "compare; right by step index, where later steps only hold the longer chains. Band: 95 % t interval over "
        f"problems; places with fewer than {_MIN_VERDICTS} verdicts are not drawn. A rate over steps, not over "
        "problems."
    )
    keyed = sorted({line.index for found in by_axis.values() for line in found})
    return [Figure("Acceptance by position", drawings, caption, keyed)]


def _place(position: int, rate: Estimate, num_verdicts: int) -> Place:
    low, high = _ends(rate, 100.0, 0.0, 100.0)
    said = f"position {position}: {100 * rate.value:.1f} % of {num_verdicts} verdicts"
    return Place(position, 100 * rate.value, low, high, said)


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
        "Every planned sample has exactly one verdict, those not run included; behind each bar their "
        f"number.{verdicts.ungraded(runs)}"
    )
    return Figure("Samples by verdict", [drawing], caption)


def _ends(
    estimate: Estimate, factor: float, lowest: float, highest: float = float("inf")
) -> tuple[float | None, float | None]:
    if estimate.low is None or estimate.high is None:
        return None, None
    return max(lowest, factor * estimate.low), min(highest, factor * estimate.high)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def all_tables(runs: Sequence[RunFacts], found: Sequence[Flips]) -> list[Table]:
    """Every table of the report, in its order."""
    return [table for section in sections(runs, found) for table in section.tables]
