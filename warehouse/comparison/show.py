"""Output of a comparison: table cells, legends, warnings, and JSON records."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from textwrap import wrap

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed, floored_percent, p_value, percent, signed, span
from harness.cli.screen import Column, Table
from warehouse.comparison.compared_runs import Run
from warehouse.comparison.contrasts import Comparison, Contrast, Row, SpeedRatio
from warehouse.comparison.manifests import Difference, are_files_implied
from warehouse.comparison.outcomes import LEAST_COMPLETENESS
from warehouse.report.summary import RunSummary, accuracy, fallback, labels
from warehouse.statistics.intervals import FEWEST_FAMILIES, Interval
from warehouse.statistics.planning import POWER
from warehouse.statistics.ratios import RunFactor

Cell = str | float | int | bool | None
CONTRAST_HEADERS = ("difference", "95 %", "on these", "p", "p (Holm)", "not worse", "worst case")
"""Column headers of `contrast_cells`."""
_COLUMNS = 80
_WRAPPED, _LEAST_WIDTH = ("run", "problems", "not worse"), 8
"""Columns that may wrap, and their minimum width in characters: this leaves room for numbers on a terminal."""
UNFINISHED = (
    "Unfinished: a run lacks samples. The difference, its intervals, p and the speed-up are valid only if "
    "samples are missing at random. That is rarely true, because long chains finish last. Non-inferiority "
    f"is assessed only with at least {100 * LEAST_COMPLETENESS:g} % of the planned samples. Missing samples then "
    "count against the run."
)
_MATTERS = {
    "subject": "compared",
    "accuracy": "affects accuracy",
    "latency": "affects latency",
    "accuracy and latency": "affects accuracy and latency",
    "note": "note",
}
_MODELS = ("draft", "target", "reward model")
_MOST_NOTES = 8
"""Maximum number of lines below the brief table, at 80 columns."""
_UNEQUAL_LOADS = 1.25
"""Ratio of two runs' median numbers of samples in flight above which there is a warning."""


def names(comparison: Comparison) -> dict[str, str]:
    """Return a short name per run, by run id."""
    runs = {row.run.run_id: row.run.summary for row in comparison.rows}
    return dict(zip(runs, labels(list(runs.values())), strict=True))


def contrast_cells(contrast: Contrast | None, digits: int = 2) -> list[str]:
    """Return the cells of a contrast, for the columns CONTRAST_HEADERS."""
    if contrast is None:
        return ["baseline", *[NOTHING] * 6]
    difference, worst = contrast.difference, contrast.worst
    return [
        signed(100 * difference.estimate, digits),
        span(difference.low, difference.high, 1, 100),
        on_these_cell(contrast),
        NOTHING if difference.p is None else p_value(difference.p),
        NOTHING if contrast.p_holm is None else p_value(contrast.p_holm),
        _verdict(contrast),
        span(worst.low, worst.high, 1, 100) if worst else NOTHING,
    ]


def on_these_cell(contrast: Contrast | None) -> str:
    """Return ± half the width of the interval for rerunning the same problems; this interval is symmetric."""
    found = contrast.on_these if contrast else None
    return NOTHING if found is None or found.high is None else f"±{fixed(found.high - found.estimate, 1, 100)}"


def _verdict(contrast: Contrast) -> str:
    """Return the non-inferiority cell: the result, or why it is not assessed or not shown."""
    if contrast.pair.why_refused:
        return f"unfinished ({floored_percent(contrast.pair.completeness)} %)"
    if contrast.is_non_inferior is False and contrast.is_worse:
        return "worse"
    if contrast.is_non_inferior is False and contrast.pair.num_missing_samples:
        return f"not shown ({contrast.pair.num_missing_samples} missing)"
    return {True: "yes", False: "not shown", None: NOTHING}[contrast.is_non_inferior]


def speed_cells(speed: SpeedRatio | None, *, has_sides: bool = True) -> list[str]:
    """Return the speed-up and its interval. has_sides: include the GPUs and repeats of both sides."""
    if speed is None:
        return [NOTHING, NOTHING]
    if speed.ratio is None:
        return ["refused" if speed.unlike else "not timed", NOTHING]
    mark = ("!" if speed.unlike else "") + (f" ({speed.sides})" if has_sides and speed.sides else "")
    return [f"{fixed(speed.ratio.estimate, 2)}×{mark}", span(speed.ratio.low, speed.ratio.high, 2)]


