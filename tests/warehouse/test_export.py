"""A run for other tools, read back with those tools' own readers."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.warehouse.conftest import Loaded
from warehouse.database import reader
from warehouse.export import main


def export(loaded: Loaded, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--database", str(loaded.database)])


def test_parquet_holds_the_rows_of_the_run_and_no_others(loaded: Loaded, tmp_path: Path) -> None:
    name, folder = loaded.speculative.path.name, tmp_path / "out"
    assert export(loaded, name, "-o", str(folder)).exit_code == 0
    with reader(loaded.database) as connection:
        for table in ("run", "sample", "step", "candidate", "call", "grade", "sample_tokens"):
            table_on_disk = pq.read_table(folder / f"{table}.parquet")
            expected = connection.execute(f"SELECT * FROM {table} WHERE run_id = ? ORDER BY ALL", [name]).fetchall()
            rows = table_on_disk.to_pylist()
            assert len(rows) == len(expected) > 0
            assert {row["run_id"] for row in rows} == {name}
    steps = pq.read_table(folder / "step.parquet").to_pylist()
    judged = next(row for row in steps if row["verdict_kind"])
    assert judged["verdict_options"] == ["1", "2", "3"]


@pytest.mark.parametrize("shape", ["parquet", "inspect"])
def test_mistakes_are_one_line(loaded: Loaded, tmp_path: Path, shape: str) -> None:
    there = tmp_path / "there.eval"
    there.write_text("mine")
    for arguments in (("none",), (loaded.speculative.path.name, "-o", str(there))):
        result = export(loaded, *arguments, "--format", shape)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert there.read_text() == "mine"


@pytest.mark.needs_tool("inspect")
def test_an_inspect_log_is_read_back_by_inspect(loaded: Loaded, tmp_path: Path) -> None:
    from inspect_ai import log

    path = tmp_path / "run.eval"
    result = export(loaded, loaded.speculative.path.name, "--format", "inspect", "-o", str(path))
    assert result.exit_code == 0, result.output
    assert "5 samples" in result.stdout
    eval_log = log.read_eval_log(str(path))
    assert eval_log.status == "started"  # one sample has not been run
    assert (eval_log.eval.solver, eval_log.eval.dataset.samples, eval_log.eval.config.epochs) == ("speccot", 3, 2)
    assert eval_log.eval.model == "org/large"
    assert (eval_log.results.total_samples, eval_log.results.completed_samples) == (6, 5)
    assert eval_log.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 6)
    first = next(s for s in eval_log.samples if (s.id, s.epoch) == ("toy/0", 1))
    assert (first.input, first.target, first.output.completion) == (
        "1 + 1?",
        "2",
        loaded.traces[0].output_text,
    )
    assert (first.scores["grader"].value, first.scores["grader"].answer) == ("C", "2")
    assert first.model_usage["draft"].output_tokens == loaded.traces[0].spent_tokens("draft")
    step = first.events[1].data
    assert (step["author"], step["role"], len(step["candidates"])) == ("draft", "draft", 2)
    failed = [s for s in eval_log.samples if s.error]
    assert [s.error.message for s in failed] == ["RequestRefused: too long"]
    assert len(log.read_eval_log_sample_summaries(str(path))) == 5
