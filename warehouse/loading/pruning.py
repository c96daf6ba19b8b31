"""Forget the details of runs and keep their results: what steps, candidates, calls and prompts said is in archives.

The totals of every run stay, and with them every view over totals, grades and times. The view `pruned_run` names the
runs. A night's verdict is the same before and after, which is checked before the database is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.run.folder import RunFolder
from warehouse.database import WAIT_SECONDS, WarehouseError, literal, reader, rebuilder, rows, run_tables
from warehouse.loading.runs import is_up_to_date
from warehouse.nightly.history import read_nights
from warehouse.nightly.judge import replay

PRUNED = "pruned"
"""State of a run whose details were forgotten."""
_DETAILS = (
    "step", "candidate", "call", "step_score", "candidate_score", "candidate_grade", "step_target_logprob",
    "loaded_file",
)  # fmt: skip
_SAMPLE = """
INSERT INTO sample SELECT sample.* REPLACE (
    CASE WHEN forgotten.run_id IS NULL THEN draft_prompt END AS draft_prompt,
    CASE WHEN forgotten.run_id IS NULL THEN target_prompt END AS target_prompt)
FROM former.sample LEFT JOIN forgotten USING (run_id)
"""
_STATES = """
SELECT run_id, num_samples, num_graded, run_id IN (SELECT run_id FROM pruned_run) AS is_pruned FROM (
    SELECT run_id, count(*) AS num_samples, count(*) FILTER (finished AND graded) AS num_graded
    FROM sample_grade WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) GROUP BY run_id
)
"""
_WITH_DETAILS = """
SELECT run_id FROM run WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[]))
    AND run_id NOT IN (SELECT run_id FROM pruned_run) ORDER BY run_id
"""


def states(database: Path, runs: Sequence[RunFolder], wait_seconds: float = WAIT_SECONDS) -> dict[str, str]:
    """Return for each run that the database holds why its folder is needed; empty where it is not, or PRUNED.

    Raises WarehouseError.
    """
    found: dict[str, str] = {}
    with reader(database, wait_seconds) as connection:
        folders = {run.path.name: run for run in runs}
        for row in rows(connection, _STATES, {"run_ids": list(folders)}):
            name = str(row["run_id"])
            if row["num_graded"] != row["num_samples"]:
                found[name] = "the database lacks grades of it"
            elif row["is_pruned"]:
                found[name] = PRUNED
            elif not is_up_to_date(connection, folders[name]):
                found[name] = "its files have changed since they were loaded"
            else:
                found[name] = ""
    return found


def with_details(database: Path, run_ids: Sequence[str], wait_seconds: float = WAIT_SECONDS) -> list[str]:
    """Return those of these runs whose details the database holds. Raises WarehouseError."""
    with reader(database, wait_seconds) as connection:
        return [str(row["run_id"]) for row in rows(connection, _WITH_DETAILS, {"run_ids": list(run_ids)})]


def forget_details(database: Path, run_ids: Sequence[str], wait_seconds: float = WAIT_SECONDS) -> None:
    """Replace the database by one without the details of these runs. Raises WarehouseError, with it as it was."""
    with reader(database, wait_seconds) as connection:
        before = replay(read_nights(connection))
    with rebuilder(database, wait_seconds) as connection:
        connection.execute(f"ATTACH {literal(str(database.resolve()))} AS former (READ_ONLY)")
        connection.execute("CREATE TEMP TABLE forgotten AS SELECT unnest($ids::VARCHAR[]) AS run_id", {"ids": run_ids})
        for table in run_tables(connection):
            if table == "sample":
                connection.execute(_SAMPLE)
            elif table in _DETAILS:
                connection.execute(
                    f"INSERT INTO {table} SELECT * FROM former.{table} ANTI JOIN forgotten USING (run_id)"
                )
            else:
                connection.execute(f"INSERT INTO {table} SELECT * FROM former.{table}")
        connection.execute("DETACH former")
        if replay(read_nights(connection)) != before:
            raise WarehouseError(f"{database}: without the details of these runs nights would be judged otherwise")
