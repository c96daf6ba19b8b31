"""Comparisons for people (terminal, Markdown, LaTeX) and for programs (CSV, JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal

from harness.plural import counted
from warehouse.comparison.contrasts import ALPHA, Comparison, Contrast, Row, SpeedRatio
from warehouse.comparison.metrics import Run
from warehouse.formatting import NOTHING, fixed, p_value, signed, span
from warehouse.labels import labels
from warehouse.render import limited, mixed_code, unreadable, weaker_baseline
from warehouse.statistics.intervals import Interval
from warehouse.statistics.power import POWER

Format = Literal["table", "json", "csv", "markdown", "latex"]
Cell = str | float | int | bool | None
HEADERS = (
    "run",
    "metric",
    "n",
    "%",
    "95 %",
    "re-run SE",
    "difference",
    "95 % ",
    "p",
    "p (Holm)",
    "non-inferior",
    "MDE",
    "speed-up",
    "95 %  ",
)
"""Columns of the printed table; trailing blanks tell equal names apart."""
_UNEQUAL_LOADS = 1.25
"""Ratio of the mean numbers of samples in flight from which a comparison of times says so."""
_MATTERS = {
    "subject": "compared",
    "accuracy": "affects accuracy",
    "latency": "affects latency",
    "accuracy and latency": "affects accuracy and latency",
    "note": "note",
}
_CONTRAST_KEYS = (
    "baseline_run_id",
    "num_common_problems",
    "test",
    "p",
    "p_holm",
    "p_non_inferior",
    "is_non_inferior",
    "margin",
    "minimum_detectable_effect",
)


def warnings(comparison: Comparison) -> Iterator[str]:
    """Yield what limits the validity of the numbers, one line each."""
    yield from (f"NOT COMPARED: {line}" for line in comparison.left_out)
    runs = {row.run.run_id: row.run for row in comparison.rows}
    for run in runs.values():
        summary = run.summary
        run_warnings = [*limited(summary), *mixed_code(summary), *_missing(run), *unreadable(summary)]
        run_warnings += weaker_baseline(summary)
        yield from (f"{run.run_id}: {line}" for line in run_warnings)
    for row in comparison.rows:
        contrast, speed = row.contrast, row.speed
        if contrast is not None:
            yield from _partial(row, contrast, sum(other.run is row.run for other in comparison.rows))
        if speed is not None and speed.unlike:
            warning = "LATENCY FORCED" if speed.ratio else "LATENCY REFUSED"
            remedy = "" if speed.ratio else " (--force compares anyway)"
            yield f"{warning}: {row.run.run_id} against {speed.baseline}: {'; '.join(speed.unlike)}{remedy}"
        if speed is not None and speed.ratio is not None:
            yield from _loads(row, runs, speed.baseline)


def _loads(row: Row, runs: Mapping[str, Run], base: str) -> Iterator[str]:
    """Yield that one of two runs had clearly fewer samples in flight, which the flag for the most does not tell."""
    summaries = row.run.summary, runs[base].summary
    own, other = (summary.mean_samples_in_flight for summary in summaries)
    is_shared = all(summary.concurrency > 1 for summary in summaries)
    if is_shared and own and other and max(own, other) > _UNEQUAL_LOADS * min(own, other):
        yield (
            f"UNEQUAL LOADS: {row.run.run_id} against {base}: {own:.1f} against {other:.1f} samples in flight on "
            "average; with fewer, each is faster and fewer end per hour"
        )


def _missing(run: Run) -> Iterator[str]:
    """Yield which samples a run lacks, and the command that completes it."""
    summary, total = run.summary, run.outcomes.num_samples
    treatment = "They are left out here, while the run's summary counts them as not correct"
    if summary.num_not_run:
        not_run = f"{summary.num_not_run} of {total} samples have not been run"
        yield f"INCOMPLETE RUN: {not_run}. {treatment}; {run.completion}"
    if run.num_ungraded:
        by = f" by grader version {summary.grader_version}" if summary.grader_version else ""
        graded = run.graded if run.named_grader else f"graded{by}"
        remedy = "." if summary.num_not_run and not run.named_grader else f"; {run.remedy}"
        yield f"NOT GRADED: {run.num_ungraded} of {total} samples are finished but not {graded}. {treatment}{remedy}"


def _partial(row: Row, contrast: Contrast, num_metrics: int) -> Iterator[str]:
    """Yield which planned problems and samples a contrast excludes; once for all metrics where possible."""
    run, pair, n, is_pass_at_1 = row.run, contrast.pair, contrast.n, row.speed is not None
    against, metric = f"{run.run_id} against {contrast.baseline}", row.metric.partition("[")[0]
    shared, num_problems = pair.num_shared_problems, len(run.outcomes.problems)
    if is_pass_at_1 and shared < num_problems:
        name = run.run_id if num_metrics > 1 else f"{run.run_id}, {row.metric}"
        problems = f"the {n} problems" if n == shared else f"{n} of the {shared} problems"
        yield f"{name}: compared on {problems} it shares with {contrast.baseline}; the run has {num_problems} problems."
    if is_pass_at_1 and pair.num_missing_samples:
        where = f", on {n} of {shared} problems" if n < shared else ""
        yield (
            f"COMPARED IN PART: {against}: compared on {pair.num_common_samples} of the {pair.num_planned_samples} "
            f"samples that either run has planned{where}."
        )
    if row.k > 1 and n < shared:
        yield (
            f"COMPARED IN PART: {against}, {metric}: compared on {n} of {shared} problems, because a problem needs "
            f"{row.k} samples of each run."
        )


def difference_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the differences between the manifests, one line each."""
    runs = dict.fromkeys(row.run.run_id for row in comparison.rows)
    for difference in comparison.differences:
        runs_by_value: dict[str, list[str]] = {}
        for run_id in runs:
            if run_id in difference.values:
                value = _value(difference.name, difference.values[run_id])
                runs_by_value.setdefault(value, []).append(run_id)
        values = "; ".join(f"{value} ({', '.join(run_ids)})" for value, run_ids in runs_by_value.items())
        yield f"{difference.name} ({_MATTERS[difference.matter]}): {values}"


