"""Rankings by every paper's definition of latency, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.plural import counted
from warehouse.comparison.contrasts import Comparison
from warehouse.comparison.stopwatches import MEASURED, Flip, Ranked, Ranking
from warehouse.formatting import NOTHING, fixed, number, span
from warehouse.statistics.intervals import Interval

HEADERS = ("stopwatch", "#", "run", "value", "speed-up", "95 %")


def cells(comparison: Comparison, names: Mapping[str, str]) -> list[list[str]]:
    """Return the table under HEADERS: every definition with its runs, the fastest first. names: by run id."""
    is_several = len({(ranking.dataset, ranking.regime) for ranking in comparison.rankings}) > 1
    table = []
    for ranking in comparison.rankings:
        of = ", ".join(filter(None, (ranking.dataset, ranking.regime)))
        title = f"{ranking.definition.title} ({of})" if is_several else ranking.definition.title
        for ranked in ranking.ranked:  # each row is named: on a narrow terminal it is a block of its own
            value = f"{number(ranked.value)} {ranking.definition.unit}"
            table.append(
                [title, str(ranked.place), names[ranked.run_id], value, *_ratio_cells(ranked, ranking.baseline)]
            )
        if not ranking.ranked:
            table.append([title, NOTHING, "no run has a value", NOTHING, NOTHING, NOTHING])
    return table


def _ratio_cells(ranked: Ranked, baseline: str) -> list[str]:
    ratio = ranked.speed_up
    if ratio is None:
        return ["baseline" if ranked.run_id == baseline else NOTHING, NOTHING]
    return [f"{fixed(ratio.estimate, 2)}×", span(ratio.low, ratio.high, 2)]


def flip_lines(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield how each definition orders the runs compared with measured wall time, one line per pair that flips."""
    same: list[str] = []
    for ranking in comparison.rankings:
        if ranking.definition.stopwatch == MEASURED or len(ranking.ranked) < 2:
            continue
        if not ranking.flips:
            same.append(ranking.definition.title)
        for flip in ranking.flips:
            yield f"{ranking.definition.title}: {_flip(flip, names)}"
    if same:
        yield f"No flip: {', '.join(dict.fromkeys(same))}"


def _flip(flip: Flip, names: Mapping[str, str]) -> str:
    verdict = "significant" if flip.is_significant else "not significant"
    if flip.speed_up.low is None:
        verdict = "no interval"
    return (
        f"{names[flip.faster]} before {names[flip.slower]}, {_times(flip.speed_up)} as fast; "
        f"measured {_times(flip.measured)}: {verdict}"
    )


def _times(ratio: Interval) -> str:
    interval = "" if ratio.low is None else f" ({span(ratio.low, ratio.high, 2)})"
    return f"{fixed(ratio.estimate, 2)}×{interval}"


def legend(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield how to read the rankings, one line per subject."""
    rankings = comparison.rankings
    if not rankings:
        yield "No stopwatch can be compared: the times of all runs are refused against their baseline."
        return
    speed_ups = [run.speed_up for ranking in rankings for run in ranking.ranked if run.speed_up]
    kinds = ", ".join(sorted({ratio.kind for ratio in speed_ups if ratio.low is not None}))
    has_factor = {ratio.kind.endswith("run factor") for ratio in speed_ups if ratio.low is not None}
    covered = {
        frozenset({True}): "and they cover the run factor",
        frozenset({True, False}): "and those with a run factor cover it; the others hold within these runs",
    }.get(
        frozenset(has_factor), "and they hold within these runs: what differs from one run to the next is not in them"
    )
    counts = ", ".join(str(n) for n in sorted({ranking.n for ranking in rankings if ranking.n}))
    yield (
        "Stopwatches: speed by each paper's definition, #1 is the fastest. Speed-up: against the baseline, above 1 is "
        f"faster; the ratio of the values over the same {counts} problems, paired by problem"
        f"{f' ({kinds})' if kinds else ''}. With fewer than 40 problems these intervals cover 92 to 94 % "
        f"rather than 95 %, {covered}. "
        "RSD's single clock has no interval."
    )
    yield (
        "A flip is significant if neither of its intervals contains 1; intervals are not adjusted for the number of "
        "definitions."
    )
    for run_ids, titles in _without_value(rankings).items():
        missing = f"{', '.join(names[run_id] for run_id in run_ids)} by {', '.join(titles)}"
        yield (
            f"No value: {missing}, because the run was interrupted, shares no timed problem with the others, or lacks "
            "what the definition needs, or because the definition adds up other samples of it than of the baseline."
        )
    runs = {row.run.run_id: row.run for row in comparison.rows}
    if any(ranking.has_other_samples for ranking in rankings):
        yield (
            "Not the same samples: a value is over the run's own timed samples, and the runs timed different samples "
            "of these problems. A run that lacks its long chains looks faster here than it is; the speed-up above is "
            "over the samples that both runs have."
        )
    for run_id, run in runs.items():
        if run.times and run.times.num_earlier and run.times.samples:
            yield (
                f"GlimpRouter's stopwatch adds 0 s for {counted(run.times.num_earlier, 'sample')} of {names[run_id]}, "
                "which an earlier attempt finished, so its value says little."
            )
    if any(run.summary.concurrency > 1 for run in runs.values()):
        yield (
            "Several samples were in flight, so the speeds by which SpecReason's stopwatch multiplies include the load "
            "of other samples, which its author's do not."
        )
    where = 'python -m warehouse.query --database DATABASE "FROM stopwatch"'
    yield f"Definitions, sources and what each leaves out: {where}."


def _without_value(rankings: Sequence[Ranking]) -> dict[tuple[str, ...], list[str]]:
    """Return titles of definitions by the runs that have no value by them."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for ranking in rankings:
        if ranking.without_value:
            titles.setdefault(tuple(ranking.without_value), []).append(ranking.definition.title)
    return titles


def record(ranking: Ranking) -> dict[str, object]:
    """Return a ranking for programs; speed-ups as in the table, None for a bound that there is not."""
    definition = ranking.definition
    return {
        "dataset": ranking.dataset,
        "regime": ranking.regime or None,
        "stopwatch": definition.stopwatch,
        "title": definition.title,
        "unit": definition.unit,
        "is_rate": definition.is_rate,
        "definition": definition.definition,
        "source": definition.source,
        "leaves_out": definition.leaves_out,
        "baseline_run_id": ranking.baseline,
        "num_problems": ranking.n,
        "has_other_samples": ranking.has_other_samples,
        "ranking": [
            {"run_id": run.run_id, "place": run.place, "value": run.value, **_interval("speed_up", run.speed_up)}
            for run in ranking.ranked
        ],
        "without_value": list(ranking.without_value),
        "flips": [
            {
                "faster_run_id": flip.faster,
                "slower_run_id": flip.slower,
                "is_significant": flip.is_significant,
                **_interval("speed_up", flip.speed_up),
                **_interval("measured_speed_up", flip.measured),
            }
            for flip in ranking.flips
        ],
    }


def _interval(name: str, interval: Interval | None) -> dict[str, object]:
    keys = (name, f"{name}_low_95", f"{name}_high_95", f"{name}_interval")
    if interval is None:
        return dict.fromkeys(keys)
    return dict(zip(keys, (interval.estimate, interval.low, interval.high, interval.kind), strict=True))