def complete_tables(comparison: Comparison) -> list[Table]:
    """Return the complete tables: accuracy, differences, non-inferiority, and speed with fallback."""
    return [
        _accuracies(comparison),
        *([_differences(comparison), _not_worse(comparison)] if any(row.contrast for row in comparison.rows) else []),
        _speeds(comparison),
    ]


def _accuracies(comparison: Comparison) -> Table:
    names = ("run", "metric", "problems", "%", "95 %", "re-run SE")
    found = [
        [
            short,
            row.metric,
            _problems(len(row.outcomes.problems), row.result) + _of_planned(row),
            fixed(row.result.estimate, 2, 100),
            span(row.result.low, row.result.high, 1, 100),
            fixed(row.rerun_standard_error, 2, 100),
        ]
        for short, row in _named(comparison)
    ]
    return Table(_columns(names), found, title="Accuracy")


def _problems(n: int, over: Interval) -> str:
    return f"{n}" if over.families is None else f"{n} in {over.families} families"


def _of_planned(row: Row) -> str:
    planned = len(row.run.outcomes.problems)
    return "" if planned == len(row.outcomes.problems) else f" of {planned}"


def _differences(comparison: Comparison) -> Table:
    names = ("run", "metric", "problems", "points", "95 %", "on these", "p", "p (Holm)")
    found = []
    for short, row in _named(comparison):
        if contrast := row.contrast:
            estimate, ends, on_these, p, adjusted, *_ = contrast_cells(contrast)
            n = _problems(contrast.n, contrast.like_these)
            found.append([short, _metric(row), n, estimate, ends, on_these, p, adjusted])
    return _without_metric(Table(_columns(names), found, title="Difference from the baseline"))


def _not_worse(comparison: Comparison) -> Table:
    names = ("run", "metric", "if problems may be lost entirely", "p (one-sided)", "not worse", "problems needed")
    found = []
    for short, row in _named(comparison):
        if contrast := row.contrast:
            *_, verdict, ends = contrast_cells(contrast)
            p = contrast.worst.p if contrast.worst else None
            cell = NOTHING if p is None else p_value(p)
            needed = _needed(contrast)
            number = NOTHING if needed is None else f"{needed:,}"
            found.append([short, _metric(row), ends, cell, verdict, number])
    title = f"Not worse by {100 * comparison.settings.margin:g} points"
    return _without_metric(Table(_columns(names), found, title=title))


def _needed(contrast: Contrast) -> int | None:
    """Return `Contrast.num_needed`, or None if the run is worse."""
    return None if contrast.is_worse else contrast.num_needed


def _speeds(comparison: Comparison) -> Table:
    names = ("run", "speed-up", "95 %", "per GPU-second", "fallback", "by problem", "by the draft")
    found = []
    for short, row in _named(comparison):
        if _metric(row) == "pass@1":
            summary, per_card = row.run.summary, row.speed and row.speed.per_card_second
            share, rate = speculation(summary)
            by_problem = summary.value("mean_fallback_rate") if summary.num_decisions else None
            speed = speed_cells(row.speed)
            cell = f"{fixed(per_card, 2)}×" if per_card else NOTHING
            found.append([short, *speed, cell, rate, percent(by_problem), share])
    return Table(_columns(names), found, title="Speed and fallback")


def _named(comparison: Comparison) -> Iterator[tuple[str, Row]]:
    short = names(comparison)
    return ((short[row.run.run_id], row) for row in comparison.rows)


def _columns(headers: Sequence[str]) -> list[Column]:
    return [Column(name, least=_LEAST_WIDTH) if name in _WRAPPED else Column(name) for name in headers]


def _without_metric(table: Table) -> Table:
    """Drop the second column, the metric, if it is pass@1 in all rows."""
    rows = [list(row) for row in table.rows]
    if any(row[1] != "pass@1" for row in rows):
        return replace(table, rows=rows)
    columns = [table.columns[0], *table.columns[2:]]
    return replace(table, columns=columns, rows=[[row[0], *row[2:]] for row in rows])


