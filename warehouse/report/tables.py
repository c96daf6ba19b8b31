"""The report's tables as text cells, shared by HTML, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warehouse.formatting import NOTHING, fixed, number, span
from warehouse.render import warnings
from warehouse.report.facts import Estimate, Flips, RunFacts
from warehouse.report.problem_sets import other_problems
from warehouse.report.queries import FLIPS, copyable

INTERVAL = (
    "Intervals are 95 % confidence intervals over problems (bounded mean: half an unsolved problem is added for the "
    "lower end, half a solved one for the upper end)."
)


@dataclass(frozen=True)
class Table:
    """A table of plain text, which is escaped when it is written. The first column names the row."""

    name: str
    """CSS class in the page, and label in LaTeX."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    places: Sequence[int] = ()
    """Index in the report of the run that each row is about, whose mark is drawn beside it; empty: none."""
    is_sortable: bool = True
    """Whether the page lets its rows be sorted."""
    sql: str = ""
    """The statement behind the table, for `warehouse.query`; empty: that of the figure above it, or none."""
    differs: frozenset[int] = frozenset()
    """Indices of the rows that are marked because the runs differ unexpectedly."""


def results(runs: Sequence[RunFacts]) -> Table:
    """Return the table of accuracies."""
    columns = (
        "run",
        "dataset",
        "n × k",
        "pass@1 %",
        "95 % interval",
        "re-run SE",
        "once complete %",
        "not run",
        "not graded",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                limited_label(run),
                s.dataset,
                f"{s.n} × {s.k}" + (f" ({s.num_result_samples} of {s.num_planned})" if s.is_unfinished else ""),
                fixed(s.result.estimate if s.result else None, 2, 100),
                span(s.result.low, s.result.high, 1, 100) if s.result else NOTHING,
                fixed(run.rerun_standard_error, 2, 100),
                span(s.pass_at_1, s.highest_pass_at_1, 2, 100) if s.result and s.is_unfinished else NOTHING,
                str(s.num_not_run),
                str(s.num_ungraded),
            )
        )
    caption = (
        "pass@1: mean over n problems of the share of their k samples that are correct, as in summaries and "
        "comparisons. Samples that were not run or not graded are left out; how many are there is in brackets, and "
        '"once complete" is what pass@1 becomes if all missing samples are wrong, or all are right. '
        f"{INTERVAL} Re-run SE: standard error over "
        f"re-runs of the same problems, in percentage points. Grader: {_graders(runs)}."
    )
    return Table("results", "Results", columns, rows, caption, range(len(runs)))


def efficiency(runs: Sequence[RunFacts]) -> Table:
    """Return the table of fallback rates and tokens."""
    columns = (
        "run",
        "fallback %",
        "95 % interval",
        "decisions",
        "emitted by the draft %",
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
                limited_label(run),
                fixed(fallback.value if fallback else None, 1, 100),
                _share_interval(fallback),
                str(run.summary.num_decisions) if run.summary.num_decisions else NOTHING,
                fixed(draft, 1, 100),
                _sum(t.emitted_per_sample for t in tokens.values()),
                _sum(t.spent_per_sample for t in tokens.values()),
                _sum(t.critical_path_per_sample for t in tokens.values()),
            )
        )
    caption = (
        "Fallback: share of the decisions (verdicts, or the method's own) that rejected every candidate, with a 95 % "
        "interval over problems. Tokens are per finished sample. Emitted: tokens of the accepted chain. Spent: all "
        "output tokens of all calls, including rejected candidates and verdicts. Critical path: tokens that a user "
        "waits for, which counts only the longest of parallel candidates."
    )
    return Table("efficiency", "Fallback and tokens", columns, rows, caption, range(len(runs)))


def latency(runs: Sequence[RunFacts]) -> Table:
    """Return the table of latencies."""
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
                limited_label(run),
                str(s.concurrency),
                run.conditions["devices"] or NOTHING,
                str(s.num_timed),
                number(run.latency.value if run.latency else None),
                _latency_interval(run.latency),
                number(s.median_latency_seconds),
                number(run.p95_seconds),
                number(s.emitted_tokens_per_second),
            )
        )
    caption = (
        "Wall time per sample, over samples that finished in one attempt without an error. Mean: mean over problems "
        "of the mean over their samples, with a 95 % interval. Median and percentile: over samples. Several samples "
        "in flight share the engines, so a sample's time includes waiting for the others: only compare runs with the "
        "same number in flight on the same devices. tokens/s: emitted tokens of a worker divided by its wall time."
    )
    return Table("latency", "Latency", columns, rows, caption, range(len(runs)))


