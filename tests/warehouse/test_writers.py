"""One writer at a time, killed at any moment, and readers who never wait for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import warehouse.database
from jobs.run.folder import RunFolder
from tests.warehouse import runs
from tests.warehouse.conftest import counts
from warehouse import files
from warehouse.database import WarehouseBusy, reader, writer
from warehouse.load import main
from warehouse.loading.runs import load_run


def test_a_loader_killed_in_the_middle_leaves_the_old_state(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = counts(database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
    code = """
import os, pathlib, sys
from warehouse.loading import runs as loading
from jobs.run.folder import RunFolder
whole = loading.replace_run
def killed(connection, run_id):
    whole(connection, run_id)
    os._exit(9)
loading.replace_run = killed
loading.load_run(RunFolder(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]))
"""
    killed = subprocess.run([sys.executable, "-c", code, str(folder.path), str(database)], check=False)
    assert killed.returncode == 9
    assert counts(database) == before
    assert load_run(folder, database).num_finished == 6


def test_readers_do_not_wait_for_a_writer_and_keep_what_they_opened(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    num_steps = "SELECT count(*) FROM step"
    with writer(database), reader(database, 0) as connection:
        assert connection.execute(num_steps).fetchall() == [(6,)]
    code = "import sys, pathlib; from warehouse.loading.runs import load_run; from jobs.run.folder import RunFolder\n"
    code += "print(load_run(RunFolder(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), 0).num_finished)"
    with reader(database) as connection:  # a notebook that stays open keeps no loader out
        runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
        command = [sys.executable, "-c", code, str(folder.path), str(database)]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "6"
        assert connection.execute(num_steps).fetchall() == [(6,)]
    assert counts(database)["step"] == 18


def test_two_loaders_take_turns(folder: RunFolder, database: Path) -> None:
    """Two loaders run at once, each with its own run, and neither loses what the other wrote."""
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
    command = [sys.executable, "-m", "warehouse.load", "--database", str(database)]
    both = [subprocess.Popen([*command, str(run.path)], stdout=subprocess.PIPE) for run in (folder, second)]
    for loader in both:
        loader.communicate()
    assert [loader.returncode for loader in both] == [0, 0]
    assert (counts(database)["run"], counts(database)["step"]) == (2, 18)


def test_an_unchanged_run_writes_nothing(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = database.stat()
    with runs.locked(database):  # not even the lock is needed
        assert load_run(folder, database, 0).unchanged
    assert (database.stat().st_ino, database.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_failure_in_the_middle_leaves_no_trace(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = sorted(path.name for path in database.parent.iterdir())

    def fail() -> None:
        with writer(database) as connection:
            connection.execute("DELETE FROM step")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert sorted(path.name for path in database.parent.iterdir()) == before
    assert counts(database)["step"] == 6


def test_a_rebuild_waits_for_the_one_who_writes(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = database.read_bytes()
    with runs.locked(database):
        result = CliRunner().invoke(main, [str(folder.path), "--rebuild", "--wait", "0.2", "--database", str(database)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert database.read_bytes() == before


_HOLDS_THE_FILE = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(60)"


@contextmanager
def opened_elsewhere(database: Path) -> Iterator[int]:
    """Another program that has the file open for writing; gives its PID."""
    with subprocess.Popen([sys.executable, "-c", _HOLDS_THE_FILE, str(database)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.kill()


def test_who_waits_for_the_database_is_told_for_whom(
    folder: RunFolder, database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (files, warehouse.database):
        monkeypatch.setattr(module, "SAY_SECONDS", 0.1)
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
    with opened_elsewhere(database) as pid, pytest.raises(WarehouseBusy, match=rf"\(PID {pid}\)"):
        load_run(folder, database, 0.5)
    [line] = caplog.messages
    assert (str(database) in line, f"(PID {pid})" in line) == (True, True)
    caplog.clear()
    with runs.locked(database), pytest.raises(WarehouseBusy):
        load_run(folder, database, 0.5)
    [line] = caplog.messages
    assert (str(database) in line, "PID" in line) == (True, False)
    caplog.clear()
    assert load_run(folder, database).num_finished == 6
    assert caplog.messages == []
