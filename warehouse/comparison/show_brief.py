"""Comparisons in the few columns that a person reads first; show.py has them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warehouse.comparison.contrasts import Comparison, Contrast, SpeedRatio
from warehouse.comparison.show import UNFINISHED, at_one_lines, verdict
from warehouse.comparison.show_warnings import between_runs, open_by_missing, too_small
from warehouse.formatting import NOTHING, fixed, signed, span
from warehouse.statistics.intervals import Interval


def headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns; only pass@1 is there unless other metrics were asked for."""
    if _is_pass_at_1_alone(comparison):
        return ["run", "pass@1 % (95 %)", "difference (95 %)", "not worse", "speed-up (95 %)"]
    return ["run", "metric", "% (95 %)", "difference (95 %)", "not worse", "speed-up (95 %)"]


def cells(comparison: Comparison, names: Mapping[str, str], *, has_speed_interval: bool = True) -> list[list[str]]:
    """Return the rows under `headers`. names: short names of the runs by run id."""
    table = []
    for row in comparison.rows:
        metric = [] if _is_pass_at_1_alone(comparison) else [row.metric.partition("[")[0]]
        table.append(
            [
                names[row.run.run_id],
                *metric,
                _result(row.result),
                *_contrast(row.contrast),
                _speed(row.speed, has_speed_interval),
            ]
        )
    return table


def legend(comparison: Comparison, *, is_short: bool = False) -> Iterator[str]:
    """Yield how to read the table, one line per group of columns; is_short: without what `--all` has."""
    contrasts = [row.contrast for row in comparison.rows if row.contrast]
    if contrasts:
        margin = f"−{100 * comparison.settings.margin:g}"
        not_worse = f"Not worse: the interval lies above {margin} points."
        yield f"Difference: run minus baseline in points, paired by problem. {not_worse}"
        yield from open_by_missing(comparison)
        yield from too_small(comparison)
    if any(contrast.is_unfinished for contrast in contrasts):
        yield UNFINISHED
    speeds = [row.speed for row in comparison.rows if row.speed and row.speed.ratio]
    if speeds:
        load = ""
        if any(row.run.summary.concurrency > 1 for row in comparison.rows):
            load = ", under the load of the other samples in flight"
        yield f"Speed-up: latency of the baseline divided by that of the run{load}."
        if not is_short:
            yield from dict.fromkeys(between_runs(row.speed.factor) for row in comparison.rows if row.speed)
    yield from at_one_lines(comparison)
    if is_short:
        return
    yield "Tests, MDE, re-run SE and methods of the intervals: --all. Every number: -o FILE.csv, .json, .md or .tex."


def _is_pass_at_1_alone(comparison: Comparison) -> bool:
    return all(row.metric.partition("[")[0] == "pass@1" for row in comparison.rows)


def interval_range(interval: Interval, digits: int, factor: float = 1.0) -> str:
    """Return an interval in brackets behind a blank; empty where there is none."""
    if interval.low is None or interval.high is None:
        return ""
    return f" ({fixed(interval.low, digits, factor)}–{fixed(interval.high, digits, factor)})"


def _result(result: Interval) -> str:
    return f"{fixed(result.estimate, 1, 100)}{interval_range(result, 1, 100)}"


def _contrast(contrast: Contrast | None) -> list[str]:
    if contrast is None:
        return ["baseline", NOTHING]
    difference = contrast.difference
    interval = "" if difference.low is None else f" ({span(difference.low, difference.high, 1, 100)})"
    return [f"{signed(100 * difference.estimate, 1)}{interval}", verdict(contrast)]


def _speed(speed: SpeedRatio | None, has_interval: bool) -> str:
    if speed is None:
        return NOTHING
    if speed.ratio is None:
        return "refused" if speed.unlike else "not timed"
    mark = "!" if speed.unlike else ""
    return f"{fixed(speed.ratio.estimate, 2)}×{mark}{interval_range(speed.ratio, 2) if has_interval else ''}"