def brief_table(comparison: Comparison, *, has_speed_interval: bool = True) -> Table:
    """Return the brief table. If pass@1 is the only metric, there is no column for the metric."""
    found = []
    for short, row in _named(comparison):
        difference, ends, on_these, _, _, verdict, _ = contrast_cells(row.contrast, digits=1)
        speed, ends_of_speed = speed_cells(row.speed, has_sides=False)
        found.append(
            [
                short,
                _metric(row),
                _with(fixed(row.result.estimate, 1, 100), span(row.result.low, row.result.high, 0, 100)),
                _with(difference, ends),
                on_these,
                verdict,
                _with(speed, ends_of_speed if has_speed_interval else NOTHING),
            ]
        )
    is_pass_at_1 = all(row[1] == "pass@1" for row in found)
    speed = "speed-up\n(95 %)" if has_speed_interval else "speed-up"
    headers = ["run", "metric", f"{'pass@1 ' if is_pass_at_1 else ''}%\n(95 %)", "difference\n(95 %)", "on these"]
    table = _without_metric(Table(_columns([*headers, "not worse", speed]), found))
    place = table.names.index("on these")
    if any(row[place] != NOTHING for row in table.rows):
        return table
    rows = [[*row[:place], *row[place + 1 :]] for row in table.rows]
    return Table([*table.columns[:place], *table.columns[place + 1 :]], rows)


def paper_table(comparison: Comparison) -> Table:
    """Return the columns usually reported in papers: accuracy, difference, speed-up, fallback and draft share."""
    short, headers = names(comparison), ["method", "metric", "% ±", "difference (95 %)", "speed-up", "fallback %"]
    table = [
        [
            short[row.run.run_id],
            _metric(row),
            accuracy(row.result),
            _with(*contrast_cells(row.contrast, 1)[:2]),
            speed_cells(row.speed)[0],
            *(share.removesuffix(" %") for share in reversed(speculation(row.run.summary))),
        ]
        for row in comparison.rows
    ]
    headers.append("draft's share %")
    if all(_metric(row) == "pass@1" for row in comparison.rows):
        headers[2] = "pass@1 % ±"
        headers, table = [headers[0], *headers[2:]], [[row[0], *row[2:]] for row in table]
    return Table([Column(name, is_right=bool(place)) for place, name in enumerate(headers)], table)


def paper_caption(comparison: Comparison) -> str:
    """Return the caption of the paper table."""
    short = names(comparison)
    bases = ", ".join(dict.fromkeys(short[base.run.run_id] for base in comparison.baselines))
    summaries = [row.run.summary for row in comparison.rows]
    sizes = dict.fromkeys(f"{one.dataset}: {one.n} problems × {one.k} samples" for one in summaries)
    loads = ", ".join(f"{number:,}" for number in sorted({one.concurrency for one in summaries}))
    return (
        f"{'; '.join(sizes)}. ± standard error over problems. Difference from {bases} in percentage points, paired by "
        f"problem, with 95 % interval. Speed-up with {loads} samples in flight: baseline latency divided by run "
        "latency, geometric mean over problems. Fallback: share of decisions that rejected every draft. Draft's share: "
        "share of emitted tokens."
    )


def _metric(row: Row) -> str:
    return row.metric.partition("[")[0]


def _with(estimate: str, interval: str) -> str:
    """Return an estimate with its interval, using a dash instead of `to` unless an end is signed."""
    if interval == NOTHING:
        return estimate
    return f"{estimate} ({interval if '−' in interval else interval.replace(' to ', '–')})"


def difference_lines(
    differences: Sequence[Difference], names: Mapping[str, str], *, is_brief: bool = False
) -> Iterator[str]:
    """Yield the differences between manifests, one per line. names: short run names by run id.

    Methods are not listed, because the runs' short names contain them. Parameters are listed only if they differ
    between runs of one method. For models, runs without the model are ignored. is_brief: omit which results a
    difference affects.
    """
    for difference in _told(differences):
        names_by_value: dict[str, list[str]] = {}
        for run_id, name in names.items():
            if run_id in difference.values:
                names_by_value.setdefault(difference.values[run_id], []).append(name)
        if len(names_by_value) > 1:
            values = "; ".join(f"{value} ({', '.join(named)})" for value, named in names_by_value.items())
            affected = "" if is_brief else f" ({_MATTERS[difference.matter]})"
            yield f"{difference.name}{affected}: {values}"


def _told(differences: Sequence[Difference]) -> Iterator[Difference]:
    by_name = {difference.name: difference for difference in differences}
    by_run = {difference.name: list(difference.values.values()) for difference in differences}
    methods = by_name["method"].values if "method" in by_name else {}
    for difference in differences:
        if difference.name == "parameters":
            yield replace(difference, values=_differing_parameters(difference.values, methods))
        elif difference.name.removesuffix(" files") in _MODELS:
            if are_files_implied(difference.name, by_run):
                continue
            values = {run_id: value for run_id, value in difference.values.items() if value != "none"}
            yield replace(difference, values=values)
        elif difference.name != "method":
            yield difference


