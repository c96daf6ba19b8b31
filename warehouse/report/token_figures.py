"""Figures of what speculation does: fallback, tokens by model, parts of the latency, acceptance along the chain."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.formatting import number, percent
from warehouse.report import queries
from warehouse.report.charts import Bar, Dot, Dots, Line, Lines, Place, StackedBars
from warehouse.report.facts import Acceptance, Estimate, RunFacts
from warehouse.report.tables import Figure, behind

PARTS = {
    "drafting": "drafting", "guidance": "guidance", "verdict": "verdict", "fallback": "fallback", "rethink": "rethink",
    "chain": "chain", "answer": "answer", "queueing": "queueing", "overhead": "overhead",
}  # fmt: skip
_MIN_DECISIONS = 5
"""Steps of the chain with fewer decisions are not drawn."""


def fallback(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of fallback rates, if any run has decisions."""
    marks = []
    for run in runs:
        if run.fallback is not None:
            low, high = _percent_ends(run.fallback)
            value = f"{percent(run.fallback.value)} of {run.summary.num_decisions}"
            marks.append(Dot(run.label, run.place, 100 * run.fallback.value, low, high, value))
    if not marks:
        return []
    caption = (
        "Share of the decisions that rejected every candidate, so that the target wrote the step. Line: 95 % "
        "interval over problems of the ratio of sums over problems."
    )
    chart = Dots(marks, "fallback rate (% of decisions)", "Fallback rate of each run with its interval", high=100.0)
    return [Figure("Fallback rate", {"fallback": chart}, caption, sql=behind(queries.FALLBACK, runs))]


def tokens(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of tokens by model, if any sample is finished."""
    bars = []
    for run in runs:
        split = run.summary.tokens
        for kind, parts in (
            ("emitted", {model: t.emitted_per_sample for model, t in split.items()}),
            ("spent", {model: t.spent_per_sample for model, t in split.items()}),
            ("critical path", {model: t.critical_path_per_sample for model, t in split.items()}),
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
    names = {"draft": "draft", "target": "target", "reward": "reward model"}
    chart = StackedBars(bars, "tokens per sample", "Tokens by model", "tokens", names)
    return [Figure("Token split", {"tokens": chart}, caption, sql=behind(queries.TOKENS, runs))]


def latency_parts(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of the parts of the latency, if any sample is timed."""
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
    chart = StackedBars(bars, "seconds per sample", "Latency by part", "s", names)
    return [Figure("Latency split", {"latency": chart}, caption, sql=behind(queries.LATENCY_PARTS, runs))]


def acceptance(runs: Sequence[RunFacts]) -> list[Figure]:
    """Return the figure of acceptance by step, if there are enough decisions at any."""
    places = {run.place: [_place(a) for a in run.acceptance if a.num_decisions >= _MIN_DECISIONS] for run in runs}
    lines = [Line(run.label, run.place, places[run.place]) for run in runs if places[run.place]]
    if not lines:
        return []
    caption = (
        "Share of decisions that accepted a candidate, by step index; only longer chains have later steps. Band: 95 % "
        f"interval over problems. Steps with fewer than {_MIN_DECISIONS} decisions are not drawn. The rates are over "
        "steps, not over problems."
    )
    chart = Lines(lines, "step index", "decisions that accepted (%)", "Acceptance by step index")
    keyed = sorted(line.index for line in lines)
    charts = {"acceptance-by-step": chart}
    return [Figure("Acceptance by step", charts, caption, keyed, behind(queries.ACCEPTANCE, runs))]


def _place(step: Acceptance) -> Place:
    low, high = _percent_ends(step.rate)
    description = f"step {step.step_index}: {percent(step.rate.value)} of {step.num_decisions} decisions"
    return Place(step.step_index, 100 * step.rate.value, low, high, description)


def _percent_ends(estimate: Estimate) -> tuple[float | None, float | None]:
    """Return both ends of the interval of a share, in percent."""
    low, high = estimate.clipped(1.0) or (None, None)
    return _as_percent(low), _as_percent(high)


def _as_percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
