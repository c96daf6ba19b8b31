"""The report's tables, as text cells: the same for HTML, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from warehouse.formatting import NOTHING, number
from warehouse.render import warnings
from warehouse.report.facts import Estimate, Flips, RunFacts

INTERVAL = (
    "Intervals are 95 % intervals over problems, where the mean over problems like these may lie: t with a quarter of "
    "a solved and of an unsolved problem added, or Beta where every problem is all right or all wrong."
)


@dataclass(frozen=True)
class Table:
    """Cells are plain text, escaped where they are written. The first column names the row."""

    name: str
    """Anchor in the page."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    by_run: bool = True
    """Whether row i is about run i of the report."""
    differs: frozenset[int] = frozenset()
    """Rows whose cells are not all equal, where that matters."""


def results(runs: Sequence[RunFacts]) -> Table:
    """Accuracy."""
    columns = (
        "run",
        "dataset",
        "n × k",
        "pass@1 %",
        "95 % interval",
        "re-run SE",
        "graded only %",
        "not run",
        "not graded",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                limited(run),
                s.dataset,
                f"{s.n} × {s.k}",
                f"{100 * s.pass_at_1:.2f}" if run.is_graded else NOTHING,
                span(s.low_95, s.high_95, 100, ".1f") if run.is_graded else NOTHING,
                _scaled(run.rerun_standard_error, 100, ".2f") if run.is_graded else NOTHING,
                _scaled(s.graded_pass_at_1, 100, ".2f"),
                str(s.num_not_run),
                str(s.num_ungraded),
            )
        )
    caption = (
        "pass@1: mean over n problems of the share of their k samples that are correct; a sample not run counts as "
        f"not correct, «graded only» leaves it out. {INTERVAL} Re-run SE: standard error from sampling again on "
        f"these same problems, in points. Grader: {_graders(runs)}."
    )
    return Table("results", "Results", columns, rows, caption)


def efficiency(runs: Sequence[RunFacts]) -> Table:
    """Fallback and tokens."""
    columns = (
        "run",
        "fallback %",
        "95 % interval",
        "verdicts",
        "draft's share of emitted %",
        "emitted",
        "spent",
        "critical path",
    )
    rows = []
    for run in runs:
        tokens = run.summary.tokens
        fallback = run.fallback
        draft = tokens["draft"].emitted_share if "draft" in tokens else None
        rows.append(
            (
                limited(run),
                NOTHING if fallback is None else f"{100 * fallback.value:.1f}",
                _estimate_span(fallback, lambda share: f"{100 * share:.1f}", 1.0),
                str(run.summary.num_verdicts) if run.summary.num_verdicts else NOTHING,
                NOTHING if draft is None else f"{100 * draft:.1f}",
                _sum(t.emitted_per_sample for t in tokens.values()),
                _sum(t.spent_per_sample for t in tokens.values()),
                _sum(t.critical_path_per_sample for t in tokens.values()),
            )
        )
    caption = (
        "Fallback: share of the verdicts that refused every candidate, over all verdicts; its interval is a 95 % t "
        "interval over problems. Tokens are per finished sample. Emitted: in the accepted chain. Spent: every "
        "output token of every call, refused candidates and verdicts included. Critical path: of parallel "
        "candidates the longest."
    )
    return Table("efficiency", "Fallback and tokens", columns, rows, caption)


def latency(runs: Sequence[RunFacts]) -> Table:
    """Wall time."""
    columns = (
        "run",
        "in flight",
        "devices",
        "samples timed",
        "mean s",
        "95 % interval",
        "median s",
        "95th percentile s",
        "tokens/s",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                limited(run),
                str(s.concurrency),
                run.conditions["devices"] or NOTHING,
                str(s.num_timed),
                number(run.latency.value if run.latency else None),
                _estimate_span(run.latency, number),
                number(s.median_latency_seconds),
                number(run.p95_seconds),
                number(s.emitted_tokens_per_second),
            )
        )
    caption = (
        "Wall time of a sample, over samples that finished in one attempt without an error. Mean: over problems of "
        "the mean over their samples, with its 95 % t interval; median and percentile: over samples. With more than "
        "one sample in flight they share the engines, so a sample's time includes waiting for others: compare runs "
        "of the same number in flight on the same devices only. tokens/s: emitted tokens of one worker over its "
        "wall time."
    )
    return Table("latency", "Latency", columns, rows, caption)


