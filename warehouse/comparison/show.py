"""A comparison for people (terminal, Markdown, LaTeX) and for programs (CSV, JSON)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from warehouse.comparison.contrasts import ALPHA, Comparison, Contrast, Row
from warehouse.comparison.metrics import Run
from warehouse.display import printable
from warehouse.labels import labels
from warehouse.render import NOTHING, limited, unreadable
from warehouse.statistics.intervals import Interval
from warehouse.statistics.power import POWER

Format = Literal["table", "json", "csv", "markdown", "latex"]
Cell = str | float | int | bool | None
_LATEX = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "−": "$-$", "×": r"$\times$", "–": "--"}  # fmt: skip


def loud(comparison: Comparison) -> Iterator[str]:
    """What makes these numbers something else than a result; one line each."""
    yield from (f"NOT COMPARED: {line}" for line in comparison.left_out)
    runs = {row.run.run_id: row.run for row in comparison.rows}
    for run in runs.values():
        said = [*limited(run.summary), *_missing(run), *unreadable(run.summary)]
        yield from (f"{run.run_id}: {line}" for line in said)
    for row in comparison.rows:
        contrast, speed = row.contrast, row.speed
        if contrast is not None:
            yield from _left_out(row, contrast, sum(other.run is row.run for other in comparison.rows))
        if speed is not None and speed.unlike:
            what = "LATENCY FORCED" if speed.ratio else "LATENCY REFUSED"
            more = "" if speed.ratio else " (--force compares all the same)"
            yield f"{what}: {row.run.run_id} against {speed.baseline}: {'; '.join(speed.unlike)}{more}"


def _missing(run: Run) -> Iterator[str]:
    """What a run lacks and the command for it."""
    summary, total = run.summary, run.outcomes.num_samples
    if summary.num_not_run:
        yield (
            f"INCOMPLETE RUN: {summary.num_not_run} of {total} samples have not been run. They are left out here, while"
            f" the run's summary counts them as not correct; {run.completion}"
        )
    if run.num_ungraded:
        by = f" by grader version {summary.grader_version}" if summary.grader_version else ""
        graded = run.graded if run.named_grader else f"graded{by}"
        more = "." if summary.num_not_run and not run.named_grader else f"; {run.remedy}"
        yield (
            f"NOT GRADED: {run.num_ungraded} of {total} samples are finished but not {graded}. They are left out here, "
            f"while the run's summary counts them as not correct{more}"
        )


def _left_out(row: Row, contrast: Contrast, num_metrics: int) -> Iterator[str]:
    """What a comparison is not over although the run has planned it; said once where it holds for every metric."""
    run, pair, n, is_first = row.run, contrast.pair, contrast.n, row.speed is not None
    against, metric = f"{run.run_id} against {contrast.baseline}", row.metric.partition("[")[0]
    shared, num_problems = pair.num_shared_problems, len(run.outcomes.problems)
    if is_first and shared < num_problems:
        name = run.run_id if num_metrics > 1 else f"{run.run_id}, {row.metric}"
        which = f"the {n} problems" if n == shared else f"{n} of the {shared} problems"
        yield (f"{name}: compared on {which} it shares with {contrast.baseline}; the run itself has {num_problems}.")
    if is_first and pair.num_missing_samples:
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
    """What differs between the manifests; one line each."""
    runs = dict.fromkeys(row.run.run_id for row in comparison.rows)
    for difference in comparison.differences:
        by_value: dict[str, list[str]] = {}
        for run_id in runs:
            if run_id in difference.values:
                by_value.setdefault(difference.values[run_id], []).append(run_id)
        shown = "; ".join(f"{value} ({', '.join(having)})" for value, having in by_value.items())
        yield f"{difference.name} [{_MATTERS[difference.matter]}]: {shown}"


_MATTERS = {
    "subject": "is compared",
    "accuracy": "bears on accuracy",
    "latency": "bears on latency",
    "accuracy and latency": "bears on accuracy and latency",
    "note": "note",
}


def legend(comparison: Comparison) -> Iterator[str]:
    """How to read the table."""
    kinds = sorted({row.result.kind for row in comparison.rows})
    tests = sorted({row.contrast.test for row in comparison.rows if row.contrast})
    ratios = sorted({row.speed.ratio.kind for row in comparison.rows if row.speed and row.speed.ratio})
    yield f"Intervals are 95 %, over problems: {', '.join(kinds)}. Re-run SE: noise of running these problems again."
    if tests:
        yield (
            f"Differences are in points, run less baseline, paired by problem; test: {', '.join(tests)}; "
            f"p (Holm) is adjusted for {sum(row.contrast is not None for row in comparison.rows)} test(s)."
        )
        yield (
            f"Not worse: the interval lies above −{100 * comparison.settings.margin:g} points. MDE: the smallest true "
            f"difference found with {100 * POWER:.0f} % chance at p < {ALPHA:g}, without Holm."
        )
    if any(row.contrast is not None and row.contrast.is_unfinished for row in comparison.rows):
        yield (
            "Unfinished: a run of the pair lacks samples. The pair's difference, interval, p, MDE and speed-up hold "
            "only if what is missing is missing at random, which it rarely is, because long chains finish last. A run "
            "is called not worse only when both runs are complete."
        )
    if ratios:
        yield f"Speed-up: latency of the baseline over the run's, geometric mean over problems; {', '.join(ratios)}."
        if any(row.run.summary.concurrency > 1 for row in comparison.rows):
            yield "Samples shared the engines (several in flight): a time is that under this load, not a sample's own."


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
    "not worse",
    "MDE",
    "speed-up",
    "95 %  ",
)


def names(comparison: Comparison) -> dict[str, str]:
    """A short name for each run, by run id."""
    runs = list({row.run.run_id: row.run for row in comparison.rows}.values())
    return dict(zip((run.run_id for run in runs), labels([run.summary for run in runs]), strict=True))


def cells(row: Row, name: str) -> list[str]:
    """One row for people, under HEADERS; `name`: the run's."""
    contrast, speed = row.contrast, row.speed
    rerun = None if row.rerun_standard_error is None else f"{100 * row.rerun_standard_error:.2f}"
    n, planned = len(row.outcomes.problems), len(row.run.outcomes.problems)
    opening = [name, row.metric, str(n) if n == planned else f"{n} of {planned}"]
    opening += [f"{100 * row.result.estimate:.2f}", _span(row.result, 100, 1), rerun or NOTHING]
    if contrast is None:
        return [*opening, "baseline", *[NOTHING] * 7]
    effect = contrast.minimum_detectable_effect
    verdict = {True: "yes", False: "not shown", None: NOTHING}[contrast.is_non_inferior]
    verdict = "unfinished" if contrast.is_unfinished else verdict
    middle = [
        _signed(100 * contrast.difference.estimate),
        _span(contrast.difference, 100, 1),
        _p(contrast.p),
        _p(contrast.p_holm),
        verdict,
        NOTHING if effect is None else "over 100" if effect > 1 else f"{100 * effect:.1f}",
    ]
    if speed is None:
        return [*opening, *middle, NOTHING, NOTHING]
    if speed.ratio is None:
        return [*opening, *middle, "refused" if speed.unlike else "not timed", NOTHING]
    mark = "!" if speed.unlike else ""
    return [*opening, *middle, f"{speed.ratio.estimate:.2f}×{mark}", _span(speed.ratio, 1, 2)]


