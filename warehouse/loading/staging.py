"""Fingerprint a run folder's files and make them readable as temporary tables, outside of transactions.

An unreadable file is reported and left out; its samples count as not run.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from grading import VERDICTS
from harness.problems.problem import Problem
from harness.weights.templates import CLOSE
from jobs.run import events, trace_files
from jobs.run import timing as timings
from jobs.run.derived import SCHEMAS, written_at
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.timing import timing_id
from jobs.run.trace_files import FAILED
from warehouse.database import Connection, DatabaseError, Record, literal
from warehouse.files import one_line
from warehouse.loading import convert
from warehouse.loading.convert import LoadedFile, Row, SkippedFile, utc

UNREADABLE = (
    DatabaseError, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError
)  # fmt: skip
"""Exceptions when reading a damaged file; those of Arrow and JSON are ValueErrors or OSErrors."""
_TRACE_COLUMNS = ", ".join(trace_files.TRACES.names)
_IS_RECORD = (
    "CASE WHEN stop_reason IS NULL THEN false "
    "WHEN isfinite(latency_seconds) AND latency_seconds BETWEEN 0 AND 1e8 THEN true "  # statistics omit NaN
    "ELSE error('a finished sample has no valid latency') END"
)
_GRADED_VERDICTS = tuple(verdict for verdict in VERDICTS if verdict != "not_run")
"""Valid verdicts in a grade file."""
_CHECKED_VERDICT = (
    f"CASE WHEN verdict IN {_GRADED_VERDICTS} THEN verdict ELSE error('unknown verdict ' || verdict) END AS verdict"
)

_RECORDS_IN_FILES = f"""
CREATE OR REPLACE TEMP VIEW staged_record AS
SELECT filename, file_row_number, {_TRACE_COLUMNS}
FROM read_parquet({{files}}, filename = true, file_row_number = true)
WHERE {_IS_RECORD}
"""
_RECORD_TABLE = """
CREATE OR REPLACE TEMP TABLE staged_record AS
SELECT NULL::VARCHAR AS filename, NULL::BIGINT AS file_row_number, * FROM no_traces
"""
_COPY_RECORDS = f"""
INSERT INTO staged_record BY NAME
SELECT $filename AS filename, file_row_number, {_TRACE_COLUMNS}
FROM read_parquet($file, file_row_number = true) WHERE {_IS_RECORD}
"""
_UNITS = """
CREATE OR REPLACE TEMP TABLE staged_unit AS
SELECT $run_id AS run_id, sample_id, problem_id, sample_index, shard FROM planned_unit
"""
_NUM_LEFT = "SELECT count(*) FROM staged_unit ANTI JOIN staged_trace USING (sample_id)"
"""Query for the number of planned samples without a record. If 0, other files have all samples of removed files."""
_GONE, _IRREGULAR = "", "not a regular file"
"""Digests of a missing file, and of a pipe, a device or a folder."""
_WHY_GONE = "file is missing from the run folder (deleted, or a dangling symlink)"
_RANKED_RECORDS = f"""
CREATE OR REPLACE TEMP TABLE ranked_record AS
SELECT filename, file_row_number, stop_reason = '{FAILED}' AS failed,
    row_number() OVER (PARTITION BY sample_id ORDER BY failed, filename, file_row_number) = 1 AS counts,
    sample_id IN (SELECT sample_id FROM staged_unit) AS planned
FROM staged_record
"""
"""The rule of jobs.run.trace_files in SQL: `counts` marks the one valid record of each sample."""
_TRACES = """
CREATE OR REPLACE TEMP TABLE left_out_record AS
SELECT filename, file_row_number FROM ranked_record WHERE NOT counts OR NOT planned;

-- An ANTI JOIN with the few records left out, because DuckDB may hash either side of a SEMI JOIN, and nested traces are
-- large.
CREATE OR REPLACE TEMP VIEW staged_trace AS
SELECT {run_id} AS run_id, regexp_extract(filename, '([^/]*)[.]parquet$', 1) AS attempt_id,
    * EXCLUDE (filename, file_row_number)