def speed_ups(runs: Sequence[RunFacts]) -> Table | None:
    """Return the table of speed-ups over the target alone; None without a comparable run of it in the report."""
    names = {run.summary.run_id: run.label for run in runs}
    timed = [
        (place, run, ratio)
        for place, run in enumerate(runs)
        for ratio in run.summary.speed_ups
        if ratio.baseline_run_id in names
    ]
    rows = [
        (
            limited_label(run),
            names[ratio.baseline_run_id],
            str(ratio.n),
            fixed(ratio.speed_up, 2),
            span(ratio.low_95, ratio.high_95, 2) + ("" if ratio.run_factor else " within these runs"),
            fixed(ratio.rate_ratio, 2),
            fixed(ratio.chain_length_ratio, 2),
            "yes" if ratio.same_versions else "NO",
        )
        for _, run, ratio in timed
    ]
    if not rows:
        return None
    columns = (
        "run",
        "baseline",
        "problems",
        "speed-up ×",
        "95 % interval",
        "rate ratio",
        "chain length ratio",
        "same packages",
    )
    caption = (
        "Latency of the target alone divided by the latency of the run: geometric mean over the problems that both "
        "finished, with a 95 % interval (bounded mean of logarithms). It covers how much times differ from one run to "
        "the next if enough runs were repeated under the same conditions, and otherwise holds within these runs only: "
        "identical work has come out 17 % apart, and twice as long on a busy machine. Above 1 the run is faster. "
        "Speed-up = rate ratio / chain length ratio. Only runs with the same target, sampling, engine, devices and "
        "number in flight are compared."
    )
    places = [place for place, _, _ in timed]
    return Table("speed-up", "Speed-up over the target alone", columns, rows, caption, places)


def costs(runs: Sequence[RunFacts]) -> Table:
    """Return the table of device time."""
    rows = []
    for run in runs:
        correct = run.summary.verdicts.get("correct", 0)
        finished = run.summary.num_planned - run.summary.num_not_run
        for cost in run.costs:
            per_correct = 3600 * cost.device_hours / correct if correct else None
            rows.append(
                (
                    limited_label(run),
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
        "worker attempts",
        "GPU-hours",
        "CPU worker-hours",
        "device-seconds per sample",
        "device-seconds per correct answer",
    )
    caption = (
        "Number of devices of each worker × (start-up time of its engines + time from its start to the end of its "
        "last call). A start that runs share counts in full for the first of them. Not included: attempts that "
        "finished no sample, because they leave no record, and time in the scheduler's queue."
    )
    places = [place for place, run in enumerate(runs) for _ in run.costs]
    return Table("cost", "Cost", columns, rows, caption, places)


def flip_counts(runs: Sequence[RunFacts], flips: Sequence[Flips]) -> Table:
    """Return the table of flips, with a row for each pair of runs."""
    rows = [
        (
            f"{runs[f.first].label} / {runs[f.second].label}",
            str(f.num_shared),
            str(f.only_first),
            str(f.only_second),
        )
        for f in flips
    ]
    caption = (
        "A problem is right under a run if more than half of its graded samples are correct, and wrong if fewer than "
        "half are; exactly half is neither. These are counts, not a test: the differences from the baseline are tested."
    )
    columns = ("first / second", "problems in both", "right under the first only", "right under the second only")
    statement = copyable(FLIPS, [run.summary.run_id for run in runs])
    return Table("flips", "Flips", columns, rows, caption, sql=statement)


def report_warnings(runs: Sequence[RunFacts]) -> list[str]:
    """Return the warnings on all runs, each once, with the labels of the runs that it applies to."""
    labels_by_warning: dict[str, list[str]] = {}
    for run in runs:
        for line in warnings(run.summary):
            labels_by_warning.setdefault(line, []).append(run.label)
    return [
        line if len(labels) == len(runs) else f"{line} ({', '.join(labels)})"
        for line, labels in labels_by_warning.items()
    ] + other_problems(runs)


def limited_label(run: RunFacts) -> str:
    """Return a run's label, marked if it is limited to some of the dataset's problems, or what stopped it."""
    marks = ["LIMITED"] if run.summary.limited else []
    return f"{run.label} ({', '.join(marks)})" if marks else run.label


def _share_interval(estimate: Estimate | None) -> str:
    ends = estimate.clipped(1.0) if estimate else None
    return span(*ends, 1, 100) if ends else NOTHING


def _latency_interval(estimate: Estimate | None) -> str:
    ends = estimate.clipped() if estimate else None
    return f"{number(ends[0])} to {number(ends[1])}" if ends else NOTHING


def _sum(values: Iterable[float]) -> str:
    addends = list(values)
    return number(sum(addends)) if addends else NOTHING


def _graders(runs: Sequence[RunFacts]) -> str:
    return "; ".join(sorted({run.summary.grader_version or "none yet" for run in runs}))
