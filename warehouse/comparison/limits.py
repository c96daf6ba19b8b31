"""What intervals and tests of a comparison cannot show, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from warehouse.comparison.contrasts import Comparison
from warehouse.statistics.bounded import problems_needed, smallest_margin
from warehouse.statistics.run_factor import RunFactor


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