def _differing_parameters(values: Mapping[str, str], methods: Mapping[str, str]) -> dict[str, str]:
    """Return, as strings, the parameters (stored as JSON) that differ between runs of one method."""
    parameters = {run_id: json.loads(value) for run_id, value in values.items()}
    told = {}
    for run_id, own in parameters.items():
        others = [other for name, other in parameters.items() if methods.get(name) == methods.get(run_id)]
        differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
        if differing:
            told[run_id] = ", ".join(f"{key} {own[key]}" for key in differing)
    return told


def baseline_lines(comparison: Comparison) -> Iterator[str]:
    """Yield each dataset's baseline and why it was chosen; two if both regimes have baselines."""
    datasets = [base.run.dataset for base in comparison.baselines]
    for base in comparison.baselines:
        regime = f", {', '.join(base.regimes)}" if datasets.count(base.run.dataset) > 1 else ""
        yield f"Baseline of {base.run.dataset}{regime}: {base.run.run_id}, because {base.why}."


def brief_notes(comparison: Comparison, *, has_speed_interval: bool) -> list[str]:
    """Return the legend of the brief table and the differences, in at most eight lines of 80 columns."""
    affecting = [difference for difference in comparison.differences if difference.matter != "note"]
    differing = [f"Differs: {line}" for line in difference_lines(affecting, names(comparison), is_brief=True)]
    speeds = [*_brief_speeds(comparison, has_speed_interval)]
    wanted = [
        *_brief_baselines(comparison),
        *_brief_contrasts(comparison),
        *_needed_lines(comparison),
        *speeds,
        *differing,
        *at_one_lines(comparison),
        *_fallback_lines(comparison),
    ]
    kept: set[str] = set()
    for line in (*speeds, *wanted):  # what an interval covers is never dropped
        if sum(map(_height, {*kept, line})) < _MOST_NOTES:
            kept.add(line)
    lines = [line for line in wanted if line in kept]
    left = len(set(differing) - set(lines))
    more = f" ({counted(left, 'setting differs', 'settings differ')})" if left else ""
    return [*lines, f"More{more}: --all. All metrics: -o FILE.csv, .json, .md or .tex."]


def _height(line: str) -> int:
    return len(wrap(line, _COLUMNS))


def _listed(opening: str, items: Sequence[str]) -> str:
    """Return the items in at most two lines of 80 columns. An ellipsis replaces items that do not fit."""
    kept, end = list(items), "."
    while _height(text := f"{opening} {'; '.join(kept)}{end}") > 2 and len(kept) > 1:
        kept.pop()
        end = "; …"
    return text


def _brief_baselines(comparison: Comparison) -> Iterator[str]:
    short, reasons = names(comparison), dict.fromkeys(base.why for base in comparison.baselines)
    if len(comparison.baselines) == 1:
        yield f"Baseline: {short[comparison.baselines[0].run.run_id]}, because {comparison.baselines[0].why}."
    else:
        datasets = {base.run.dataset for base in comparison.baselines}
        of_each = "regime" if len(datasets) == 1 else "dataset"
        yield f"Baseline: one per {of_each}, because {'; or because '.join(reasons)}."


def _brief_contrasts(comparison: Comparison) -> Iterator[str]:
    """Yield the legend of each contrast column and the basis of "not worse"."""
    named = [(short, row.contrast) for short, row in _named(comparison) if row.contrast]
    if not named:
        return
    sizes = dict.fromkeys(_size(row) for row in comparison.rows)
    over = f" over {next(iter(sizes))}" if len(sizes) == 1 else ""
    is_again = any(contrast.on_these and contrast.on_these.high is not None for _, contrast in named)
    again = " On these: ± for reruns." if is_again else ""
    yield f"Difference: in points{over}.{again}"
    yield from _few_families(comparison)
    if any(contrast.is_same_subject for _, contrast in named):
        yield "Runs of one method: differences have intervals for reruns of these problems."
    if any(contrast.is_unfinished for _, contrast in named):
        yield "Unfinished runs: differences are valid only if samples are missing at random (details: --all)."
    bounds = [
        f"{short}{'' if _metric(row) == 'pass@1' else f' {_metric(row)}'} {span(worst.low, worst.high, 1, 100)}"
        for short, row in _named(comparison)
        if row.contrast and (worst := row.contrast.worst) and worst.p
    ]
    if bounds:
        margin = f"{100 * comparison.settings.margin:g} points"
        yield _listed(f"Not worse: above −{margin} even if single problems may be lost entirely. Worst cases:", bounds)


