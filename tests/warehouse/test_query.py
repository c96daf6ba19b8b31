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

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.database import reader
from warehouse.load import load_run
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


def test_columns_of_the_same_name_do_not_hide_each_other(loaded: Loaded, tmp_path: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS b"
    assert json.loads(query(loaded.database, sql, "--format", "json").stdout) == [{"a": 1, "a_1": 2, "b": None}]
    query(loaded.database, sql, "-o", str(tmp_path / "a.parquet"))
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["a", "a_1", "b"]


def test_a_table_in_a_pipe_cuts_nothing_off(loaded: Loaded) -> None:
    result = query(loaded.database, "SELECT repeat('x', 500) AS wide, 'end' AS last")
    [heading, row] = result.stdout.splitlines()
    assert "x" * 500 in row
    assert row.rstrip().endswith("end")
    assert heading.split() == ["wide", "last"]


def test_a_table_in_a_pipe_has_no_padding_and_full_numbers(loaded: Loaded) -> None:
    sql = "SELECT repeat('x', i) AS text, i / 3 AS third, NULL AS nothing, e'a\\tb' AS tab FROM range(1, 1400) AS t(i)"
    header, first, *others = query(loaded.database, sql).stdout.splitlines()
    assert (header, first) == ("text\tthird\tnothing\ttab", "x\t0.3333333333\tNULL\ta\\tb")
    assert (len(others), others[-1].count("x")) == (1398, 1399)
    assert query(loaded.database, sql, "--wide").stdout.splitlines()[2].startswith("x" + " " * 1399)


def test_columns_are_chosen_by_name_in_every_format(loaded: Loaded, tmp_path: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS b, 3 AS c"
    chosen = ("--columns", "c, a")
    assert query(loaded.database, sql, *chosen).stdout == "c\ta\n3\t1\n"
    assert query(loaded.database, sql, *chosen, "--format", "csv").stdout == "c,a\n3,1\n"
    assert json.loads(query(loaded.database, sql, *chosen, "--format", "json").stdout) == [{"c": 3, "a": 1}]
    assert query(loaded.database, sql, *chosen, "-o", str(tmp_path / "a.parquet")).exit_code == 0
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["c", "a"]
    for shape in ((), ("-o", str(tmp_path / "b.parquet"))):
        result = query(loaded.database, sql, "--columns", "a,d", *shape)
        expected = "error: the answer has no column 'd'; it has: a, b, c\n"
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", expected)
    assert query(loaded.database, sql, "--columns", "a,").exit_code == 2


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
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_json_is_written_row_by_row_as_a_whole_list_would_be(loaded: Loaded, rows: int) -> None:
    written = query(loaded.database, f"SELECT [1, 2] AS a, {{'b': e'\\n'}} AS c FROM range({rows})", "--format", "json")
    assert written.stdout == json.dumps([{"a": [1, 2], "c": {"b": "\n"}}] * rows, indent=2) + "\n"


def test_the_columns_of_a_view_are_described_with_type_and_meaning(loaded: Loaded) -> None:
    described = json.loads(query(loaded.database, "--describe", "sample", "--format", "json").stdout)
    assert described[0] == {"column": "run_id", "type": "VARCHAR", "comment": "The run"}
    result = query(loaded.database, "--describe", "samples")
    assert (result.exit_code, result.stderr.startswith("error: no table or view 'samples'; there are: ")) == (2, True)
    assert query(loaded.database, "SELECT 1", "--describe", "sample").exit_code == 2


@pytest.mark.parametrize("arguments", [("SELEC 1",), ("SELECT * FROM nothing",), ("SELECT error('no\nway')",), ("",)])
def test_bad_sql_is_one_line_and_exit_code_2(loaded: Loaded, arguments: tuple[str, ...], tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    result = query(loaded.database, *arguments, "-o", str(output))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error: ")
    assert not output.exists()


def test_a_missing_database_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = query(tmp_path / "none.duckdb", "SELECT 1")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "no warehouse" in result.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("SELECT 1", "--name", "results"), ("--name", "none"), ("SELECT 1", "--format", "parquet")]
)
def test_usage_errors(loaded: Loaded, arguments: tuple[str, ...]) -> None:
    assert query(loaded.database, *arguments).exit_code == 2


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_several_statements_and_an_unknown_ending_are_refused(loaded: Loaded, tmp_path: Path, name: str) -> None:
    result = query(loaded.database, "SELECT 1; SELECT 2", "-o", str(tmp_path / name))
    assert (result.exit_code, result.stderr) == (2, "error: expected one SQL statement, not 2\n")
    result = query(loaded.database, "SELECT 1;", "-o", str(tmp_path / "a.xlsx"))
    assert (result.exit_code, "a.xlsx ends in none of .csv" in result.stderr) == (2, True)
    assert query(loaded.database, "SELECT 1;  -- one").exit_code == 0
    assert query(loaded.database, "PIVOT problem ON dataset USING count(*)").exit_code == 0


def test_an_error_in_the_sql_keeps_the_hint(loaded: Loaded) -> None:
    assert 'Did you mean "sample"?' in query(loaded.database, "SELECT * FROM samples").stderr
    assert "Candidate bindings:" in query(loaded.database, "SELECT run FROM problem").stderr
    ambiguous = query(loaded.database, "SELECT run_id FROM run JOIN problem ON true").stderr
    assert "(use: 'run.run_id' or 'problem.run_id')" in ambiguous
    assert "Candidate functions:" in query(loaded.database, "SELECT regexp_matches(1, 2)").stderr
    assert "GROUP BY" in query(loaded.database, "SELECT run_id, count(*) FROM problem").stderr


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


def test_the_list_names_views_tables_and_queries_with_their_meaning(loaded: Loaded) -> None:
    entries = json.loads(query(loaded.database, "--list", "--format", "json").stdout)
    assert all(row["comment"] for row in entries)
    expected = {("view", "pass_at_1"), ("table", "sample"), ("query", "results")}
    assert expected <= {(e["kind"], e["name"]) for e in entries}


@pytest.mark.parametrize("name", named_queries())
def test_every_named_query_runs(loaded: Loaded, name: str) -> None:
    assert query(loaded.database, "--name", name).exit_code == 0


@pytest.mark.parametrize("shape", ["table", "csv", "json"])
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
    if shape != "table":
        exact = query(database, sql, "--format", shape).stdout
        assert text in (
            json.loads(exact)[0]["text"] if shape == "json" else next(csv.reader([exact.partition("\n")[2]]))[0] + "\n"
        )


def on_terminal(module: str, *arguments: str) -> str:
    """Return what a command writes to a terminal."""
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
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit) for unit in units])
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
    for grader, message in (("7", "graded nothing here"), ("", "is ambiguous")):
        result = query(database, sql, "--grader", grader)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr


def test_a_decimal_is_a_number_in_json(loaded: Loaded) -> None:
    sql = "SELECT 2 * 1.25 AS a, [0.5] AS b"
    assert json.loads(query(loaded.database, sql, "--format", "json").stdout) == [{"a": 2.5, "b": [0.5]}]