FROM staged_record ANTI JOIN left_out_record USING (filename, file_row_number)
"""


@dataclass(frozen=True)
class Plan:
    spec: RunSpec
    problems: list[Problem]
    units: pa.Table
    """One row per sample, with the columns of jobs.run.trace_files.SHARDS."""


@dataclass
class Staged:
    """Staged files of a run, and the records left out."""

    files: list[LoadedFile] = field(default_factory=list)
    num_duplicates: int = 0
    num_unplanned: int = 0
    former_names: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def skipped(self) -> tuple[SkippedFile, ...]:
        """Files that could not be read."""
        return tuple(SkippedFile(f.name, f.error) for f in self.files if f.error is not None)


def fingerprints(folder: RunFolder) -> list[LoadedFile]:
    """Return the fingerprints of a run's files to load, sorted by name.

    The files' load order is the order in which they were written. Removed trace files are included.
    """
    plan = [folder.spec_path, folder.problems_path, folder.plan_path]
    found = [*plan, *folder.trace_files(), *timings.TimingFolder(folder.path).trace_files()]
    gone = [path for path in found if path.is_symlink() and not path.exists()] + folder.lost_trace_files()
    times = {path: path.stat().st_mtime for path in found if path not in gone}
    times |= {path: written_at(path) for kind in SCHEMAS for path in folder.derived(kind)}
    files = [LoadedFile(path.relative_to(folder.path).as_posix(), 0, _GONE, 0) for path in gone]
    for order, path in enumerate(sorted(times, key=lambda p: (times[p], p.name)), start=1):
        sha256 = _IRREGULAR
        if path.is_file():
            with path.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        files.append(LoadedFile(path.relative_to(folder.path).as_posix(), path.lstat().st_size, sha256, order))
    return sorted(files, key=lambda file: file.name)


def read_plan(folder: RunFolder) -> Plan:
    """Read specification, problems and units. Raises an UNREADABLE exception."""
    return Plan(folder.spec(), folder.problems(), trace_files.read_columns(folder.plan_path, trace_files.SHARDS.names))


def stage(
    connection: Connection, folder: RunFolder, plan: Plan, files: Iterable[LoadedFile], run: Row, *, read_each: bool
) -> Staged:
    """Make a run's files readable as temporary tables.

    If `read_each`, trace files are read one by one and damaged ones are left out. Otherwise, staged_trace is a view of
    all trace files, and reading it raises an UNREADABLE exception if a file is damaged.
    """
    run_id = folder.path.name
    _create_tables(connection)
    staged, traces, timing = Staged(), [], StagedTimings(plan.units)
    gone = [file for file in files if file.sha256 == _GONE]
    for file in files:
        path = folder.path / file.name
        kind = path.name.partition("-")[0]
        if file in gone:
            continue
        try:
            events.check_digest(path, file.sha256)
            if path.parent == folder.trace_files_dir:
                _check_columns(path)
                traces.append(file)
                continue
            if path.parent == timings.TimingFolder(folder.path).trace_files_dir or kind == "timing_draw":
                num_rows = timing.add(path)
            elif path.parent.name == "derived":
                num_rows = _stage_derived(connection, kind, run_id, path, file.load_order)
            else:
                num_rows = 1
            staged.files.append(replace(file, num_rows=num_rows, error=None))
        except UNREADABLE as error:
            staged.files.append(_left_out(folder, file, error))
    connection.register("planned_unit", plan.units)
    connection.execute(_UNITS, {"run_id": run_id})
    attempts = (_stage_each if read_each else _stage_together)(connection, folder, traces, staged)
    if gone:
        [(num_left,)] = connection.execute(_NUM_LEFT).fetchall()
        staged.files += [replace(file, error=_WHY_GONE if num_left else None) for file in gone]
    staged.files.sort(key=lambda file: file.name)
    stage_rows(connection, "run", [run | convert.chosen_widths(run, attempts)])
    stage_rows(connection, "attempt", attempts)
    stage_rows(connection, "problem", convert.problem_rows(run_id, plan.problems))
    for name, of_table in timing.rows(run_id).items():
        stage_rows(connection, name, of_table)
    return staged


def _check_columns(path: Path) -> None:
    """Raise ValueError if a file lacks columns of a trace file, and FileDamaged if it cannot be read."""
    with trace_files.opened(path, whole=False) as file:
        if lacking := sorted(set(trace_files.TRACES.names) - set(file.schema_arrow.names)):
            raise ValueError(f"{path} is not a trace file: missing columns {', '.join(lacking)}")


def _left_out(folder: RunFolder, file: LoadedFile, error: Exception) -> LoadedFile:
    reason = one_line(error).removeprefix(f"{folder.path / file.name} ")
    return replace(file, num_rows=0, error=reason)


def stage_rows(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    """Create the temporary table staged_<table> from a few rows, with the columns of <table>; rows may lack some.

    The rows go through JSON, because Arrow would import pandas, which takes longer than loading a small run. Raises one
    of UNREADABLE.
    """
    relation = connection.table(f"main.{table}")
    columns = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
    unknown = {name for row in rows for name in row} - set(columns)
    if unknown:
        raise ValueError(f"no column {', '.join(sorted(unknown))} in {table}")
    structure = {name: "VARCHAR" if kind == "JSON" else kind for name, kind in columns.items()}
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE staged_{table} AS "
        f"SELECT unnest(from_json_strict($rows, {literal(json.dumps([structure]))}), max_depth := 2)",
        {"rows": json.dumps([dict.fromkeys(columns) | row for row in rows], default=str)},
    )


def _create_tables(connection: Connection) -> None:
    for kind, columns in SCHEMAS.items():
        connection.register("no_rows", pa.Table.from_pylist([], columns))
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE staged_{kind.removesuffix('s')} AS "
            "SELECT NULL::VARCHAR AS run_id, *, NULL::INTEGER AS load_order FROM no_rows"
        )
    for kind in ("VIEW", "TABLE"):  # either may be left from the previous run
        with contextlib.suppress(DatabaseError):
            connection.execute(f"DROP {kind} IF EXISTS temp.staged_record")


def _stage_together(
    connection: Connection, folder: RunFolder, traces: Sequence[LoadedFile], staged: Staged
) -> list[Row]:
    """Stage all trace files as one view, and return the rows of `attempt`."""
    if not traces:
        return _stage_each(connection, folder, traces, staged)
    paths = [folder.path / file.name for file in traces]
    files = ", ".join(literal(glob.escape(str(path))) for path in paths)
    connection.execute(_RECORDS_IN_FILES.format(files=f"[{files}]"))
    _stage_traces(connection, folder, traces, staged)
    return [convert.attempt_row(folder.path.name, path, trace_files.read_metadata(path, whole=False)) for path in paths]


def _stage_each(connection: Connection, folder: RunFolder, traces: Sequence[LoadedFile], staged: Staged) -> list[Row]:
    """Stage the trace files one by one, without damaged ones, and return the rows of `attempt`."""
    connection.register("no_traces", pa.Table.from_pylist([], trace_files.TRACES))
    connection.execute(_RECORD_TABLE)
    attempts: list[Row] = []
    readable: list[LoadedFile] = []
    for file in traces:
        path = folder.path / file.name
        try:
            attempt = convert.attempt_row(folder.path.name, path, trace_files.read_metadata(path, whole=False))
            connection.execute(_COPY_RECORDS, {"file": glob.escape(str(path)), "filename": str(path)})
        except UNREADABLE as error:
            staged.files.append(_left_out(folder, file, error))
        else:
            attempts.append(attempt)
            readable.append(file)
    _stage_traces(connection, folder, readable, staged)
    return attempts


def _stage_traces(connection: Connection, folder: RunFolder, traces: Sequence[LoadedFile], staged: Staged) -> None:
    """Create the view staged_trace: the valid record of every planned sample."""
    connection.execute(_RANKED_RECORDS)
    counts = connection.execute(
        "SELECT filename, count(*), count(*) FILTER (NOT counts AND NOT failed), "
        "count(*) FILTER (counts AND NOT planned) FROM ranked_record GROUP BY filename"
    ).fetchall()
    connection.execute(_TRACES.format(run_id=literal(folder.path.name)))
    num_rows = {Path(name).name: rows for name, rows, _, _ in counts}
    staged.num_duplicates += sum(duplicates for _, _, duplicates, _ in counts)
    staged.num_unplanned += sum(unplanned for _, _, _, unplanned in counts)
    staged.files += [replace(file, num_rows=num_rows.get(Path(file.name).name, 0), error=None) for file in traces]


def _stage_derived(connection: Connection, kind: str, run_id: str, path: Path, load_order: int) -> int:
    """Copy a derived file into the staged table of its kind, and return the file's number of rows."""
    columns = ", ".join(_CHECKED_VERDICT if name == "verdict" else name for name in SCHEMAS[kind].names)
    parameters = {"file": glob.escape(str(path)), "run_id": run_id, "load_order": load_order}
    [(num_rows,)] = connection.execute(
        f"INSERT INTO staged_{kind.removesuffix('s')} BY NAME "
        f"SELECT {columns}, $run_id AS run_id, $load_order AS load_order FROM read_parquet($file)",
        parameters,
    ).fetchall()
    return int(num_rows)


