"""Comparisons for people (terminal, Markdown, LaTeX) and for programs (CSV, JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from harness.plural import counted
from warehouse.comparison.contrasts import ALPHA, Comparison, Contrast, Row, SpeedRatio
from warehouse.comparison.manifests import Difference
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import LEAST_COMPLETENESS
from warehouse.comparison.show_warnings import between_runs, open_by_missing, too_small
from warehouse.formatting import NOTHING, fixed, floored_percent, p_value, signed, span
from warehouse.labels import labels
from warehouse.render import fallback
from warehouse.statistics.bounded import smallest_margin
from warehouse.statistics.intervals import Interval
from warehouse.statistics.planning import POWER

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
UNFINISHED = (
    "Unfinished: a run of the pair lacks samples. The difference, interval, p, MDE and speed-up are valid only if "
    "samples are missing at random, which is rarely the case, because long chains finish last. Whether a run is not "
    f"worse is only assessed with {100 * LEAST_COMPLETENESS:g} % of the planned samples or more, and missing ones then "
    "count against it."
)
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


def difference_lines(differences: Sequence[Difference], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences between the manifests, one line each. names: short names of the runs by run id."""
    for difference in differences:
        names_by_value: dict[str, list[str]] = {}
        for run_id, name in names.items():
            if run_id in difference.values:
                value = _value(difference.name, difference.values[run_id])
                names_by_value.setdefault(value, []).append(name)
        values = "; ".join(f"{value} ({', '.join(named)})" for value, named in names_by_value.items())
        yield f"{difference.name} ({_MATTERS[difference.matter]}): {values}"


def _value(name: str, value: str) -> str:
    """Return a setting's value as text; the parameters of a method are stored as JSON."""
    if name != "parameters":
        return value
    return ", ".join(f"{key} {setting}" for key, setting in json.loads(value).items()) or NOTHING


def legend(comparison: Comparison) -> Iterator[str]:
    """Yield how to read the table, one line per group of columns."""
    kinds = sorted({row.result.kind for row in comparison.rows})
    ratios = sorted({row.speed.ratio.kind for row in comparison.rows if row.speed and row.speed.ratio})
    yield (
        f"95 %: confidence interval over problems ({', '.join(kinds)}). "
        "Re-run SE: standard error of running the same problems again."
    )
    yield from contrast_legend(comparison)
    if ratios:
        yield (
            "Speed-up: latency of the baseline divided by that of the run, geometric mean over problems "
            f"({', '.join(ratios)})."
        )
        yield from dict.fromkeys(between_runs(row.speed.factor) for row in comparison.rows if row.speed)
        if any(row.run.summary.concurrency > 1 for row in comparison.rows):
            yield "Several samples in flight shared the engines, so latencies include the load of the other samples."
    yield from at_one_lines(comparison)
    yield from fallback_lines(comparison)


def at_one_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the speed-ups with one sample in flight, estimated from timing samples, in one line."""
    shown = []
    for row in comparison.rows:
        at_one = row.speed.at_one if row.speed else None
        if row.speed is None or at_one is None:
            continue
        ratio, name = at_one.ratio, names(comparison)[row.run.run_id]
        within = " within these runs" if row.speed.factor is None and ratio.low is not None else ""
        of_baseline = f"{at_one.num_timed_of_baseline} of the baseline"
        timed = f"{at_one.num_timed} of {_drawn_from(row.run)} samples timed, {of_baseline}"
        mark = "!" if row.speed.unlike else ""
        shown.append(f"{name} {fixed(ratio.estimate, 2)}×{mark} ({span(ratio.low, ratio.high, 2)}{within}; {timed})")
    if shown:
        yield f"Speed-up one at a time, ratio of mean latencies, from timing samples: {'; '.join(shown)}."


def _drawn_from(run: Run) -> int:
    return len(run.timed.problems) if run.timed else 0


def fallback_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the fallback rates of the runs in which anything was decided about drafts, in one line."""
    summaries = {row.run.run_id: row.run.summary for row in comparison.rows}
    rates = {run_id: fallback(summary) for run_id, summary in summaries.items() if summary.num_decisions}
    if rates:
        shown = "; ".join(f"{name} {rates[run_id]}" for run_id, name in names(comparison).items() if run_id in rates)
        yield f"Fallback, decisions that refused every draft: {shown}."


