"""The options that all of the warehouse's commands share mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import click
import duckdb
import pytest
from click.testing import CliRunner

from jobs.suite import NIGHTLY_OUTPUT
from warehouse import compare, export, query, trace
from warehouse.database import WarehouseError
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
