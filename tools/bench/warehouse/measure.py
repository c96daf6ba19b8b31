"""A single measurement: `python -m tools.bench.warehouse.measure NAME FOLDER DATABASE`, JSON on stdout.

Every measurement runs in a separate process, because peak memory is measured per process and because only the disk
cache may be warm.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.run import trace_files
from jobs.run.folder import run_folders
from tools.bench.warehouse.scratch import scratch
from warehouse.database import WarehouseError, literal, reader
from warehouse.loading.runs import load_runs, rebuild

REPEATS = 3
"""Number of times each view is fetched; the median counts."""
_ROW_TABLES = ("step", "candidate", "call", "sample")
_MEASURED_VIEWS = """
SELECT view_name FROM duckdb_views()
WHERE NOT internal AND view_name NOT IN ('wide_step', 'wide_candidate', 'wide_call') ORDER BY ALL
"""


def bare(folder: Path, database: Path) -> dict[str, Any]:
    """Load the same trace files unchanged into one table, which is the best that DuckDB can do on this machine."""
    return _bare(folder, database, "*")


def bare_kept(folder: Path, database: Path) -> dict[str, Any]:
    """Load the trace files into one table without the token ids, which the warehouse leaves in the trace files too."""
    step = pa.struct(
        [field for field in trace_files.TRACES.field("steps").type.value_type if field.name != "token_ids"]
    )
    return _bare(folder, database, f"* REPLACE (steps::{_sql_type(pa.list_(step))} AS steps)")


_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
}


def _sql_type(kind: pa.DataType) -> str:
    """Return the name of an Arrow type in DuckDB. Raises KeyError for a type that trace files do not use."""
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        inner = (f'"{kind.field(i).name}" {_sql_type(kind.field(i).type)}' for i in range(kind.num_fields))
        return f"STRUCT({', '.join(inner)})"
    return _SQL_TYPES[kind]


def _bare(folder: Path, database: Path, columns: str) -> dict[str, Any]:
    files = [str(path) for run in run_folders([folder]) for path in run.trace_files()]
    database.unlink(missing_ok=True)
    with scratch(database.parent) as connection:
        connection.execute(f"ATTACH {literal(str(database))} AS bare")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"CREATE TABLE bare.trace AS SELECT {columns} FROM read_parquet($files)", {"files": files})
        connection.execute("CHECKPOINT bare")
    size = database.stat().st_size
    database.unlink()
    return {"database_bytes": size}


def load(folder: Path, database: Path) -> dict[str, Any]:
    """Load every run into a new warehouse."""
    for _, outcome in rebuild(run_folders([folder]), database):
        if isinstance(outcome, WarehouseError):
            raise outcome
    return {"database_bytes": database.stat().st_size}


def unchanged(folder: Path, database: Path) -> dict[str, Any]:
    """Load runs again that have already been loaded."""
    outcomes = [outcome for _, outcome in load_runs(run_folders([folder]), database)]
    return {"num_unchanged": sum(1 for o in outcomes if not isinstance(o, WarehouseError) and o.unchanged)}


def views(folder: Path, database: Path) -> dict[str, Any]:
    """Fetch all rows of every view, except views that repeat trace rows and texts and are usually filtered."""
    with reader(database) as connection:
        names = connection.execute(_MEASURED_VIEWS).fetchall()
        seconds = {name: sorted(_fetched(connection, name) for _ in range(REPEATS))[REPEATS // 2] for (name,) in names}
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in _ROW_TABLES}
    return {"views": seconds, "rows": rows}


def _fetched(connection: Any, name: str) -> float:
    started = time.perf_counter()
    for _ in connection.sql(f"FROM {name}").to_arrow_reader(100_000):
        pass
    return time.perf_counter() - started


MEASUREMENTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "bare": bare,
    "bare_kept": bare_kept,
    "load": load,
    "unchanged": unchanged,
    "views": views,
}


def main() -> None:
    """Run a measurement and print its result."""
    name, folder, database = sys.argv[1:]
    started_at, processor_started_at = time.perf_counter(), time.process_time()
    result = MEASUREMENTS[name](Path(folder), Path(database))
    result["seconds"] = time.perf_counter() - started_at
    result["processor_seconds"] = time.process_time() - processor_started_at
    result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