def speed_ups(runs: Sequence[RunFacts]) -> Table | None:
    """Against the target alone, where a comparable run of it is in the report."""
    names = {run.summary.run_id: run.label for run in runs}
    rows = [
        (
            limited(run),
            names[ratio.baseline_run_id],
            str(ratio.n),
            f"{ratio.speed_up:.2f}",
            span(ratio.low_95, ratio.high_95, 1, ".2f"),
            f"{ratio.rate_ratio:.2f}",
            f"{ratio.chain_length_ratio:.2f}",
            "yes" if ratio.same_versions else "NO",
        )
        for run in runs
        for ratio in run.summary.speed_ups
        if ratio.baseline_run_id in names
    ]
    if not rows:
        return None
    columns = (
        "run",
        "against",
        "problems",
        "speed-up ×",
        "95 % interval",
        "rate ratio",
        "chain length ratio",
        "same packages",
    )
    caption = (
        "Latency of the target alone over latency of the run: geometric mean over the problems that both finished, "
        "with a 95 % t interval on the logarithm. Above 1 the run is faster. speed-up = rate ratio / chain length "
        "ratio. Only runs with the same target, problems, sampling, engine, devices and number in flight are set "
        "against each other."
    )
    return Table("speed-up", "Speed-up over the target alone", columns, rows, caption, by_run=False)


def costs(runs: Sequence[RunFacts]) -> Table:
    """Device time."""
    rows = []
    for run in runs:
        correct = run.summary.verdicts.get("correct", 0)
        finished = run.summary.n * run.summary.k - run.summary.num_not_run
        for cost in run.costs:
            per_correct = 3600 * cost.device_hours / correct if correct else None
            rows.append(
                (
                    limited(run),
                    cost.device,
                    str(cost.num_attempts),
                    number(cost.device_hours) if cost.device != "cpu" else NOTHING,
                    number(cost.device_hours) if cost.device == "cpu" else NOTHING,
                    number(3600 * cost.device_hours / finished if finished else None),
                    number(per_correct),
                )
            )
    columns = (
        "run",
        "device",
        "workers' attempts",
        "GPU-hours",
        "CPU worker-hours",
        "device-seconds per sample",
        "device-seconds per correct answer",
    )
    caption = (
        "Devices of each worker × (start-up of its engines + from its start to the end of its last call). Attempts "
        "that finished no sample left no record and are not in it, nor is time in the scheduler's queue."
    )
    return Table("cost", "Cost", columns, rows, caption, by_run=False)


def flip_counts(runs: Sequence[RunFacts], found: Sequence[Flips]) -> Table:
    """Pairs of runs."""
    rows = [
        (
            f"{runs[f.first].label} / {runs[f.second].label}",
            str(f.num_shared),
            str(f.only_first),
            str(f.only_second),
        )
        for f in found
    ]
    caption = (
        "A problem is right under a run where more than half of its graded samples are correct, wrong where fewer "
        "than half are; exactly half is neither. Counts, not a test: whether a difference is more than chance is "
        "for warehouse.compare."
    )
    columns = ("first / second", "problems in both", "right under the first only", "right under the second only")
    return Table("flips", "Flips", columns, rows, caption, by_run=False)


def loud(runs: Sequence[RunFacts]) -> list[str]:
    """What makes numbers something else than a result, once, with the runs that it is about."""
    about: dict[str, list[str]] = {}
    for run in runs:
        for line in warnings(run.summary):
            about.setdefault(line, []).append(run.label)
    return [line if len(names) == len(runs) else f"{line} ({', '.join(names)})" for line, names in about.items()]


def span(low: float | None, high: float | None, factor: float, form: str) -> str:
    """Two ends of an interval."""
    return NOTHING if low is None or high is None else f"{factor * low:{form}} to {factor * high:{form}}"


def limited(run: RunFacts) -> str:
    """A run's label; says so where it is a limited run."""
    return f"{run.label} (LIMITED)" if run.summary.limited else run.label


def _scaled(value: float | None, factor: float, form: str) -> str:
    return NOTHING if value is None else f"{factor * value:{form}}"


def _estimate_span(estimate: Estimate | None, shown: Callable[[float], str], highest: float = float("inf")) -> str:
    """The interval of something that is never negative, cut at what is possible."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return NOTHING
    return f"{shown(max(0.0, estimate.low))} to {shown(min(highest, estimate.high))}"


def _sum(values: Iterable[float]) -> str:
    found = list(values)
    return number(sum(found)) if found else NOTHING


def _graders(runs: Sequence[RunFacts]) -> str:
    return "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))
