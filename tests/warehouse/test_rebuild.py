"""Whatever is derived comes out the same: a rebuilt database, and totals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.run.folder import RunFolder
from tests.warehouse import runs
from tests.warehouse.conftest import counts
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


def test_totals_are_the_sums_over_the_rows(folder: RunFolder, database: Path) -> None:
    runs.write_part(folder, [runs.speculative(unit, refused=True) for unit in runs.planned(folder)[2:5]], "a1")
    load_run(folder, database)
    with reader(database) as connection:
        for totals, sums in (
            ("SELECT sum(num_steps), sum(num_tokens), sum(num_verdicts), sum(num_refused) FROM step_total",
             "SELECT count(*), sum(num_tokens), count(verdict_kind), count(*) FILTER (NOT verdict_accepted) FROM step"),
            ("SELECT sum(num_calls), sum(output_tokens), sum(cached_tokens), "
             "sum(prompt_tokens), sum(end_seconds), sum(queued_seconds) FROM call_total",
             "SELECT count(*), sum(output_tokens), sum(cached_tokens), "
             "sum(prompt_tokens), sum(end_seconds), sum(queued_seconds) FROM call"),
            ("SELECT sum(num_decisions), sum(num_accepted) FROM acceptance_by_position",
             "SELECT count(*), count(*) FILTER (verdict_accepted) FROM step WHERE verdict_kind IS NOT NULL"),
            ("SELECT sum(num_correct + num_incorrect) FROM rating_total",
             "SELECT count(*) FROM step JOIN grade USING (run_id, sample_id) WHERE verdict_kind IS NOT NULL"),
            ("SELECT sum(emitted_tokens), sum(spent_tokens), sum(critical_path_tokens) FROM sample_tokens",
             "SELECT (SELECT sum(num_tokens) FROM step), sum(output_tokens), sum(longest_output_tokens) FROM call"),
            ("SELECT sum(num_calls), sum(longest_output_tokens), sum(first_token_seconds), sum(decode_seconds) "
             "FROM sample_work",
             "SELECT count(*), sum(longest_output_tokens), sum(first_token_seconds - queued_seconds), "
             "sum(end_seconds - first_token_seconds) FROM call"),
            ("SELECT count(grader_version), sum(num_grades) FROM grade_total",
             "SELECT count(DISTINCT grader_version), count(*) FROM grade"),
            ("SELECT sum(num_chosen) FROM draft_selection", "SELECT count(*) FROM step WHERE verdict_kind = 'choice'"),
        ):  # fmt: skip
            assert connection.execute(totals).fetchall()[0] == pytest.approx(connection.execute(sums).fetchall()[0])


def test_a_rebuild_gives_the_same_rows(folder: RunFolder, database: Path) -> None:
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    for run in (folder, second):
        load_run(run, database)
    before = counts(database)
    database.write_bytes(b"no database")
    result = CliRunner().invoke(main, [str(folder.path.parent), "--rebuild"])
    assert result.exit_code == 0, result.output
    assert counts(database) == before
    assert sorted(p.name for p in folder.path.parent.iterdir() if p.is_file()) == [
        f".{database.name}.lock",
        database.name,
    ]
