"""Commands of the warehouse: the options that all share, one sample for a person, and a run for other tools."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import click
import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.suite import NIGHTLY_OUTPUT
from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse import compare, export, query, trace
from warehouse.database import WarehouseError, reader
from warehouse.loading.runs import load_run
from warehouse.nightly import __main__ as nightly
from warehouse.options import NIGHTLY_FOLDER, WarehouseCommand, choose_format, default_database
from warehouse.report import __main__ as report


@pytest.mark.parametrize(
    ("existing", "run", "expected"),
    [
        (["warehouse.duckdb", "runs/warehouse.duckdb"], "runs/a/", "runs/warehouse.duckdb"),
        (["warehouse.duckdb"], "runs/a", "warehouse.duckdb"),
        (["runs/warehouse.duckdb"], "a", "runs/warehouse.duckdb"),
        (["warehouse.duckdb"], None, "warehouse.duckdb"),
        ([], None, "runs/warehouse.duckdb"),
    ],
)
def test_the_database_is_beside_the_run_folder_or_else_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: list[str], run: str | None, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for path in existing:
        Path(path).touch()
    assert default_database(run) == Path(expected)


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        (["runs/warehouse.duckdb", "runs/nightly/warehouse.duckdb"], "runs/nightly/warehouse.duckdb"),
        (["warehouse.duckdb", "runs/warehouse.duckdb"], "runs/warehouse.duckdb"),
        ([], "runs/nightly/warehouse.duckdb"),
    ],
)
def test_a_night_is_judged_by_the_database_of_nightly_runs_unless_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(NIGHTLY_OUTPUT) == NIGHTLY_FOLDER
    NIGHTLY_FOLDER.mkdir(parents=True)
    for path in existing:
        Path(path).touch()
    read: list[Path] = []
    monkeypatch.setattr("warehouse.nightly.verdict.judged", lambda database, *_: read.append(database))
    CliRunner().invoke(nightly.main, [])
    assert read == [Path(expected)]


def test_the_format_is_an_option_or_follows_from_the_file_ending() -> None:
    endings = {".csv": "csv", ".json": "json"}
    for option, output, expected in (
        (None, None, "table"),
        (None, "a.JSON", "json"),
        (None, "a", "table"),
        ("json", "a.csv", "json"),
    ):
        assert choose_format(option, Path(output) if output else None, endings, "table") == expected
    assert choose_format("csv", Path("a.txt"), endings, "table", is_ending_required=True) == "csv"
    for output, is_required in (("a.xlsx", False), ("a", True)):
        with pytest.raises(click.UsageError, match=rf"^{output}: .*\.csv, \.json"):
            choose_format(None, Path(output), endings, "table", is_ending_required=is_required)
    with pytest.raises(click.UsageError, match="-o FILE"):
        choose_format("json", None, endings, "table", file_only=["json"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (WarehouseError("first\nsecond"), "first second"),
        (WarehouseError("\x1b[31mred"), "\\x1b[31mred"),
        (duckdb.Error('No table!\nDid you mean "a"?\n\nLINE 1: SELECT\n   ^'), 'No table! Did you mean "a"?'),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), "a.csv: No such file or directory"),
        (OverflowError("first"), "first"),
    ],
)
def test_an_error_of_the_warehouse_is_one_line_and_exit_code_2(error: Exception, message: str) -> None:
    @click.command(cls=WarehouseCommand)
    def main() -> None:
        raise error

    result = CliRunner().invoke(main)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")


def test_a_missing_database_is_answered_with_the_one_in_the_runs_folder_or_how_to_make_it(tmp_path: Path) -> None:
    database = tmp_path / "warehouse.duckdb"
    for hint in (f"create one with: python -m warehouse.load RUNS --database {database}", "use --database "):
        result = CliRunner().invoke(query.main, ["SELECT 1", "--database", str(database)])
        assert (result.exit_code, hint in result.stderr) == (2, True)
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / "warehouse.duckdb").touch()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [(compare, ["a", "b"]), (export, ["a"]), (nightly, []), (report, ["a"]), (trace, ["a", "b", "0"])],
)
def test_a_file_that_is_not_a_database_is_one_line_and_exit_code_2(
    tmp_path: Path, module: ModuleType, arguments: list[str]
) -> None:
    path = tmp_path / "none.duckdb"
    path.write_text("not a database")
    result = CliRunner().invoke(module.main, [*arguments, "--database", str(path)])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def traced(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(trace.main, ["--database", str(database), *arguments])


def test_control_characters_and_markup_are_shown_not_obeyed(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    hostile = "[bold]no[/bold]\x1b]0;title\x07\r\u2066\n── step 9: by nobody"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text=hostile)])
    load_run(folder, database)
    shown = traced(database, folder.path.name, "toy/0", "0").output
    assert not {"\x1b", "\x07", "\r", "\u2066"} & set(shown)
    assert "[bold]no[/bold]\\x1b]0;title\\x07\\r\\u2066" in shown
    assert not any(line.startswith("── step 9") for line in shown.splitlines())


def test_errors_unfinished_samples_and_what_is_not_there_are_told(loaded: Loaded, snapshot: SnapshotAssertion) -> None:
    name, told = loaded.speculative.path.name, {}
    for words in ("RUN toy/1 1", "RUN toy/2 1", "none toy/0 0", "RUN none 0", "RUN toy/0 9"):
        result = traced(loaded.database, *words.replace("RUN", name).split())
        lines = [line for line in result.output.splitlines() if "error" in line or "not finished" in line]
        told[words] = (result.exit_code, [re.sub(r"-[0-9a-f]{8}", "", line) for line in lines])
    assert told == snapshot


def exported(loaded: Loaded, *arguments: str) -> Result:
    return CliRunner().invoke(export.main, [*arguments, "--database", str(loaded.database)])


def test_parquet_holds_the_rows_of_the_run_and_no_others(loaded: Loaded, tmp_path: Path) -> None:
    name, folder = loaded.speculative.path.name, tmp_path / "out"
    assert exported(loaded, name, "-o", str(folder)).exit_code == 0
    with reader(loaded.database) as connection:
        for table in ("run", "sample", "step", "candidate", "call", "grade", "sample_tokens"):
            [(number,)] = connection.execute(f"SELECT count(*) FROM {table} WHERE run_id = ?", [name]).fetchall()
            rows = pq.read_table(folder / f"{table}.parquet").to_pylist()
            assert len(rows) == number > 0
            assert {row["run_id"] for row in rows} == {name}
    steps = pq.read_table(folder / "step.parquet").to_pylist()
    judged = next(row for row in steps if row["verdict_kind"])
    assert judged["verdict_options"] == ["1", "2", "3"]


@pytest.mark.parametrize("shape", ["parquet", "inspect"])
def test_mistakes_are_one_line(loaded: Loaded, tmp_path: Path, shape: str) -> None:
    there = tmp_path / "there.eval"
    there.write_text("mine")
    for arguments in (("none",), (loaded.speculative.path.name, "-o", str(there))):
        result = exported(loaded, *arguments, "--format", shape)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert there.read_text() == "mine"


@pytest.mark.needs_tool("inspect")
def test_an_inspect_log_is_read_back_by_inspect(loaded: Loaded, tmp_path: Path) -> None:
    from inspect_ai import log
    from inspect_ai.analysis import messages_df

    path = tmp_path / "run.eval"
    result = exported(loaded, loaded.speculative.path.name, "--format", "inspect", "-o", str(path))
    assert result.exit_code == 0, result.output
    assert "5 samples" in result.stdout
    eval_log = log.read_eval_log(str(path))
    assert eval_log.status == "started"  # one sample has not been run
    assert (eval_log.eval.solver, eval_log.eval.dataset.samples, eval_log.eval.config.epochs) == ("speccot", 3, 2)
    assert eval_log.eval.model == "org/large"
    assert (eval_log.results.total_samples, eval_log.results.completed_samples) == (6, 5)
    assert eval_log.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 6)
    first = next(s for s in eval_log.samples if (s.id, s.epoch) == ("toy/0", 1))
    texts = (first.input, first.target, first.output.completion)
    assert texts == ("1 + 1?", "2", loaded.traces[0].output_text)
    assert (first.scores["grader"].value, first.scores["grader"].answer) == ("C", "2")
    assert first.model_usage["draft"].output_tokens == loaded.traces[0].spent_tokens("draft")
    step = first.events[1].data
    assert (step["author"], step["role"], len(step["candidates"])) == ("draft", "draft", 2)
    failed = [s for s in eval_log.samples if s.error]
    assert [s.error.message for s in failed] == ["RequestRefused: too long"]
    assert len(log.read_eval_log_sample_summaries(str(path))) == 5
    assert list(messages_df(str(path), quiet=True)["role"]) == ["user", "assistant"] * 5
