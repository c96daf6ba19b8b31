"""How well the judge's ratings separate correct from incorrect answers: intervals of areas under ROC curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from warehouse.database import Connection, rows
from warehouse.estimates.row import Estimate, Subject
from warehouse.statistics.shares import on_logit

_AREAS = """
FROM auroc_total WHERE auroc IS NOT NULL AND run_id IN (SELECT unnest($run_ids::VARCHAR[]))
ORDER BY run_id, grader_version, kind
"""


def judges(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs; auroc_total has the areas, for every grader version."""
    for row in rows(connection, _AREAS, {"run_ids": list(run_ids)}):
        subject = Subject(str(row["run_id"]), str(row["grader_version"]), None, "kind", str(row["kind"]))
        area, error, degrees = (_number(row, name) for name in ("auroc", "standard_error", "degrees"))
        yield subject.estimate("judge_auroc", int(str(row["num_problems"])), on_logit(area, error, degrees))


def _number(row: Mapping[str, object], name: str) -> float:
    """Return a number of a row, which is not a number where there is none."""
    return float("nan") if row[name] is None else float(str(row[name]))