_WHITE = " \n\t\r"


def answer_of(record: Record, attempt: Record) -> tuple[float, float]:
    """Return the tokens and seconds of a chain's final answer; 0 if there is none.

    `record` is a row of a trace file, `attempt` the record of the attempt that wrote it.
    """
    steps: Sequence[Record] = record["steps"] or ()
    thought = [index for index, step in enumerate(steps) if CLOSE in step["text"]]
    tokens, seconds = 0.0, 0.0
    for index, step in enumerate(steps):
        if (thought and index >= thought[-1]) or (not thought and step["role"] == "answer"):
            share = _share(step, attempt) if thought and index == thought[-1] else None
            tokens += step["num_tokens"] * (1.0 if share is None else share)
            seconds += sum(_seconds(call, step, share) for call in record["calls"] or () if call["step"] == index)
    return tokens, seconds


def _share(step: Record, attempt: Record) -> float:
    """Return the share of a step's text that comes after the end of the reasoning."""
    behind = len(step["text"].rpartition(CLOSE)[2].strip(_WHITE))
    if not behind:
        return 0.0
    end = ((attempt.get("engines") or {}).get(step["author"]) or {}).get("think_end_id")
    ids = list(reversed(step["token_ids"] or ()))
    if end is not None and end in ids and step["num_tokens"]:
        return min(1.0, float(ids.index(end) / step["num_tokens"]))
    return min(1.0, behind / len(step["text"]))


