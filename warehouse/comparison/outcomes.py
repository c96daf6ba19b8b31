"""What a run achieved problem by problem, read from the views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warehouse.database import Connection, WarehouseError, rows
from warehouse.statistics.intervals import Counts, Floats

_PROBLEMS = """
SELECT score.problem_id || ' ' || problem.content_hash AS problem, score.problem_id,
    score.num_correct, score.num_samples, speed.latency_seconds
FROM problem_score AS score JOIN problem USING (run_id, problem_id)
LEFT JOIN problem_speed AS speed USING (run_id, problem_id)
WHERE run_id = $run_id ORDER BY problem.problem_index
"""


@dataclass(frozen=True)
class Outcomes:
    """One run by problem; arrays are (n,), in the run's order."""

    problems: Sequence[str]
    """Id and content hash: what pairs runs."""
    problem_ids: Sequence[str]
    correct: Counts
    samples: Counts
    latency_seconds: Floats
    """Mean over the samples whose time means something; NaN where there is none."""

    @property
    def scores(self) -> Floats:
        """Mean over a problem's samples; whatever is not correct counts as 0."""
        return np.asarray(self.correct / self.samples, dtype=float)


def read_outcomes(connection: Connection, run_id: str) -> Outcomes:
    """Outcomes of a run that the warehouse holds."""
    found = rows(connection, _PROBLEMS, {"run_id": run_id})
    seconds = [np.nan if row["latency_seconds"] is None else row["latency_seconds"] for row in found]
    return Outcomes(
        [str(row["problem"]) for row in found],
        [str(row["problem_id"]) for row in found],
        np.array([row["num_correct"] for row in found], dtype=np.int64),
        np.array([row["num_samples"] for row in found], dtype=np.int64),
        np.array(seconds, dtype=float),
    )


def common(first: Outcomes, second: Outcomes) -> tuple[Counts, Counts]:
    """Places of the problems that both runs have, with equal content, in the first one's order."""
    places: Mapping[str, int] = {problem: place for place, problem in enumerate(second.problems)}
    pairs = [(place, places[problem]) for place, problem in enumerate(first.problems) if problem in places]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def warehouse_of(given: Sequence[str]) -> Path:
    """The warehouse beside the first run where that is a folder's path, else the one in the working folder."""
    first = Path(given[0])
    return (first.parent if "/" in given[0] else Path()) / "warehouse.duckdb"


def resolve(connection: Connection, given: str) -> str:
    """The run id for a run id, a beginning that only one has, or a run folder's path. Raises WarehouseError."""
    ids = [str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run ORDER BY created_at, run_id")]
    name = given.rstrip("/")
    name = Path(name).name if "/" in name else name
    found = [run_id for run_id in ids if run_id == name] or [run_id for run_id in ids if run_id.startswith(name)]
    if len(found) == 1 and name:
        return found[0]
    what = f"is the beginning of {len(found)} runs: " if found else "is no run of this warehouse; there are: "
    shown = (found or ids)[:20]
    more = "" if len(shown) == len(found or ids) else ", …"
    raise WarehouseError(f"{given!r} {what}{', '.join(shown) or 'none'}{more}")