def _value(name: str, value: str) -> str:
    """Return a setting's value as text; the parameters of a method are stored as JSON."""
    if name != "parameters":
        return value
    return ", ".join(f"{key} {setting}" for key, setting in json.loads(value).items()) or NOTHING


def legend(comparison: Comparison) -> Iterator[str]:
    """Yield how to read the table, one line per group of columns."""
    kinds = sorted({row.result.kind for row in comparison.rows})
    tests = sorted({row.contrast.test for row in comparison.rows if row.contrast})
    ratios = sorted({row.speed.ratio.kind for row in comparison.rows if row.speed and row.speed.ratio})
    yield (
        f"95 %: confidence interval over problems ({', '.join(kinds)}). "
        "Re-run SE: standard error of running the same problems again."
    )
    if tests:
        yield (
            "Differences are in percentage points, run minus baseline, paired by problem. "
            f"Test: {', '.join(tests)}. p (Holm): adjusted for {_count(comparison)}."
        )
        yield (
            f"Non-inferior: the interval lies above −{100 * comparison.settings.margin:g} points. MDE: minimum "
            f"detectable effect, the smallest true difference detected with {100 * POWER:.0f} % power at "
            f"p < {ALPHA:g}, unadjusted."
        )
    if any(row.contrast is not None and row.contrast.is_unfinished for row in comparison.rows):
        yield (
            "Unfinished: a run of the pair lacks samples. The difference, interval, p, MDE and speed-up are valid only "
            "if samples are missing at random, which is rarely the case, because long chains finish last. "
            "Non-inferiority is only assessed if both runs are complete."
        )
    if ratios:
        yield (
            "Speed-up: latency of the baseline divided by that of the run, geometric mean over problems "
            f"({', '.join(ratios)})."
        )
        if any(row.run.summary.concurrency > 1 for row in comparison.rows):
            yield "Several samples in flight shared the engines, so latencies include the load of the other samples."


def _count(comparison: Comparison) -> str:
    num_tests = sum(row.contrast is not None for row in comparison.rows)
    return counted(num_tests, "test")


def names(comparison: Comparison) -> dict[str, str]:
    """Return a short name for each run, by run id."""
    runs = list({row.run.run_id: row.run for row in comparison.rows}.values())
    return dict(zip((run.run_id for run in runs), labels([run.summary for run in runs]), strict=True))


