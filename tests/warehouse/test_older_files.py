"""Trace files of an earlier version, which lack fields, are loaded beside new ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.run import trace_files
from tests.warehouse import runs
from warehouse.database import reader, rows
from warehouse.load import load_run
from warehouse.loading.convert import sql_type


def without(kind: pa.DataType, lacking: set[str]) -> pa.DataType:
    """A nested type without some fields."""
    if pa.types.is_list(kind):
        return pa.list_(without(kind.value_type, lacking))
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return pa.struct([(f.name, without(f.type, lacking)) for f in fields if f.name not in lacking])
    return kind


@pytest.mark.parametrize("how_many", ["one", "all"])
def test_fields_that_an_older_file_lacks_are_null(tmp_path: Path, how_many: str) -> None:
    run = runs.create(tmp_path)
    units = runs.planned(run)
    runs.write_part(run, [runs.speculative(unit) for unit in units[:2]], name="a")
    runs.write_part(run, [runs.speculative(unit) for unit in units[2:4]], name="b")
    lacking = {"verdict_score", "proposed_tokens", "confirmed_tokens", "overlapped_seconds"}
    for path in run.trace_files()[: None if how_many == "all" else 1]:
        table = pq.read_table(path)
        attempt = {b"attempt": table.schema.metadata[b"attempt"]}
        older = pa.schema([(f.name, without(f.type, lacking)) for f in table.schema], metadata=attempt)
        pq.write_table(pa.Table.from_pylist(table.to_pylist(), older), path)
    report = load_run(run, tmp_path / "w.duckdb")
    assert not report.skipped
    with reader(tmp_path / "w.duckdb") as connection:
        [counted] = rows(connection, "SELECT count(*) AS n, count(DISTINCT sample_id) AS samples FROM call")
        assert counted["samples"] == 4
        assert rows(connection, "SELECT count(proposed_tokens) AS n FROM call") == [{"n": 0}]
        assert rows(connection, "SELECT sum(overlapped_seconds) AS s FROM call") == [{"s": 0}]
        assert rows(connection, "SELECT count(verdict_score) AS n FROM candidate") == [{"n": 0}]


def test_every_type_of_a_trace_file_has_a_name_in_sql() -> None:
    assert sql_type(trace_files.TRACES.field("calls").type).startswith('STRUCT("purpose" VARCHAR, ')
    assert sql_type(trace_files.STEP.field("token_ids").type) == "INTEGER[]"
