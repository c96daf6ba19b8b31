"""A run folder's files, fingerprinted and read into temporary tables, outside of any transaction.

A file that cannot be read is named and left out; what it held counts as not yet run.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from harness.problem import Problem
from jobs import parts
from jobs.grades import graded_at
from jobs.spec import RunSpec
from jobs.store import RunFolder
from warehouse import convert
from warehouse.convert import Row
from warehouse.database import Connection, DatabaseError, one_line
from warehouse.records import FileRecord, SkippedFile

UNREADABLE = (DatabaseError, OSError, ValueError, TypeError, KeyError)
"""What reading a damaged file raises: Arrow's and JSON's errors are ValueErrors or OSErrors."""
_TRACE_COLUMNS = ", ".join(parts.TRACES.names)
_GRADE_VERDICTS = "('correct', 'wrong', 'no_answer', 'unparsable', 'truncated', 'error', 'grader_timeout', 'bad_gold')"

_STAGE_TRACES = f"""
INSERT INTO staged_trace BY NAME
WITH finished AS (
    SELECT {_TRACE_COLUMNS}, file_row_number FROM read_parquet($file, file_row_number = true) AS part
    WHERE stop_reason IS NOT NULL
        AND NOT EXISTS (
            FROM staged_trace AS earlier
            WHERE earlier.sample_id = part.sample_id AND (earlier.stop_reason <> 'error' OR part.stop_reason = 'error')
        )
)
SELECT $run_id AS run_id, $attempt_id AS attempt_id, {_TRACE_COLUMNS} FROM finished
SEMI JOIN (SELECT sample_id, min(file_row_number) AS file_row_number FROM finished GROUP BY sample_id) AS first
USING (sample_id, file_row_number)
"""
_DROP_RETRIED = """
DELETE FROM staged_trace WHERE stop_reason = 'error'
    AND sample_id IN (SELECT sample_id FROM staged_trace WHERE stop_reason <> 'error')
"""
_STAGE_GRADES = f"""
INSERT INTO {{table}} BY NAME
SELECT $run_id AS run_id, sample_id, grader_version, extracted, rule, detail, seconds, $load_order AS load_order,
    CASE WHEN verdict IN {_GRADE_VERDICTS} THEN verdict ELSE error('unknown verdict ' || verdict) END AS verdict
FROM read_parquet($file)
"""


@dataclass(frozen=True)
class Plan:
    """What a run was planned as."""

    spec: RunSpec
    problems: list[Problem]
    units: list[Row]


@dataclass
class Staged:
    """What staging found."""

    files: list[FileRecord] = field(default_factory=list)
    num_duplicates: int = 0
    num_unplanned: int = 0

    @property
    def skipped(self) -> tuple[SkippedFile, ...]:
        """The files that could not be read."""
        return tuple(SkippedFile(f.name, f.error) for f in self.files if f.error is not None)


def fingerprints(folder: RunFolder) -> list[FileRecord]:
    """Every file of a run that the warehouse reads, by name; load order is the order in which they were written."""
    plan = [folder.spec_path, folder.problems_path, folder.shards_path]
    grades = [path for derived in (folder.grades_dir, folder.second_grades_dir) for path in derived.glob("*.parquet")]
    times = {path: path.stat().st_mtime for path in (*plan, *folder.parts_dir.glob("*.parquet"))}
    times |= {path: graded_at(path) for path in grades}
    files: list[FileRecord] = []
    for order, path in enumerate(sorted(times, key=lambda p: (times[p], p.name)), start=1):
        with path.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        files.append(FileRecord(path.relative_to(folder.path).as_posix(), path.stat().st_size, sha256, order))
    return sorted(files, key=lambda file: file.name)


def read_plan(folder: RunFolder) -> Plan:
    """Read specification, problems and units. Raises one of UNREADABLE."""
    return Plan(folder.spec(), folder.problems(), convert.unit_rows(folder))


def stage(connection: Connection, folder: RunFolder, plan: Plan, files: Iterable[FileRecord], run: Row) -> Staged:
    """Read everything into temporary tables, trace files in the order of their names."""
    run_id = folder.path.name
    _create_tables(connection)
    staged, attempts = Staged(), []
    grade_tables = {folder.grades_dir: "staged_grade", folder.second_grades_dir: "staged_second_grade"}
    for file in files:
        path = folder.path / file.name
        try:
            if path.parent == folder.parts_dir:
                attempts.append(convert.attempt_row(run_id, path, parts.read_metadata(path)))
                num_rows, num_new = _stage_traces(connection, run_id, path)
                staged.num_duplicates += num_rows - num_new
            elif path.parent in grade_tables:
                num_rows = _stage_grades(connection, grade_tables[path.parent], run_id, path, file.load_order)
            else:
                num_rows = 1
            staged.files.append(replace(file, num_rows=num_rows, error=None))
        except UNREADABLE as error:
            staged.files.append(replace(file, num_rows=0, error=one_line(error)))
    connection.execute(_DROP_RETRIED)
    connection.register("staged_run", pa.Table.from_pylist([run]))
    connection.register("staged_attempt", pa.Table.from_pylist(attempts, convert.ATTEMPTS))
    connection.register(
        "staged_problem", pa.Table.from_pylist(convert.problem_rows(run_id, plan.problems), convert.PROBLEMS)
    )
    connection.register("staged_unit", pa.Table.from_pylist(plan.units, convert.UNITS))
    [(staged.num_unplanned,)] = connection.execute(
        "SELECT count(*) FROM staged_trace ANTI JOIN staged_unit USING (sample_id)"
    ).fetchall()
    return staged


def _create_tables(connection: Connection) -> None:
    connection.register("no_traces", pa.Table.from_pylist([], parts.TRACES))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE staged_trace AS "
        "SELECT NULL::VARCHAR AS run_id, NULL::VARCHAR AS attempt_id, * FROM no_traces"
    )
    for table in ("grade", "second_grade"):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE staged_{table} AS SELECT * FROM main.{table} LIMIT 0")


def _stage_traces(connection: Connection, run_id: str, path: Path) -> tuple[int, int]:
    """Returns how many finished samples the file holds, and how many of them no earlier file did."""
    file = glob.escape(str(path))
    [(num_rows,)] = connection.execute(
        "SELECT count(*) FROM read_parquet($file) WHERE stop_reason IS NOT NULL", {"file": file}
    ).fetchall()
    [(num_new,)] = connection.execute(
        _STAGE_TRACES, {"file": file, "run_id": run_id, "attempt_id": path.stem}
    ).fetchall()
    return num_rows, num_new


def _stage_grades(connection: Connection, table: str, run_id: str, path: Path, load_order: int) -> int:
    parameters = {"file": glob.escape(str(path)), "run_id": run_id, "load_order": load_order}
    [(num_rows,)] = connection.execute(_STAGE_GRADES.format(table=table), parameters).fetchall()
    return int(num_rows)