def _seconds(call: Record, step: Record, share: float | None) -> float:
    """Return the part of a call's time spent on the answer.

    `share`: share of the output that belongs to the answer; None: the whole call does.
    """
    if call["purpose"] == "lookahead":
        return 0.0
    waited = float(call["end_seconds"] - (call["overlapped_seconds"] or 0.0))
    if share is None:
        return waited
    if call["model"] != step["author"] or call["purpose"] in ("verdict", "probe"):
        return 0.0
    return share * min(float(call["end_seconds"] - call["first_token_seconds"]), waited)


_CALL_COLUMNS = (
    "purpose", "model", "n", "prompt_tokens", "cached_tokens", "output_tokens", "longest_output_tokens",
    "queued_seconds", "first_token_seconds", "end_seconds",
)  # fmt: skip


class StagedTimings:
    """Rows of a run's timing samples (at most a few hundred), added file by file in name order.

    They are matched with samples by id (jobs.run.timing). Unplanned samples are left out. Of several records of a
    sample, the first one without an error counts, as for samples (jobs.run.trace_files). The tokens and time of a
    chain's final answer follow the rule for `sample_answer` in insert_totals.sql.
    """

    def __init__(self, units: pa.Table) -> None:
        """`units`: the plan, with the columns of jobs.run.trace_files.SHARDS."""
        self._units = units
        self._draw: list[Row] = []
        self._samples: dict[str, Row] = {}
        self._calls: dict[str, list[Row]] = {}

    @cached_property
    def _planned(self) -> dict[str, Row]:
        """Map the id of each timing sample to the planned sample that it repeats."""
        columns = self._units.select(["sample_id", "problem_id", "sample_index"]).to_pylist()
        return {timing_id(row["sample_id"]): row for row in columns}

    def add(self, path: Path) -> int:
        """Read a file and return its number of rows. Raises FileDamaged, OSError and ValueError."""
        if path.parent.name == "derived":
            rows = trace_files.read_rows(path, trace_files.TIMING_DRAW.names)
            self._draw = [row for row in rows if timing_id(row["sample_id"]) in self._planned]
            return len(rows)
        attempt = trace_files.attempt_of(path)
        rows = trace_files.read_rows(path)
        for row in rows:
            self._add_record(path.stem, attempt, row)
        return len(rows)

    def rows(self, run_id: str) -> dict[str, list[Row]]:
        calls = [call for of_sample in self._calls.values() for call in of_sample]
        found = {"timing_draw": self._draw, "timing_sample": list(self._samples.values()), "timing_call": calls}
        return {name: [row | {"run_id": run_id} for row in of_table] for name, of_table in found.items()}

    def _add_record(self, attempt_id: str, attempt: Record, record: Record) -> None:
        unit = self._planned.get(record["sample_id"])
        if unit is None or record["stop_reason"] is None:
            return
        sample_id = str(unit["sample_id"])
        before = self._samples.get(sample_id)
        if before is not None and (before["stop_reason"] != FAILED or record["stop_reason"] == FAILED):
            return
        self._samples[sample_id] = unit | {
            "attempt_id": attempt_id,
            "hostname": attempt.get("hostname"),
            "device": attempt.get("device"),
            "started_at": utc(record["started_at"]) if record["started_at"] else None,
            "emitted_tokens": sum(step["num_tokens"] for step in record["steps"] or ()),
            **dict(zip(("answer_tokens", "answer_seconds"), answer_of(record, attempt), strict=True)),
            **{name: record[name] for name in ("seed", "stop_reason", "error", "latency_seconds", "num_attempts")},
        }
        self._calls[sample_id] = [
            {name: call[name] for name in _CALL_COLUMNS}
            | {
                "sample_id": sample_id,
                "call_index": index,
                "step_index": call["step"],
                "overlapped_seconds": call["overlapped_seconds"] or 0.0,
                "unread_prompt_tokens": 0,
            }
            for index, call in enumerate(record["calls"] or ())
        ]
