"""What limits the validity of a comparison's numbers, as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from harness.plural import counted
from warehouse.comparison.contrasts import Comparison, Contrast, Row
from warehouse.comparison.manifests import MODEL_RUNNERS
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.render import busy, limited, mixed_code, repeated, scripted, unreadable, weaker_baseline
from warehouse.statistics.bounded import problems_needed, smallest_margin
from warehouse.statistics.run_factor import RunFactor

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
_MOST_NAMED = 2
"""Runs that a warning names; of more it says how many they are."""
_UNEQUAL_LOADS = 1.25
"""Ratio of the mean numbers of samples in flight from which a comparison of times says so."""


def warnings(comparison: Comparison) -> Iterator[str]:
    """Yield what limits the validity of the numbers, one line each."""
    yield from (f"NOT COMPARED: {line}" for line in comparison.left_out)
    runs = {row.run.run_id: row.run for row in comparison.rows}
    for run in runs.values():
        summary = run.summary
        run_warnings = [
            *scripted(summary),
            *limited(summary),
            *repeated(summary),
        ]
        run_warnings += [*mixed_code(summary), *_missing(run)]
        run_warnings += [*unreadable(summary), *busy(summary), *weaker_baseline(summary)]
        yield from (f"{run.run_id}: {line}" for line in run_warnings)
    for row in comparison.rows:
        contrast, speed = row.contrast, row.speed
        if contrast is not None:
            num_base_problems = len(runs[contrast.baseline].outcomes.problems)
            yield from _partial(row, contrast, sum(o.run is row.run for o in comparison.rows), num_base_problems)
        if speed is not None and speed.unlike:
            warning = "LATENCY FORCED" if speed.ratio else "LATENCY REFUSED"
            remedy = "" if speed.ratio else " (--force compares anyway)"
            yield f"{warning}: {row.run.run_id} against {speed.baseline}: {'; '.join(speed.unlike)}{remedy}"
        if speed is not None and speed.ratio is not None:
            yield from _loads(row, runs, speed.baseline)
            yield from _model_runners(row.run, runs[speed.baseline])
    yield from _disjoint(list(runs.values()))


def merged(lines: Iterable[str], names: Mapping[str, str]) -> Iterator[str]:
    """Yield each warning once: lines that differ in runs and numbers alone are one, with its runs and the ranges.

    names: short names of all runs by run id, which stand for them.
    """
    run_ids = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))
    alike: dict[str, list[tuple[list[str], list[str]]]] = {}
    for line in lines:
        runs, without = run_ids.findall(line), run_ids.sub("\0", line)
        alike.setdefault(_NUMBER.sub("\1", without), []).append((runs, _NUMBER.findall(without)))
    for text, found in alike.items():
        runs_at, numbers_at = (list(zip(*column, strict=True)) for column in zip(*found, strict=True))
        words = iter([_runs_in_words(list(dict.fromkeys(runs)), names) for runs in runs_at])
        ranges = iter([_range(numbers) for numbers in numbers_at])
        yield re.sub("[\0\1]", lambda mark: next(words if mark[0] == "\0" else ranges), text)  # noqa: B023


def _runs_in_words(runs: Sequence[str], names: Mapping[str, str]) -> str:
    if len(runs) <= _MOST_NAMED:
        return " and ".join(names[run] for run in runs)
    return f"all {len(runs)} runs" if len(runs) == len(names) else f"{len(runs)} of {len(names)} runs"


def _range(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if low == high else f"{low} to {high}"


def pairing_warnings(comparison: Comparison) -> Iterator[str]:
    """Yield what of the runs is not compared, one line each; `warnings` has these lines among others."""
    yield from (f"NOT COMPARED: {line}" for line in comparison.left_out)
    num_problems = {row.run.run_id: len(row.run.outcomes.problems) for row in comparison.rows}
    for row in comparison.rows:
        if row.contrast is not None:
            num_metrics = sum(other.run is row.run for other in comparison.rows)
            yield from _partial(row, row.contrast, num_metrics, num_problems[row.contrast.baseline])


def _disjoint(runs: Sequence[Run]) -> Iterator[str]:
    """Yield which runs of a dataset have no problem in common, so that their rows say nothing of each other."""
    for first, second in combinations(runs, 2):
        is_one_dataset = first.dataset == second.dataset
        if is_one_dataset and not num_shared_problems(first.outcomes, second.outcomes):
            yield (
                f"OTHER PROBLEMS: {first.run_id} and {second.run_id} have no problem in common: each is compared with "
                "the baseline, and not with the other."
            )


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


def _model_runners(run: Run, base: Run) -> Iterator[str]:
    """Yield that another of vLLM's model runners computed a model than in the baseline."""
    for role, name in MODEL_RUNNERS.items():
        own, other = run.manifest.values.get(name), base.manifest.values.get(name)
        if own and other and own != other:
            model = "reward model" if role == "reward" else role
            yield (
                f"OTHER MODEL RUNNER: {run.run_id} against {base.run_id}: vLLM computed the {model} with {own} against "
                f"{other}, so the speed-up has the difference between these in it"
            )


