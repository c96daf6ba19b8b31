"""What intervals and tests of a comparison cannot show, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from warehouse.comparison.contrasts import Comparison
from warehouse.statistics.bounded import problems_needed, smallest_margin
from warehouse.statistics.group_sequential import USUAL_LEVEL
from warehouse.statistics.run_factor import RunFactor


def too_small(comparison: Comparison) -> Iterator[str]:
    """Yield for which numbers of problems non-inferiority at the margin cannot be shown, and with how many it can."""
    margin = comparison.settings.margin
    small = [row.contrast for row in comparison.rows if row.contrast and row.contrast.is_too_small]
    for n, level in sorted({(contrast.n, contrast.level) for contrast in small}):
        when = " at this look, and fewer at a later one" if level > USUAL_LEVEL else ""
        yield (
            f"n too small: {n} problems cannot show non-inferiority at {100 * margin:g} points, because problems that "
            f"a run loses entirely may be missing from so few: even if none differed, the interval would reach "
            f"−{100 * smallest_margin(n, level):.1f} points. {problems_needed(margin, level)} problems can{when}, or a "
            "larger --margin can."
        )


def several_looks(comparison: Comparison) -> Iterator[str]:
    """Yield how the intervals of runs in waves differ from others, as a sentence; nothing if there is none."""
    levels = {row.contrast.level for row in comparison.rows if row.contrast and row.contrast.level > USUAL_LEVEL}
    if levels:
        shown = " to ".join(f"{100 * level:.1f} %" for level in sorted({min(levels), max(levels)}))
        yield (
            f"Drawn in waves: these comparisons are looked at after every wave, so that their intervals are {shown} "
            "intervals; those of all looks together hold in 95 %. p is adjusted with them."
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