def _brief_speeds(comparison: Comparison, has_interval: bool) -> Iterator[str]:
    speeds = [(short, row.speed) for short, row in _named(comparison) if row.speed and row.speed.ratio]
    if speeds:
        repeated = [short for short, speed in speeds if speed.factor]
        only = f" only for {', '.join(repeated)}" if len(repeated) < len(speeds) else ""
        covers = f"includes run-to-run variation{only}" if repeated else "holds within these runs"
        told = [f"{short} {row.speed.sides}" for short, row in _named(comparison) if row.speed and row.speed.sides]
        said = ["geometric mean over problems", *([f"the interval {covers}"] if has_interval else []), *told]
        yield f"Speed-up: {'; '.join(said)}."


def _needed_lines(comparison: Comparison) -> Iterator[str]:
    named = [(short, _needed(row.contrast)) for short, row in _named(comparison) if row.contrast]
    if needed := [f"{short} {number:,}" for short, number in named if number]:
        yield _listed("Problems needed if equally accurate:", needed)


def _size(row: Row) -> str:
    n, k = len(row.outcomes.problems), int(row.outcomes.samples.max())
    problems = (
        counted(n, "problem") if row.result.families is None else f"{n} problems in {row.result.families} families"
    )
    return f"{problems} × {k}"


def _few_families(comparison: Comparison) -> Iterator[str]:
    numbers = {row.result.families for row in comparison.rows} - {None}
    if any(number < FEWEST_FAMILIES for number in numbers if number is not None):
        yield f"No interval: fewer than {FEWEST_FAMILIES} families."


def legend(comparison: Comparison) -> Iterator[str]:
    """Yield the legend of the complete tables, one line per group of columns."""
    kinds = dict.fromkeys(row.result.kind for row in comparison.rows)
    yield (
        f"Accuracy, 95 %: confidence interval that treats the problems as a random sample ({'; '.join(kinds)}). "
        "Re-run SE: standard error over reruns of the same problems."
    )
    yield from contrast_legend(comparison)
    yield from limits(comparison)
    speeds = [row.speed for row in comparison.rows if row.speed and row.speed.ratio]
    if speeds:
        is_shared = any(row.run.summary.concurrency > 1 for row in comparison.rows)
        load = ", measured under the load of concurrent samples" if is_shared else ""
        yield (
            f"Speed-up: baseline latency divided by run latency, geometric mean over problems{load}. Per "
            "GPU-second: the same ratio, with each latency multiplied by the number of GPUs used."
        )
        yield from _between_runs(comparison)
    yield from at_one_lines(comparison)
    yield from _fallback_lines(comparison)
    if any(row.run.summary.num_decisions for row in comparison.rows):
        yield (
            "Fallback: share of decisions that rejected every draft. By problem: mean of this share over problems. By "
            "the draft: share of emitted tokens written by the draft."
        )


def contrast_legend(comparison: Comparison, shown: Collection[str] = CONTRAST_HEADERS) -> Iterator[str]:
    """Yield the legend of the shown cells of `contrast_cells`; nothing if no run has a baseline."""
    contrasts = [row.contrast for row in comparison.rows if row.contrast]
    if not contrasts:
        return
    margin = f"{100 * comparison.settings.margin:g} points"
    kinds = sorted({contrast.like_these.kind for contrast in contrasts})
    told = {
        "difference": "Difference: run minus baseline in percentage points, paired by problem.",
        "95 %": f"95 %: confidence interval that treats the problems as a random sample ({', '.join(kinds)}).",
        "on these": "On these: half the width of the 95 % CI for rerunning exactly these problems.",
        "p": "p: two-sided, for a difference of 0; below 0.05 if the 95 % CI excludes 0.",
        "p (Holm)": f"p (Holm): adjusted for {counted(sum(one.p_holm is not None for one in contrasts), 'test')}.",
        "not worse": f"Not worse: above −{margin} even if single problems may be lost entirely (worst case; one-sided "
        "p below 0.025, not adjusted); the data need not contain such problems. Worse: a loss with p (Holm) below "
        "0.05.",
        "worst case": 'Problems needed: number of similar problems to show "not worse" for an equally accurate method '
        f"with power {100 * POWER:.0f} % (python -m warehouse.plan).",
    }
    yield " ".join(told[name] for name in CONTRAST_HEADERS[:5] if name in shown)
    if any(contrast.is_same_subject for contrast in contrasts):
        values = "95 % and p are" if "p" in shown else "95 % is"
        yield (
            f"Runs of one method whose answers to a problem vary: {values} for rerunning these problems, not for "
            "similar problems."
        )
    if late := " ".join(told[name] for name in CONTRAST_HEADERS[5:] if name in shown):
        yield late


