"""The schema explains itself and follows the trace's and the specification's fields."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from threading import Timer

import pytest

from harness.settings.roles import SAMPLING
from harness.trace import Call, Candidate, Decision, Step, Verdict
from jobs.run.files import Lock
from jobs.run.spec import Attempt, ModelSpec
from tests.warehouse.conftest import Loaded
from warehouse.database import (
    Connection,
    WarehouseError,
    WarehouseMissing,
    WarehouseOutdated,
    reader,
    writer,
)
from warehouse.files import lock_path
from warehouse.loading import convert
from warehouse.sql import schema
from warehouse.sql.model_columns import MODEL_COLUMNS


def columns(loaded: Loaded, table: str) -> set[str]:
    with reader(loaded.database) as connection:
        sql = "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND NOT internal"
        return {name for (name,) in connection.execute(sql, [table]).fetchall()}


def test_every_table_column_view_and_macro_has_a_comment(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        missing = connection.execute(
            """
            SELECT table_name FROM duckdb_tables() WHERE comment IS NULL AND NOT internal
            UNION ALL SELECT view_name FROM duckdb_views() WHERE comment IS NULL AND NOT internal
            UNION ALL SELECT function_name FROM duckdb_functions() WHERE comment IS NULL AND NOT internal
            """
        ).fetchall()
        assert [name for name, meaning in schema.meanings(found_columns(connection)).items() if meaning is None] == []
    assert missing == []


def found_columns(connection: Connection) -> list[schema.Column]:
    return [schema.Column(*row) for row in connection.execute(schema.COLUMNS).fetchall()]


def test_every_column_of_numbers_or_times_has_a_unit_in_its_meaning(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        found = found_columns(connection)
    shown = schema.meanings(found)
    numbers = [c for c in found if re.match("INTEGER|BIGINT|HUGEINT|DOUBLE|DECIMAL|TIME", c.type)]
    assert {"step", "pass_at_1", "wide_step"} <= {column.table for column in numbers}
    assert [c for c in numbers if schema.unit_of(c) is None] == []
    assert [c for c in numbers if str(schema.unit_of(c)) not in str(shown[c.table, c.name])] == []
    assert shown["wide_step", "elapsed_seconds"] == shown["step", "elapsed_seconds"]


def test_every_described_column_exists(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        columns = found_columns(connection)
    names, both = {c.name for c in columns}, {f"{c.table}.{c.name}" for c in columns}
    described = schema.described()
    assert set(described["column"]) <= names
    assert set(described["unit"]) <= names | both
    assert {f"{view}.{name}" for view, named in described["of"].items() for name in named} <= both
    assert {*described["shows"], *described["shows"].values()} <= {c.table for c in columns}


def test_every_field_of_a_trace_is_a_column(loaded: Loaded) -> None:
    of_step = columns(loaded, "step")
    assert {f.name for f in fields(Candidate)} <= columns(loaded, "candidate")
    assert {f.name for f in fields(Call)} - {"step"} | {"step_index"} <= columns(loaded, "call")
    assert {f.name for f in fields(Step)} - {"token_ids", "candidates", "verdicts", "decision"} <= of_step
    assert {f"verdict_{f.name}" for f in fields(Verdict)} | {f"decision_{f.name}" for f in fields(Decision)} <= of_step
    assert {f.name for f in fields(Attempt)} == columns(loaded, "attempt")


def test_every_field_of_the_specification_is_a_column(loaded: Loaded) -> None:
    row = convert.run_row(loaded.speculative, loaded.speculative.spec(), convert.utc(0))
    assert set(row) == columns(loaded, "run")
    held = {column.field.name.partition(".")[0] for column in MODEL_COLUMNS}
    found_with_the_model = {"tokenizer", "served_model"}
    assert {f.name for f in fields(ModelSpec)} - {*SAMPLING, *found_with_the_model} == held - {"sampling"}


def test_what_cannot_be_opened_is_an_error_with_its_name(tmp_path: Path) -> None:
    missing, damaged, old = (tmp_path / f"{name}.duckdb" for name in ("missing", "damaged", "old"))
    damaged.write_bytes(b"not a database at all" * 1000)
    with writer(old) as connection:
        connection.execute("UPDATE schema_version SET digest = 'other'")
    for path, error in ((missing, WarehouseMissing), (damaged, WarehouseError), (old, WarehouseOutdated)):
        for open_it in (reader, writer)[: 1 if path is missing else 2]:
            with pytest.raises(error, match=path.name), open_it(path):
                pass
    assert not missing.exists()


def test_a_warehouse_that_becomes_free_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    other = Lock(lock_path(path), thread_local=False)
    other.acquire()
    release = Timer(0.2, other.release)
    release.start()
    with writer(path, 20):
        assert not other.is_locked
    release.join()


def test_an_interrupted_query_is_an_interrupt(loaded: Loaded) -> None:
    with pytest.raises(KeyboardInterrupt), reader(loaded.database):
        raise RuntimeError("Query interrupted")  # what Ctrl-C makes DuckDB raise
