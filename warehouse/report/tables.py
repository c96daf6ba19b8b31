"""The report's tables as text cells, shared by HTML, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warehouse.formatting import NOTHING, fixed, number, span
from warehouse.render import warnings
from warehouse.report.facts import Estimate, Flips, RunFacts

INTERVAL = (
    "Intervals are 95 % confidence intervals over problems: Student's t with a quarter of a solved and a quarter of an "
    "unsolved problem added, or the Beta posterior if the score of every problem is 0 or 1."
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
    by_run: bool = True
    """Whether row i is about run i of the report."""
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
        "graded only %",
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
                f"{s.n} × {s.k}",
                fixed(s.pass_at_1, 2, 100) if run.is_graded else NOTHING,
                span(s.low_95, s.high_95, 1, 100) if run.is_graded else NOTHING,
                fixed(run.rerun_standard_error, 2, 100) if run.is_graded else NOTHING,
                fixed(s.graded_pass_at_1, 2, 100),
                str(s.num_not_run),
                str(s.num_ungraded),
            )
        )
    caption = (
        "pass@1: mean over n problems of the share of their k samples that are correct. Samples that were not run or "
        f'not graded count as not correct; "graded only" leaves them out. {INTERVAL} Re-run SE: standard error over '
        f"re-runs of the same problems, in percentage points. Grader: {_graders(runs)}."
    )
    return Table("results", "Results", columns, rows, caption)


def efficiency(runs: Sequence[RunFacts]) -> Table:
    """Return the table of fallback rates and tokens."""
    columns = (
        "run",
        "fallback %",
        "95 % interval",
        "verdicts",
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
                str(run.summary.num_verdicts) if run.summary.num_verdicts else NOTHING,
                fixed(draft, 1, 100),
                _sum(t.emitted_per_sample for t in tokens.values()),
                _sum(t.spent_per_sample for t in tokens.values()),
                _sum(t.critical_path_per_sample for t in tokens.values()),
            )
        )
    caption = (
        "Fallback: share of the verdicts that rejected every candidate, with a 95 % t interval over problems. Tokens "
        "are per finished sample. Emitted: tokens of the accepted chain. Spent: all output tokens of all calls, "
        "including rejected candidates and verdicts. Critical path: tokens that a user waits for, which counts only "
        "the longest of parallel candidates."
    )
    return Table("efficiency", "Fallback and tokens", columns, rows, caption)


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
        "of the mean over their samples, with a 95 % t interval. Median and percentile: over samples. Several samples "
        "in flight share the engines, so a sample's time includes waiting for the others: only compare runs with the "
        "same number in flight on the same devices. tokens/s: emitted tokens of a worker divided by its wall time."
    )
    return Table("latency", "Latency", columns, rows, caption)


def speed_ups(runs: Sequence[RunFacts]) -> Table | None:
    """Return the table of speed-ups over the target alone; None without a comparable run of it in the report."""
    names = {run.summary.run_id: run.label for run in runs}
    rows = [
        (
            limited_label(run),
            names[ratio.baseline_run_id],
            str(ratio.n),
            fixed(ratio.speed_up, 2),
            span(ratio.low_95, ratio.high_95, 2),
            fixed(ratio.rate_ratio, 2),
            fixed(ratio.chain_length_ratio, 2),
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
        "finished, with a 95 % t interval on logarithms. Above 1 the run is faster. Speed-up = rate ratio / chain "
        "length ratio. Only runs with the same target, problems, sampling, engine, devices and number in flight are "
        "compared."
    )
    return Table("speed-up", "Speed-up over the target alone", columns, rows, caption, by_run=False)


def costs(runs: Sequence[RunFacts]) -> Table:
    """Return the table of device time."""
    rows = []
    for run in runs:
        correct = run.summary.verdicts.get("correct", 0)
        finished = run.summary.n * run.summary.k - run.summary.num_not_run
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
    return Table("cost", "Cost", columns, rows, caption, by_run=False)


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
        "half are; exactly half is neither. These are counts, not a test: python -m warehouse.compare tests "
        "differences between runs."
    )
    columns = ("first / second", "problems in both", "right under the first only", "right under the second only")
    return Table("flips", "Flips", columns, rows, caption, by_run=False)


def report_warnings(runs: Sequence[RunFacts]) -> list[str]:
    """Return the warnings on all runs, each once, with the labels of the runs that it applies to."""
    labels_by_warning: dict[str, list[str]] = {}
    for run in runs:
        for line in warnings(run.summary):
            labels_by_warning.setdefault(line, []).append(run.label)
    return [
        line if len(labels) == len(runs) else f"{line} ({', '.join(labels)})"
        for line, labels in labels_by_warning.items()
    ]


def limited_label(run: RunFacts) -> str:
    """Return a run's label, marked if the run is limited to some of the dataset's problems."""
    return f"{run.label} (LIMITED)" if run.summary.limited else run.label


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
