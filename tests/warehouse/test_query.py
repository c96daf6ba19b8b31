"""The query command: read-only, exact in files, harmless on a terminal, one line where it fails."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.shared import known
from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.query import main, named_queries


def query(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(database), *arguments])


def test_formats(loaded: Loaded, tmp_path: Path) -> None:
    sql = "SELECT problem_id, answer, choices, tolerance FROM problem WHERE choices <> [] ORDER BY run_id LIMIT 1"
    assert json.loads(query(loaded.database, sql, "--format", "json").stdout) == [
        {"problem_id": "toy/2", "answer": "B", "choices": ["one", "two"], "tolerance": None}
    ]
    lines = list(csv.reader(io.StringIO(query(loaded.database, sql, "--format", "csv").stdout)))
    assert lines == [["problem_id", "answer", "choices", "tolerance"], ["toy/2", "B", '["one", "two"]', ""]]
    for name in ("a.csv", "a.json", "a.parquet", "a.txt"):
        assert query(loaded.database, sql, "-o", str(tmp_path / name)).exit_code == 0
    assert pq.read_table(tmp_path / "a.parquet").to_pylist()[0]["choices"] == ["one", "two"]
    assert json.loads((tmp_path / "a.json").read_text())[0]["answer"] == "B"
    assert "toy/2" in (tmp_path / "a.txt").read_text()


@pytest.mark.parametrize("shape", ["csv", "json", "table"])
def test_an_error_in_a_later_row_is_one_line_and_leaves_no_part_of_a_file(
    loaded: Loaded, tmp_path: Path, shape: str
) -> None:
    sql = "SELECT CASE WHEN i = 300000 THEN error('no way') ELSE i END AS i FROM range(400000) AS t(i)"
    output = tmp_path / "out"
    result = query(loaded.database, sql, "--format", shape, "-o", str(output))
    assert (result.exit_code, result.stderr.count("\n"), output.exists()) == (2, 1, False)
    assert "no way" in result.stderr


def test_a_pipe_that_is_closed_early_is_no_error(loaded: Loaded) -> None:
    command = [sys.executable, "-m", "warehouse.query", "--database", str(loaded.database), "FROM range(1000000)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        known(process.stdout).readline()
        known(process.stdout).close()
        assert known(process.stderr).read() == b""


@pytest.mark.parametrize("arguments", [("SELEC 1",), ("SELECT * FROM nothing",), ("SELECT error('no\nway')",), ("",)])
def test_bad_sql_is_one_line_and_exit_code_2(loaded: Loaded, arguments: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    result = query(loaded.database, *arguments, "-o", str(output))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error: ")
    assert not output.exists()


def test_several_statements_are_refused(loaded: Loaded, tmp_path: Path) -> None:
    result = query(loaded.database, "SELECT 1; SELECT 2", "-o", str(tmp_path / "a.csv"))
    assert (result.exit_code, result.stderr) == (2, "error: expected one SQL statement, not 2\n")
    assert query(loaded.database, "SELECT 1;  -- one").exit_code == 0
    assert query(loaded.database, "PIVOT problem ON dataset USING count(*)").exit_code == 0


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run",
        "DROP TABLE run",
        "COPY run TO '{there}/out.csv'",
        "SELECT * FROM read_text('{there}/secret')",
        "SELECT * FROM '{there}/secret.csv'",
        "ATTACH '{there}/other.duckdb'",
        "EXPORT DATABASE '{there}/all'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    ],
)
def test_sql_can_neither_write_nor_read_other_files(loaded: Loaded, sql: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    result = query(loaded.database, sql.format(there=tmp_path))
    assert result.exit_code == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret", "secret.csv"]
    with reader(loaded.database) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchall() == [(3,)]


@pytest.mark.parametrize("name", named_queries())
def test_every_named_query_runs(loaded: Loaded, name: str) -> None:
    assert query(loaded.database, "--name", name).exit_code == 0


@pytest.mark.parametrize("shape", ["table", "json"])
def test_a_terminal_never_sees_a_models_control_characters(tmp_path: Path, shape: str) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    text = "\x1b[2J\x9b31m\x07\u202e[red]here[/red]\n"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text=text)])
    load_run(folder, database)
    sql = "SELECT text FROM step WHERE step_index = 1"
    shown = on_terminal("warehouse.query", "--database", str(database), sql, "--format", shape)
    for hostile in ("\x1b[2J", "\x9b", "\x07", "\u202e"):
        assert hostile not in shown
    assert "[red]here[/red]" in shown
    if shape == "json":
        assert json.loads(query(database, sql, "--format", shape).stdout)[0]["text"] == text


def on_terminal(module: str, *arguments: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=follower, stdin=follower) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            written += chunk
    os.close(leader)
    assert process.returncode == 0
    return written.decode()


def test_a_grader_version_can_be_chosen_by_its_first_word_and_a_wrong_one_is_one_line(tmp_path: Path) -> None:
    folder, database = runs.finished(tmp_path), tmp_path / "w.duckdb"
    units = runs.planned(folder)
    for version, verdict in (("1 sympy=1", "wrong"), ("10 sympy=1", "correct"), ("11 sympy=1", "correct")):
        runs.write_grades(folder, {unit.sample_id: verdict for unit in units}, version)
    load_run(folder, database)
    sql = "SELECT grader_version, num_correct FROM pass_at_1"
    for arguments, expected in (
        ((), ["11 sympy=1", 6]),
        (("--grader", "1"), ["1 sympy=1", 0]),
        (("--grader", "10 sympy=1"), ["10 sympy=1", 6]),
    ):
        result = query(database, sql, "--format", "json", *arguments)
        assert [list(row.values()) for row in json.loads(result.stdout)] == [expected]
    for grader, message in (("7", "has no grades in this database"), ("", "is ambiguous")):
        result = query(database, sql, "--grader", grader)
        assert (result.exit_code, result.stderr.count("\n"), message in result.stderr) == (2, 1, True)