def limits(comparison: Comparison) -> Iterator[str]:
    """Yield why intervals are missing or depend on an assumption, one line each."""
    contrasts = [row.contrast for row in comparison.rows if row.contrast]
    if contrasts:
        yield from _few_families(comparison)
    if any(contrast.is_unfinished for contrast in contrasts):
        yield UNFINISHED


def _between_runs(comparison: Comparison) -> Iterator[str]:
    """Yield whether speed-up intervals include run-to-run variation: one line, or one per case with the runs' names."""
    runs: dict[RunFactor | None, list[str]] = {}
    for short, row in _named(comparison):
        if row.speed and row.speed.ratio:
            runs.setdefault(row.speed.factor, []).append(short)
    for factor, shorts in runs.items():
        of = f" of {', '.join(shorts)}" if len(runs) > 1 else ""
        yield (
            f"Speed-up intervals{of} hold only within these runs: there are too few repeats to estimate run-to-run "
            "variation. In our measurements, times of identical work differed by 17 %, and doubled on a busy "
            "machine. To include the variation, run one setting three times (--tag)."
            if factor is None
            else "Run-to-run variation: repeats differ by "
            f"{100 * factor.standard_deviation:.1f} % (standard deviation; {factor.num_runs} runs, {factor.degrees} "
            f"degrees of freedom). Speed-up intervals{of} include this variation."
        )


def at_one_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the speed-ups with one sample in flight, estimated from timing samples, in one line."""
    shown, short = [], names(comparison)
    for row in comparison.rows:
        if row.speed and row.speed.at_one and row.run.timed:
            found, mark = row.speed.at_one, "!" if row.speed.unlike else ""
            within = " within these runs" if found.ratio.low is not None else ""
            ends = span(found.ratio.low, found.ratio.high, 2) + within
            timed = f"{found.num_timed} of {len(row.run.timed.problems)} samples timed"
            timed += f", {found.num_timed_of_baseline} of the baseline"
            shown.append(f"{short[row.run.run_id]} {fixed(found.ratio.estimate, 2)}×{mark} ({ends}; {timed})")
    if shown:
        yield f"Speed-up with one sample in flight (ratio of mean latencies, from timing samples): {'; '.join(shown)}."


def _fallback_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the fallback rates of the runs with draft decisions, in one line."""
    summaries = {row.run.run_id: row.run.summary for row in comparison.rows}
    shown = [f"{name} {fallback(summaries[i])}" for i, name in names(comparison).items() if summaries[i].num_decisions]
    if shown:
        yield f"Fallback (all drafts rejected), share of decisions: {'; '.join(shown)}."


def warnings(comparison: Comparison) -> Iterator[str]:
    """Yield warnings about the runs and the comparison, one line each."""
    runs = {row.run.run_id: row.run for row in comparison.rows}
    for run in runs.values():
        yield from (f"{run.run_id}: {line}" for line in run.summary.warnings)
        if run.is_unfinished:
            yield f"{run.run_id}: missing samples are left out here; {run.remedy}"
    yield from pairing_warnings(comparison)
    for row in comparison.rows:
        if row.speed is not None and row.speed.unlike:
            warning = "LATENCY FORCED" if row.speed.ratio else "LATENCY REFUSED"
            remedy = "" if row.speed.ratio else " (--force compares anyway)"
            pair = f"{row.run.run_id} vs. {row.speed.baseline}"
            yield f"{warning}: {pair}: {'; '.join(row.speed.unlike)}{remedy}"
        if row.speed is not None and row.speed.ratio is not None:
            yield from _unequal_loads(row.run, runs[row.speed.baseline])


_NUMBER = re.compile(r"(?<![\w.,:−-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w:-]|[.,]\d)")
"""A number in a warning that is neither negative nor part of a name, a time or a date."""


def merged(lines: Iterable[str], names: Mapping[str, str]) -> Iterator[str]:
    """Yield each warning once, prefixed by the short names of its runs; differing numbers become ranges.

    names: short names by run id.
    """
    found: dict[str, tuple[list[str], list[str]]] = {}
    for line in lines:
        run, _, text = line.partition(": ")
        own = [names[run]] if run in names else []
        text = renamed(text if own else line, names)
        texts, runs = found.setdefault(_NUMBER.sub("#", text), ([], []))
        texts.append(text)
        runs += own
    for texts, runs in found.values():
        ranges = [sorted(set(numbers), key=_float) for numbers in zip(*map(_NUMBER.findall, texts), strict=True)]
        spans = ["–".join(dict.fromkeys((numbers[0], numbers[-1]))) for numbers in ranges]
        text = "".join(chain.from_iterable(zip_longest(_NUMBER.split(texts[0]), spans, fillvalue="")))
        unique = list(dict.fromkeys(runs))
        about = "all runs" if len(unique) == len(names) else ", ".join(unique)
        yield f"{about}: {text}" if runs else text