def record(row: Row) -> dict[str, Cell]:
    """One row for programs: fractions, not percent; p-values in full.

    num_common_samples counts the sample indices that are compared, over all problems: those that no run of the pair
    lacks, one that a single run has planned included; num_missing_samples counts the others that either has planned.
    """
    summary, contrast, speed = row.run.summary, row.contrast, row.speed
    found: dict[str, Cell] = {
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
    found |= _interval("result", row.result)
    names = ("baseline_run_id", "num_common_problems", "test", "p", "p_holm", "p_non_inferior", "is_non_inferior")
    found |= dict.fromkeys((*names, "margin", "minimum_detectable_effect"))
    found |= _interval("difference", contrast.difference if contrast else None)
    if contrast:
        values = (contrast.baseline, contrast.n, contrast.test, contrast.p, contrast.p_holm, contrast.p_non_inferior)
        found |= dict(zip(names, (*values, contrast.is_non_inferior), strict=True))
        found |= {
            "margin": contrast.margin,
            "minimum_detectable_effect": contrast.minimum_detectable_effect,
        }
    found |= {"num_timed_problems": speed.n if speed else None}
    found |= {"latency_unlike": "; ".join(speed.unlike) if speed and speed.unlike else None}
    found |= _interval("speed_up", speed.ratio if speed else None)
    found |= {"num_result_problems": len(row.outcomes.problems), "num_result_samples": row.outcomes.num_samples}
    pair = contrast.pair if contrast else None
    common = pair.num_common_samples if pair else None
    missing = pair.num_missing_samples if pair else None
    found |= {"num_common_samples": common, "num_missing_samples": missing}
    return found | {"is_unfinished": contrast.is_unfinished if contrast else None}


def latex(text: str) -> str:
    """Text with LaTeX's own characters escaped."""
    return re.sub("|".join(map(re.escape, _LATEX)), lambda match: _LATEX[match[0]], printable(text))


def markdown(text: str) -> str:
    """Text that no Markdown reader takes for markup."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", printable(text))


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], shape: Literal["markdown", "latex"]) -> str:
    """A table of texts, escaped, in Markdown or LaTeX."""
    from tabulate import tabulate

    escape = markdown if shape == "markdown" else latex
    body = [[escape(cell) for cell in row] for row in rows]
    numeric = [all(re.fullmatch(r"[+−]?[\d.,]+×?|–", row[i]) for row in rows) for i in range(len(headers))]
    return tabulate(
        body,
        headers=[escape(header.strip()) for header in headers],
        tablefmt="github" if shape == "markdown" else "latex_raw" if shape == "latex" else shape,
        disable_numparse=True,
        colalign=["right" if is_number else "left" for is_number in numeric] if rows else None,
    )


def _interval(name: str, interval: Interval | None) -> dict[str, Cell]:
    keys = (name, f"{name}_low_95", f"{name}_high_95", f"{name}_standard_error", f"{name}_interval")
    if interval is None:
        return dict.fromkeys(keys)
    values = (interval.estimate, interval.low, interval.high, interval.standard_error, interval.kind)
    return dict(zip(keys, values, strict=True))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _span(interval: Interval, factor: float, digits: int) -> str:
    if interval.low is None or interval.high is None:
        return NOTHING
    return f"{factor * interval.low:.{digits}f} to {factor * interval.high:.{digits}f}".replace("-", "−")


def _p(value: float) -> str:
    return "<0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"
