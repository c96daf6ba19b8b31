"""The report's table of latencies with one sample in flight, estimated from timing samples."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.formatting import NOTHING, fixed, number, span
from warehouse.report.facts import RunFacts
from warehouse.report.tables import Table, limited_label
from warehouse.summary import SpeedUpAtOne

_COLUMNS = (
    "run", "samples timed", "mean s", "95 % interval", "baseline", "baseline's samples timed", "speed-up ×",
    "95 % interval of the speed-up",
)  # fmt: skip
_CAPTION = (
    "Mean latency of a sample with one sample in flight. All samples ran in full batches, and some of them again, one "
    "at a time: the mean is the latency model's prediction over all chains plus its stratum-weighted mean error on the "
    "timed ones, which is unbiased whatever the model. Speed-up: mean latency of the target alone divided by that of "
    "the run, over the problems of both. The intervals cover the choice of the problems and of the timed samples."
)


def latencies_at_one(runs: Sequence[RunFacts]) -> Table | None:
    """Return the table; None where no run has timing samples."""
    names = {run.summary.run_id: run.label for run in runs}
    rows: list[tuple[str, ...]] = []
    places: list[int] = []
    for place, run in enumerate(runs):
        timed = run.summary.at_one
        if timed is None:
            continue
        own = (
            limited_label(run),
            f"{timed.num_timed} of {timed.num_samples}",
            number(timed.mean_seconds),
            span(timed.low_95, timed.high_95, 3),
        )
        ratios = [ratio for ratio in run.summary.speed_ups_at_one if ratio.baseline_run_id in names]
        rows += [(*own, names[ratio.baseline_run_id], *_cells(ratio)) for ratio in ratios] or [(*own, *[NOTHING] * 4)]
        places += [place] * max(1, len(ratios))
    if not rows:
        return None
    return Table("latency-at-one", "Latency, one sample at a time", _COLUMNS, rows, _CAPTION, places)


def _cells(ratio: SpeedUpAtOne) -> tuple[str, str, str]:
    within = "" if ratio.run_factor else " within these runs"
    interval = span(ratio.low_95, ratio.high_95, 2) + within
    return str(ratio.num_timed_of_baseline), fixed(ratio.speed_up, 2), interval