def _float(number: str) -> float:
    return float(number.replace(",", ""))


def renamed(line: str, names: Mapping[str, str]) -> str:
    """Replace run ids by short names, except in commands, which contain run folders. names: short names by run id."""
    for run_id, name in names.items():
        line = name.join(re.split(rf"(?<!/){re.escape(run_id)}", line))
    return line


def pairing_warnings(comparison: Comparison) -> Iterator[str]:
    """Yield which parts of the runs are not compared, one line each; `warnings` includes these lines."""
    yield from (f"NOT COMPARED: {line}" for line in comparison.left_out)
    num_problems = {row.run.run_id: len(row.run.outcomes.problems) for row in comparison.rows}
    for row in comparison.rows:
        if row.contrast is not None:
            pair, n, base = row.contrast.pair, row.contrast.n, row.contrast.baseline
            own, of_base = num_problems[row.run.run_id], num_problems[base]
            # For pass@k and maj@k, only problems with too few samples: other missing parts are reported with pass@1.
            is_part = (
                (n < max(own, of_base) or pair.num_missing_samples > 0) if row.speed else n < pair.num_shared_problems
            )
            if is_part:
                yield (
                    f"COMPARED IN PART: {row.run.run_id} vs. {base}, {_metric(row)}: {n} problems with at least "
                    f"{counted(row.k, 'common sample')}. The runs share {pair.num_shared_problems} problems (out of "
                    f"{own} and {of_base}); {pair.num_common_samples} of the {pair.num_planned_samples} samples "
                    "planned for the shared problems are compared."
                )


def _unequal_loads(run: Run, base: Run) -> Iterator[str]:
    """Yield a warning if one run had clearly fewer samples in flight, which equal concurrency limits do not show."""
    own, other = run.summary.median_samples_in_flight, base.summary.median_samples_in_flight
    is_shared = run.summary.concurrency > 1 and base.summary.concurrency > 1
    if is_shared and own and other and max(own, other) > _UNEQUAL_LOADS * min(own, other):
        yield (
            f"UNEQUAL LOADS: {run.run_id} vs. {base.run_id}: a median of {own} vs. {other} samples in flight; "
            "with fewer in flight, latency and throughput are lower"
        )


def regimes(comparison: Comparison) -> dict[str, list[Row]]:
    """Return the pass@1 rows by regime, `latency` before `load`; empty unless both regimes have their own baselines."""
    by_name: dict[str, list[Row]] = {"latency": [], "load": []}
    for row in comparison.rows:
        if _metric(row) == "pass@1":
            by_name[row.run.summary.regime].append(row)
    has_both = {len(base.regimes) for base in comparison.baselines} == {1} and all(by_name.values())
    return by_name if has_both else {}


def regimes_table(found: Mapping[str, Sequence[Row]], *, has_intervals: bool = True) -> Table:
    """Return one row per setting, with its accuracy in the largest run and its speed-up in each regime.

    A setting is a method with its parameters, models and sampling on one dataset.
    """
    settings: dict[str, dict[str, Row]] = {}
    for regime, rows in found.items():
        for row in rows:
            own = setting(row.run.summary)
            settings.setdefault(row.run.run_id if regime in settings.get(own, {}) else own, {})[regime] = row
    largest = [max(rows.values(), key=lambda row: row.outcomes.num_samples) for rows in settings.values()]
    short = labels([row.run.summary.model_copy(update={"concurrency": 0}) for row in largest])
    table = [
        [
            name,
            accuracy(row.result),
            *speculation(row.run.summary),
            *(_regime_speed(rows.get(regime), has_intervals) for regime in found),
        ]
        for name, row, rows in zip(short, largest, settings.values(), strict=True)
    ]
    in_flight = [sorted({row.run.summary.concurrency for row in rows}) for rows in found.values()]
    speeds = [f"speed-up,\n{' to '.join(map(str, dict.fromkeys((n[0], n[-1]))))} in flight" for n in in_flight]
    sizes = {
        f" of {len(row.run.outcomes.problems)} problems × {int(row.run.outcomes.samples.max())}" for row in largest
    }
    legend = (
        f"pass@1{sizes.pop() if len(sizes) == 1 else ''} ± standard error over problems. By the draft: share of "
        "emitted tokens. Fallback: share of decisions that rejected every draft. Speed-up: over the target "
        "alone with the same number of samples in flight, geometric mean over problems (95 % CI)."
    )
    return Table(_columns(["run", "pass@1 %", "by the\ndraft", "fallback", *speeds]), table, [legend])