def _missing(run: Run) -> Iterator[str]:
    """Yield which samples a run lacks, and the command that completes it."""
    summary, total = run.summary, run.outcomes.num_samples
    treatment = "They are left out here, as in the run's summary"
    if summary.num_not_run:
        not_run = f"{summary.num_not_run} of {total} samples have not been run"
        yield f"INCOMPLETE RUN: {not_run}. {treatment}; {run.completion}"
    if run.num_ungraded:
        by = f" by grader version {summary.grader_version}" if summary.grader_version else ""
        graded = run.graded if run.named_grader else f"graded{by}"
        remedy = "." if summary.num_not_run and not run.named_grader else f"; {run.remedy}"
        waiting = run.num_ungraded - summary.num_ungraded
        errors = f", and {counted(waiting, 'error')} without a grade until the others have theirs" if waiting else ""
        yield (
            f"NOT GRADED: {summary.num_ungraded} of {total} samples are finished but not {graded}{errors}. "
            f"{treatment}{remedy}"
        )


def _partial(row: Row, contrast: Contrast, num_metrics: int, num_base_problems: int) -> Iterator[str]:
    """Yield which planned problems and samples a contrast excludes; once for all metrics where possible."""
    run, pair, n, is_pass_at_1 = row.run, contrast.pair, contrast.n, row.speed is not None
    against, metric = f"{run.run_id} against {contrast.baseline}", row.metric.partition("[")[0]
    shared, num_problems = pair.num_shared_problems, len(run.outcomes.problems)
    if is_pass_at_1 and shared < num_problems:
        name = run.run_id if num_metrics > 1 else f"{run.run_id}, {row.metric}"
        problems = f"the {n} problems" if n == shared else f"{n} of the {shared} problems"
        yield f"{name}: compared on {problems} it shares with {contrast.baseline}; the run has {num_problems} problems."
    elif is_pass_at_1 and shared < num_base_problems:
        own = f"{run.run_id}: compared on its {shared} problems only"
        yield f"{own}; {contrast.baseline} has {num_base_problems} problems."
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


def too_small(comparison: Comparison) -> Iterator[str]:
    """Yield for which numbers of problems non-inferiority at the margin cannot be shown, and with how many it can."""
    margin = comparison.settings.margin
    small = [row.contrast for row in comparison.rows if row.contrast and row.contrast.is_too_small]
    for n in sorted({contrast.n for contrast in small}):
        yield (
            f"n too small: {n} problems cannot show non-inferiority at {100 * margin:g} points, because problems that "
            f"a run loses entirely may be missing from so few: even if none differed, the interval would reach "
            f"−{100 * smallest_margin(n):.1f} points. {problems_needed(margin)} problems can, or a larger "
            "--margin can."
        )


def open_by_missing(comparison: Comparison) -> Iterator[str]:
    """Yield why a run whose interval lies above the margin is not shown to be not worse; nothing if there is none."""
    margin = comparison.settings.margin
    if any(row.contrast.is_open_by_missing for row in comparison.rows if row.contrast):
        yield (
            "Not shown (… missing): the printed interval is over the samples that both runs have, and lies above "
            f"−{100 * margin:g} points; with the missing samples counted against the run, it would not."
        )


def between_runs(factor: RunFactor | None) -> str:
    """Return whether the interval of a speed-up holds between runs, as a sentence."""
    if factor is None:
        return (
            "Within these runs: too few runs were repeated under these conditions to tell how much times differ from "
            "one run to the next, so the interval does not cover that; identical work has come out 17 % apart, and "
            "twice as long on a busy machine. Three runs of one setting (--tag) are enough."
        )
    return (
        f"Run factor: times of repeated runs under these conditions differ by {100 * factor.standard_deviation:.1f} % "
        f"(standard deviation; {factor.num_runs} runs, {factor.degrees} degrees of freedom), and the interval of a "
        "speed-up covers this."
    )
