"""Whatever is derived comes out the same: a rebuilt database, and totals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from jobs.run.folder import RunFolder
from tests.warehouse import runs
from warehouse.database import reader
from warehouse.load import main
from warehouse.loading.runs import load_run


def contents(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, times of loading left out."""
    with reader(database) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        return {
            table: connection.execute(
                f"SELECT COLUMNS(lambda c: c <> 'loaded_at') FROM {table} ORDER BY ALL"
            ).fetchall()
            for (table,) in tables
        }


def test_a_rebuilt_database_is_identical(folder: RunFolder, database: Path) -> None:
    """Loaded piece by piece while the run goes on, and from nothing at the end: the same rows in every table."""
    second = runs.create(folder.path.parent, replace(runs.SPEC, method="specreason", seed=1))
    load_run(folder, database)
    load_run(second, database)
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit, refused=True) for unit in units[2:4]], "a1")
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in units[3:]], "a2")
    runs.write_part(second, [runs.vanilla(unit) for unit in runs.planned(second)])
    runs.truncated(runs.write_part(second, [runs.vanilla(unit) for unit in runs.planned(second)], "a3"))
    runs.write_grades(folder, {unit.sample_id: "wrong" for unit in units}, "2")
    for run in (second, folder):
        load_run(run, database)
    before = contents(database)
    assert len(before) == 39
    assert all(before[table] for table in ("step", "timed_sample", "call_total", "rating_total", "draft_selection"))
    database.unlink()
    assert CliRunner().invoke(main, [str(folder.path.parent)]).exit_code == 1  # the damaged part
    assert contents(database) == before
    assert CliRunner().invoke(main, [str(folder.path.parent), "--rebuild"]).exit_code == 1
    assert contents(database) == before
