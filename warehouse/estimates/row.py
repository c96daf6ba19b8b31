"""A row of the table `estimate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from warehouse.database import Connection
from warehouse.statistics.intervals import Interval

_TYPES = {
    "k": pa.int32(), "n": pa.int64(), "num_samples": pa.int64(), "estimate": pa.float64(),
    "standard_error": pa.float64(), "low_95": pa.float64(), "high_95": pa.float64(),
    "rerun_standard_error": pa.float64(), "run_factor": pa.float64(),
}  # fmt: skip
NO_INTERVAL = "none"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of a run, or of a run and a run of the target alone; tables/estimate.sql says what each field is."""

    run_id: str
    metric: str
    n: int
    estimate: float
    standard_error: float | None
    low_95: float | None
    high_95: float | None
    interval_kind: str
    baseline_run_id: str | None = None
    grader_version: str | None = None
    k: int | None = None
    group_kind: str | None = None
    group_value: str | None = None
    rerun_standard_error: float | None = None
    run_factor: float | None = None
    num_samples: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What estimates are about."""

    run_id: str
    grader_version: str | None = None
    baseline_run_id: str | None = None
    group_kind: str | None = None
    group_value: str | None = None

    def estimate(
        self,
        metric: str,
        n: int,
        interval: Interval,
        *,
        k: int | None = None,
        rerun_standard_error: float | None = None,
        num_samples: int | None = None,
    ) -> Estimate:
        """Return the row of an interval over n problems."""
        return Estimate(
            self.run_id,
            metric,
            n,
            interval.estimate,
            interval.standard_error,
            interval.low,
            interval.high,
            interval.kind,
            self.baseline_run_id,
            self.grader_version,
            k,
            self.group_kind,
            self.group_value,
            rerun_standard_error,
            num_samples=num_samples,
        )


_KEY = ("run_id", "baseline_run_id", "grader_version", "metric", "k", "group_kind", "group_value")
_FORMER = f"""
DELETE FROM estimate USING new_estimates AS new
WHERE {" AND ".join(f"estimate.{name} IS NOT DISTINCT FROM new.{name}" for name in _KEY)}
"""


def insert(connection: Connection, estimates: Sequence[Estimate], *, is_replacement: bool = False) -> None:
    """Add rows to the table. is_replacement: the table may have other values of them, which are deleted."""
    if not estimates:
        return
    names = list(Estimate.__dataclass_fields__)
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in names])
    connection.register("new_estimates", pa.Table.from_pylist([asdict(row) for row in estimates], schema))
    if is_replacement:
        connection.execute(_FORMER)
    connection.execute("INSERT INTO estimate BY NAME SELECT * FROM new_estimates")
    connection.unregister("new_estimates")
