"""The check of a warehouse before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import after
from tests.warehouse.runs import locked
from warehouse.database import writer


def test_a_file_that_is_no_database_is_found_before_a_run(tmp_path: Path) -> None:
    database, folder = tmp_path / "warehouse.duckdb", tmp_path / "folder.duckdb"
    database.write_text("notes", encoding="utf-8")
    folder.mkdir()
    with pytest.raises(after.WarehouseError, match=r"cannot be opened: .*if it is a damaged warehouse, delete it"):
        after.check(database)
    with pytest.raises(after.WarehouseError, match=r"is a folder$"):
        after.check(folder)


def test_a_missing_a_readable_and_a_locked_database_pass_and_one_of_another_format_does_not(tmp_path: Path) -> None:
    database = tmp_path / "warehouse.duckdb"
    after.check(database)
    assert not database.exists()
    with writer(database):
        pass
    after.check(database)
    with locked(database):
        after.check(database)
    with writer(database) as connection:
        connection.execute("UPDATE schema_version SET digest = 'other'")
    with pytest.raises(after.WarehouseError, match="recreate it from the run folders"):
        after.check(database)
