"""Links to a database, and run folders that were moved, renamed or copied."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.run.folder import RunFolder
from tests.warehouse import runs
from tests.warehouse.conftest import counts
from warehouse.database import WarehouseBusy, writer
from warehouse.load import main
from warehouse.loading.runs import load_run


@pytest.fixture
def link(database: Path, tmp_path: Path) -> Path:
    """Another folder's link to the database."""
    link = tmp_path / "elsewhere" / "link.duckdb"
    link.parent.mkdir()
    link.symlink_to(database)
    return link


def test_a_link_to_a_database_has_the_lock_of_the_database(folder: RunFolder, database: Path, link: Path) -> None:
    load_run(folder, database)
    with writer(database), pytest.raises(WarehouseBusy), writer(link, 0.1):
        pass
    with writer(link), pytest.raises(WarehouseBusy), writer(database, 0.1):
        pass


def test_who_loads_through_a_link_loses_nothing_of_another_load(folder: RunFolder, database: Path, link: Path) -> None:
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    load_run(folder, link)
    load_run(second, database)
    assert link.is_symlink()
    assert counts(link)["run"] == 2
    assert list(link.parent.iterdir()) == [link]


def test_a_renamed_run_is_one_run(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    renamed = RunFolder(folder.path.rename(folder.path.with_name("baseline")))
    report = load_run(renamed, database)
    assert (report.former_names, report.num_finished) == ((folder.path.name,), 2)
    assert (counts(database)["run"], counts(database)["step"]) == (1, 6)
    assert load_run(renamed, database).unchanged


def test_two_copies_of_a_run_are_two_and_are_named(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    shutil.copytree(folder.path, folder.path.with_name("copy"))
    result = CliRunner().invoke(main, [str(folder.path.parent), "--database", str(database)])
    [line] = [line for line in result.stderr.splitlines() if line.startswith("WARNING: copy ")]
    assert (result.exit_code, folder.path.name in line) == (0, True)
    assert counts(database)["run"] == 2


def test_a_run_of_the_same_specification_is_not_taken_for_a_renamed_one(folder: RunFolder, database: Path) -> None:
    """Its folder is gone, but other attempts made it: it stays."""
    load_run(folder, database)
    shutil.rmtree(folder.path)
    again = runs.create(folder.path.parent, name="again")
    runs.write_part(again, [runs.speculative(runs.planned(again)[0])], "b0")
    assert load_run(again, database).former_names == ()
    assert counts(database)["run"] == 2
