"""The numbers of a table of one's own. Those that a comparison has are taken from it, the others from the measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warehouse.comparison.contrasts import Row
from warehouse.database import Connection
from warehouse.measures import measure
from warehouse.papers.table import Ours
from warehouse.statistics.intervals import Interval
from warehouse.summary import RunSummary

_FALLBACK = """
SELECT fallback_rate, low_95, high_95 FROM fallback_rate WHERE run_id = $run_id AND fallback_rate IS NOT NULL
"""


@dataclass(frozen=True)
class Source:
    """What the numbers of one run are read from."""

    connection: Connection
    summary: RunSummary
    row: Row | None
    """The run's row of the comparison; None where it is compared with nothing."""


@dataclass(frozen=True)
class Metric:
    """One number of a cell."""

    header: str
    digits: int
    read: Callable[[Source], Ours | None]
    is_percent: bool = False
    """Whether the number is a fraction that is shown in percent, or in percentage points."""
    suffix: str = ""
    about: str = ""
    """What the number is, as a sentence under the table."""

    @property
    def factor(self) -> float:
        """What the number is multiplied by where it is shown."""
        return 100.0 if self.is_percent else 1.0


def _ours(interval: Interval | None) -> Ours | None:
    return None if interval is None else Ours(interval.estimate, interval.low, interval.high)


def _accuracy(source: Source) -> Ours | None:
    return _ours(source.row.result if source.row else source.summary.result)


def _difference(source: Source) -> Ours | None:
    contrast = source.row.contrast if source.row else None
    return _ours(contrast.difference) if contrast else None


def _speed_up(source: Source) -> Ours | None:
    speed = source.row.speed if source.row else None
    return _ours(speed.ratio) if speed else None


def _latency_at_one(source: Source) -> Ours | None:
    at_one = source.summary.at_one
    return Ours(at_one.mean_seconds, at_one.low_95, at_one.high_95) if at_one else None


def _speed_up_at_one(source: Source) -> Ours | None:
    speed = source.row.speed if source.row else None
    return _ours(speed.at_one.ratio) if speed and speed.at_one else None


def _measured(name: str) -> Callable[[Source], Ours | None]:
    def read(source: Source) -> Ours | None:
        found = measure(source.connection, name, source.summary.run_id)
        return None if found is None else Ours(found.value, found.low, found.high)

    return read


def _tokens(field: str) -> Callable[[Source], Ours | None]:
    def read(source: Source) -> Ours | None:
        tokens = [getattr(of_model, field) for of_model in source.summary.tokens.values()]
        return Ours(sum(tokens), None, None) if tokens and None not in tokens else None

    return read


def _fallback(source: Source) -> Ours | None:
    found = source.connection.execute(_FALLBACK, {"run_id": source.summary.run_id}).fetchone()
    return None if found is None else Ours(*found)


METRICS: Mapping[str, Metric] = {
    "pass@1": Metric(
        "pass@1 (%)", 1, _accuracy, is_percent=True, about="pass@1: mean over problems of the mean over samples."
    ),
    "difference": Metric(
        "difference", 1, _difference, is_percent=True,
        about="Difference: run minus baseline in percentage points, paired by problem.",
    ),
    "tokens": Metric(
        "tokens", 0, _measured("emitted_tokens"), about="Tokens: emitted tokens per sample, mean over problems."
    ),
    "spent-tokens": Metric(
        "spent tokens", 0, _tokens("spent_per_sample"),
        about="Spent tokens: every output token of every call, per sample.",
    ),
    "critical-path-tokens": Metric(
        "critical path", 0, _tokens("critical_path_per_sample"),
        about="Critical path: tokens per sample that a user waits for, of parallel candidates only the longest.",
    ),
    "latency": Metric(
        "latency (s)", 2, _measured("latency_seconds"),
        about="Latency: seconds per sample, mean over problems, with the other samples in flight.",
    ),
    "speed-up": Metric(
        "speed-up", 2, _speed_up, suffix="×",
        about="Speed-up: latency of the baseline divided by that of the run, geometric mean over problems.",
    ),
    "latency-at-one": Metric(
        "latency alone (s)", 2, _latency_at_one,
        about="Latency alone: mean seconds per sample with one sample in flight, estimated from those that ran again "
        "one at a time (latency-sample).",
    ),
    "speed-up-at-one": Metric(
        "speed-up alone", 2, _speed_up_at_one, suffix="×",
        about="Speed-up alone: that latency of the baseline divided by that of the run, a ratio of mean latencies "
        "and no geometric mean.",
    ),
    "fallback": Metric(
        "fallback (%)", 1, _fallback, is_percent=True, about="Fallback: share of decisions that refused every draft."
    ),
}  # fmt: skip
"""The metrics by the name that `--metric` takes."""
DEFAULT_METRICS = ("pass@1", "tokens", "latency", "speed-up")
AT_ONE = ("latency-at-one", "speed-up-at-one")
"""Metrics that need timing samples."""