def contrast_legend(comparison: Comparison) -> Iterator[str]:
    """Yield how to read the cells of `contrast_cells`; nothing if no run is compared with a baseline."""
    contrasts = [row.contrast for row in comparison.rows if row.contrast]
    if not contrasts:
        return
    tests = sorted({contrast.test for contrast in contrasts})
    differences = sorted({contrast.difference.kind for contrast in contrasts})
    yield (
        "Differences are in percentage points, run minus baseline, paired by problem. "
        f"Their interval: {', '.join(differences)}, which holds if a few problems carry the difference. "
        f"Test: {', '.join(tests)}. p (Holm): adjusted for {counted(len(contrasts), 'test')}."
    )
    yield (
        f"Non-inferior: the interval lies above −{100 * comparison.settings.margin:g} points. MDE: minimum "
        f"detectable effect, the smallest true difference detected with {100 * POWER:.0f} % power at "
        f"p < {ALPHA:g}, unadjusted."
    )
    yield from open_by_missing(comparison)
    yield from too_small(comparison)
    if any(contrast.is_unfinished for contrast in contrasts):
        yield UNFINISHED


def baseline_lines(comparison: Comparison) -> Iterator[str]:
    """Yield for each dataset which run is its baseline, and why; for each regime where they have their own."""
    datasets = [base.dataset for base in comparison.baselines]
    for base in comparison.baselines:
        regime = f", {', '.join(base.regimes)}" if datasets.count(base.dataset) > 1 else ""
        yield f"Baseline of {base.dataset}{regime}: {base.run.run_id}, because {base.why}."


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
        *contrast_cells(row.contrast),
        *_speed_cells(row.speed),
    ]


def contrast_cells(contrast: Contrast | None) -> list[str]:
    """Return the cells of a contrast, from `difference` to `MDE` in HEADERS."""
    if contrast is None:
        return ["baseline", *[NOTHING] * 5]
    difference, effect = contrast.difference, contrast.minimum_detectable_effect
    return [
        signed(100 * difference.estimate, 2),
        span(difference.low, difference.high, 1, 100),
        p_value(contrast.p),
        p_value(contrast.p_holm),
        verdict(contrast),
        "over 100" if effect is not None and effect > 1 else fixed(effect, 1, 100),
    ]


def verdict(contrast: Contrast) -> str:
    """Return the cell that says whether the run is not worse, or why that is not asked or not shown."""
    if contrast.pair.why_refused:
        return f"unfinished ({floored_percent(contrast.pair.completeness)} %)"
    if contrast.is_open_by_missing:
        return f"not shown ({contrast.pair.num_missing_samples} missing)"
    if contrast.is_too_small:
        return "n too small"
    return {True: "yes", False: "not shown", None: NOTHING}[contrast.is_non_inferior]


def _speed_cells(speed: SpeedRatio | None) -> list[str]:
    if speed is None:
        return [NOTHING, NOTHING]
    if speed.ratio is None:
        return ["refused" if speed.unlike else "not timed", NOTHING]
    mark = "!" if speed.unlike else ""
    within = " within these runs" if speed.factor is None and speed.ratio.low is not None else ""
    return [f"{fixed(speed.ratio.estimate, 2)}×{mark}", span(speed.ratio.low, speed.ratio.high, 2) + within]


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
    at_one = speed.at_one if speed else None
    pair = contrast.pair if contrast else None
    return cells | {
        "num_result_problems": len(row.outcomes.problems),
        "num_result_samples": row.outcomes.num_samples,
        "num_common_samples": pair.num_common_samples if pair else None,
        "num_missing_samples": pair.num_missing_samples if pair else None,
        "is_unfinished": contrast.is_unfinished if contrast else None,
        "smallest_margin": smallest_margin(contrast.n) if contrast else None,
        "run_factor_standard_deviation": speed.factor.standard_deviation if speed and speed.factor else None,
        "run_factor_degrees": speed.factor.degrees if speed and speed.factor else None,
        "num_decisions": summary.num_decisions,
        "num_refused": summary.num_refused,
        "fallback_rate": summary.fallback_rate,
        "decision_kinds": ", ".join(summary.decision_kinds) or None,
        "completeness": pair.completeness if pair else None,
        "non_inferiority_refused": contrast.pair.why_refused if contrast else None,
        **_interval("speed_up_at_one", at_one.ratio if at_one else None),
        "num_timed_at_one": at_one.num_timed if at_one else None,
        "num_timed_at_one_of_baseline": at_one.num_timed_of_baseline if at_one else None,
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