def setting(run: RunSummary) -> str:
    """Return a string that is equal for runs of one setting: everything but the number of samples in flight."""
    own = (run.dataset, run.method, run.params, run.draft, run.target, run.reward, run.temperature, run.take_turns,
        run.tag, run.seed)  # fmt: skip
    proposer = run.token_speculation and (run.token_speculation.proposer, run.token_speculation.model)
    return json.dumps([*own, proposer], sort_keys=True)


def _regime_speed(row: Row | None, has_interval: bool) -> str:
    if row is not None and row.speed is None:
        return "baseline"
    speed, interval = speed_cells(row.speed if row else None, has_sides=False)
    return _with(speed, interval if has_interval else NOTHING)


def speculation(run: RunSummary) -> list[str]:
    share = percent(run.value("draft_share")) if "draft" in run.by_role and run.target else NOTHING
    return [share, percent(run.value("fallback_rate")) if run.num_decisions else NOTHING]


def records(comparison: Comparison) -> list[dict[str, Cell]]:
    """Return the rows as records."""
    return list(map(record, comparison.rows))


def record(row: Row) -> dict[str, Cell]:
    """Return a row as a record: fractions instead of percent, unrounded p-values.

    num_common_samples: sample indices of the shared problems that are missing in neither run, including those planned
    by only one run. num_missing_samples: the other planned sample indices.
    """
    summary, contrast, speed = row.run.summary, row.contrast, row.speed
    pair, difference, worst = (contrast.pair, contrast.difference, contrast.worst) if contrast else (None, None, None)
    at_one, factor = (speed.at_one, speed.factor) if speed else (None, None)
    return {
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
        **_interval("result", row.result),
        "num_families": row.result.families,
        "baseline_run_id": contrast.baseline if contrast else None,
        "num_common_problems": contrast.n if contrast else None,
        **_interval("difference", difference),
        "p": difference.p if difference else None,
        "p_holm": contrast.p_holm if contrast else None,
        **_interval("difference_on_these", contrast.on_these if contrast else None),
        **_interval("worst_case", worst),
        "p_non_inferior": worst.p if worst else None,
        "is_non_inferior": contrast.is_non_inferior if contrast else None,
        "margin": contrast.margin if contrast else None,
        "problems_needed": contrast.num_needed if contrast else None,
        "num_timed_problems": speed.n if speed else None,
        "num_timed_runs": speed.num_runs[0] if speed else None,
        "num_timed_runs_of_baseline": speed.num_runs[1] if speed else None,
        "latency_unlike": ("; ".join(speed.unlike) or None) if speed else None,
        **_interval("speed_up", speed.ratio if speed else None),
        "num_result_problems": len(row.outcomes.problems),
        "num_result_samples": row.outcomes.num_samples,
        "num_common_samples": pair.num_common_samples if pair else None,
        "num_missing_samples": pair.num_missing_samples if pair else None,
        "is_unfinished": contrast.is_unfinished if contrast else None,
        "run_factor_standard_deviation": factor.standard_deviation if factor else None,
        "run_factor_degrees": factor.degrees if factor else None,
        "num_decisions": summary.num_decisions,
        "num_refused": summary.num_refused,
        "fallback_rate": summary.value("fallback_rate"),
        "decision_kinds": ", ".join(summary.decision_kinds) or None,
        "completeness": pair.completeness if pair else None,
        "non_inferiority_refused": pair.why_refused if pair else None,
        **_interval("speed_up_at_one", at_one.ratio if at_one else None),
        "num_timed_at_one": at_one.num_timed if at_one else None,
        "num_timed_at_one_of_baseline": at_one.num_timed_of_baseline if at_one else None,
        "num_cards": row.run.manifest.num_cards,
        "num_cards_of_baseline": speed.num_cards[1] if speed else None,
        "speed_up_per_card_second": speed.per_card_second if speed else None,
    }


def _interval(name: str, interval: Interval | None) -> dict[str, Cell]:
    attributes = {"": "estimate", "_low_95": "low", "_high_95": "high", "_standard_error": "standard_error"}
    return {f"{name}{end}": getattr(interval, attribute, None) for end, attribute in attributes.items()} | {
        f"{name}_interval": interval and interval.kind
    }