def cells(row: Row, name: str) -> list[str]:
    """Return a row of the printed table, under HEADERS. name: short name of the run."""
    result, n, planned = row.result, len(row.outcomes.problems), len(row.run.outcomes.problems)
    return [
        name,
        row.metric,
        str(n) if n == planned else f"{n} of {planned}",
        fixed(result.estimate, 2, 100),
        span(result.low, result.high, 1, 100),
        fixed(row.rerun_standard_error, 2, 100),
        *_contrast_cells(row.contrast),
        *_speed_cells(row.speed),
    ]


def _contrast_cells(contrast: Contrast | None) -> list[str]:
    if contrast is None:
        return ["baseline", *[NOTHING] * 5]
    difference, effect = contrast.difference, contrast.minimum_detectable_effect
    verdict = {True: "yes", False: "not shown", None: NOTHING}[contrast.is_non_inferior]
    return [
        signed(100 * difference.estimate, 2),
        span(difference.low, difference.high, 1, 100),
        p_value(contrast.p),
        p_value(contrast.p_holm),
        "unfinished" if contrast.is_unfinished else verdict,
        "over 100" if effect is not None and effect > 1 else fixed(effect, 1, 100),
    ]


def _speed_cells(speed: SpeedRatio | None) -> list[str]:
    if speed is None:
        return [NOTHING, NOTHING]
    if speed.ratio is None:
        return ["refused" if speed.unlike else "not timed", NOTHING]
    mark = "!" if speed.unlike else ""
    return [f"{fixed(speed.ratio.estimate, 2)}×{mark}", span(speed.ratio.low, speed.ratio.high, 2)]


def record(row: Row) -> dict[str, Cell]:
    """Return a row for programs: fractions instead of percent, p-values in full.

    num_common_samples counts the compared sample indices over all problems: those that no run of the pair lacks,
    including those that only one run has planned. num_missing_samples counts the other planned ones.
    """
    summary, contrast, speed = row.run.summary, row.contrast, row.speed
    cells: dict[str, Cell] = {
        "run_id": row.run.run_id,
        "method": summary.method,
        "dataset": summary.dataset,
        "limited": summary.limited,
        "num_not_run": summary.num_not_run,
        "num_ungraded": summary.num_ungraded,
        "grader_version": summary.grader_version,
        "metric": row.metric,
        "n": len(row.run.outcomes.problems),
        "samples": int(row.run.outcomes.samples.max()),
        "k": row.k,
        "rerun_standard_error": row.rerun_standard_error,
    }
    cells |= _interval("result", row.result)
    cells |= _contrast_record(contrast)
    cells |= _interval("difference", contrast.difference if contrast else None)
    cells |= {"num_timed_problems": speed.n if speed else None}
    cells |= {"latency_unlike": "; ".join(speed.unlike) if speed and speed.unlike else None}
    cells |= _interval("speed_up", speed.ratio if speed else None)
    pair = contrast.pair if contrast else None
    return cells | {
        "num_result_problems": len(row.outcomes.problems),
        "num_result_samples": row.outcomes.num_samples,
        "num_common_samples": pair.num_common_samples if pair else None,
        "num_missing_samples": pair.num_missing_samples if pair else None,
        "is_unfinished": contrast.is_unfinished if contrast else None,
    }


def _contrast_record(contrast: Contrast | None) -> dict[str, Cell]:
    if contrast is None:
        return dict.fromkeys(_CONTRAST_KEYS)
    values = (
        contrast.baseline,
        contrast.n,
        contrast.test,
        contrast.p,
        contrast.p_holm,
        contrast.p_non_inferior,
        contrast.is_non_inferior,
        contrast.margin,
        contrast.minimum_detectable_effect,
    )
    return dict(zip(_CONTRAST_KEYS, values, strict=True))


def _interval(name: str, interval: Interval | None) -> dict[str, Cell]:
    keys = (name, f"{name}_low_95", f"{name}_high_95", f"{name}_standard_error", f"{name}_interval")
    if interval is None:
        return dict.fromkeys(keys)
    values = (interval.estimate, interval.low, interval.high, interval.standard_error, interval.kind)
    return dict(zip(keys, values, strict=True))
