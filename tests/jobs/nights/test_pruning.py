"""Old nights are archived and every verdict stays; what is unfinished, unknown or elsewhere is never touched."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from jobs.__main__ import main
from jobs.after import warehouse
from jobs.nights import archive, pruning
from jobs.run import submissions
from jobs.run.folder import RunFolder, run_folders
from jobs.run.spec import units
from jobs.run.submissions import Submission
from tests.jobs.slurm.fake import FakeSlurm
from tests.warehouse import made_up_nights, runs
from warehouse import load as loading
from warehouse.compare import main as compare
from warehouse.database import WarehouseOutdated, reader, rows
from warehouse.export import main as export
from warehouse.loading import pruning as forgetting
from warehouse.nightly.history import read_nights
from warehouse.nightly.judge import NightVerdict, replay
from warehouse.report.__main__ import main as report
from warehouse.summary import summary
from warehouse.trace import main as trace

NIGHTS, KEPT = 6, 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "nightly"
    made = list(made_up_nights.make_nights(folder, NIGHTS))
    (folder / "warehouse.duckdb").unlink(missing_ok=True)
    for _, outcome in loading.load_runs(made, folder / "warehouse.duckdb"):
        assert not isinstance(outcome, Exception)
    return folder


@pytest.fixture
def nightly(made: Path) -> Iterator[Path]:
    """The folder of six nights of two runs each; it is put back after the test, because databases name its path."""
    spare = made.with_name("spare")
    shutil.copytree(made, spare)
    yield made
    shutil.rmtree(made)
    spare.rename(made)


def verdicts(folder: Path) -> list[NightVerdict]:
    with reader(folder / "warehouse.duckdb") as connection:
        return replay(read_nights(connection))


def count(folder: Path, table: str) -> dict[str, int]:
    sql = f"SELECT run_id, count(*) AS n FROM {table} GROUP BY run_id"
    with reader(folder / "warehouse.duckdb") as connection:
        return {str(row["run_id"]): int(str(row["n"])) for row in rows(connection, sql)}


def results_of(folder: Path, run_ids: list[str]) -> Any:
    """What a summary says of runs; sums of floating-point numbers depend on the order of rows in their last digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): rounded(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(inner) for inner in value]
        return float(f"{value:.10g}") if isinstance(value, float) else value

    return [rounded(asdict(found)) for found in summary(folder / "warehouse.duckdb", run_ids)]


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def prune(folder: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["prune", str(folder), "--keep-nights", str(KEPT), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def names(folder: Path) -> set[str]:
    return {run.path.name for run in run_folders([folder])}


def test_without_yes_nothing_changes(nightly: Path) -> None:
    before = tree(nightly)
    said = prune(nightly)
    assert "8 runs of 4 nights, 2023-01-01 to 2023-01-04" in said
    assert "Nothing was changed. To do it, add --yes." in said
    assert tree(nightly) == before


def test_verdicts_and_results_stay_when_old_nights_are_archived(nightly: Path) -> None:
    old = sorted(names(nightly) - {run.path.name for run in newest(nightly)})
    before, results = verdicts(nightly), results_of(nightly, old)
    steps = count(nightly, "step")
    assert "archived 8 runs" in prune(nightly, "--yes")
    assert verdicts(nightly) == before
    assert results_of(nightly, old) == results
    assert names(nightly) == {run.path.name for run in newest(nightly)}
    kept = names(nightly)
    assert count(nightly, "step") == {name: number for name, number in steps.items() if name in kept}
    assert {path.name for path in (nightly / "archive").iterdir()} == {f"{name}.tar.gz" for name in old}
    assert "no run to archive" in prune(nightly, "--yes")
    _judge_another(nightly, len(before))


def test_what_needs_steps_and_calls_says_that_they_were_archived(nightly: Path, tmp_path: Path) -> None:
    """Without them a report would show no fallback and a stopwatch no time."""
    old = sorted(names(nightly) - {run.path.name for run in newest(nightly)})[:2]
    compared = [*map(str, (nightly / name for name in old)), "--format", "json"]
    before = CliRunner().invoke(compare, compared)
    prune(nightly, "--yes")
    database = ["--database", str(nightly / "warehouse.duckdb")]
    after = CliRunner().invoke(compare, [*compared, *database])
    assert after.exit_code == before.exit_code == 0, after.output
    for refused in (
        CliRunner().invoke(compare, [*compared, *database, "--stopwatches"]),
        CliRunner().invoke(report, [*old, *database, "-o", str(tmp_path / "report.html")]),
        CliRunner().invoke(export, [old[0], *database, "-o", str(tmp_path / "x")]),
    ):
        assert refused.exit_code == 2, refused.output
        assert f"only results are left of {old[0]}" in refused.output
        assert "--restore RUN" in refused.output
    shown = CliRunner().invoke(trace, [old[0], "toy/0", "0", *database])
    assert f"its steps and calls are in an archive: python -m jobs prune FOLDER --restore {old[0]}" in shown.output


def newest(folder: Path) -> list[RunFolder]:
    tagged = sorted(run_folders([folder]), key=lambda run: str(run.spec().tag))
    return tagged[-2 * KEPT :]


def _judge_another(folder: Path, num_before: int) -> None:
    night = made_up_nights.FIRST + timedelta(NIGHTS)
    spec = made_up_nights.spec_of("vanilla", night)
    traces = [runs.vanilla(unit) for unit in units(spec, made_up_nights.PROBLEMS)]
    run = made_up_nights.make_run(folder, spec, traces, np.random.default_rng(9))
    loading.load_run(run, folder / "warehouse.duckdb")
    last = verdicts(folder)[-1]
    assert last.cells[0].num_baseline == num_before, "the archived nights are its baseline"


def test_a_restored_run_is_what_it_was_and_its_details_come_back(nightly: Path, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="")
    [run, *_] = sorted(run_folders([nightly]), key=lambda run: str(run.spec().tag))
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0, code="code-1.zip"))
    (run.path / "code-1.zip").write_bytes(b"code")
    before, steps = tree(run.path), count(nightly, "step")[run.path.name]
    prune(nightly, "--yes")
    assert not run.exists()
    prune(nightly, "--restore", run.path.name)
    assert tree(run.path) == before
    loading.load_run(run, nightly / "warehouse.duckdb")
    assert count(nightly, "step")[run.path.name] == steps
    assert count(nightly, "pruned_run").get(run.path.name) is None
    assert "exists already" in prune(nightly, "--restore", run.path.name, code=1)
    assert "does not exist" in prune(nightly, "--restore", "../../etc", code=1)


def test_only_what_is_certain_goes(nightly: Path, slurm: FakeSlurm, tmp_path: Path) -> None:
    by_night = sorted(run_folders([nightly]), key=lambda run: (str(run.spec().tag), run.path.name))
    unfinished, ungraded, unloaded, queued, gone = by_night[:5]
    runs.write_part(unfinished, [])
    shutil.rmtree(ungraded.grades_dir)
    loading.load_run(ungraded, nightly / "warehouse.duckdb")
    (ungraded.grades_dir).mkdir()
    [grades] = unloaded.grades_dir.iterdir()
    grades.rename(grades.with_name("2.parquet"))
    submissions.record(queued, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue="run.0.finalize|N/A|7|7|PENDING||Dependency|0|root")
    (nightly / "old-link").symlink_to(tmp_path / "elsewhere")
    untagged = RunFolder(nightly / "not-a-night")
    shutil.copytree(gone.path, untagged.path)
    spec = json.loads(untagged.spec_path.read_bytes())
    untagged.spec_path.write_text(json.dumps({**spec, "tag": "2023-01-01-test"}))
    said = prune(nightly, "--yes")
    for run, why in (
        (unfinished, "80 of its samples are not finished"),
        (ungraded, "the database lacks grades of it"),
        (unloaded, "its files have changed since they were loaded"),
        (queued, "Slurm has a job of it"),
    ):
        assert run.exists()
        assert f"stays: {run.path.name}: {why}" in said
    assert not gone.exists()
    assert untagged.exists()


@pytest.mark.parametrize("dies_in", ["archive", "forget_details", "remove"])
def test_killed_anywhere_the_same_command_goes_on(nightly: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    before, planned = verdicts(nightly), pruning.plan(nightly, KEPT, nightly / "archive")
    module = warehouse if dies_in == "forget_details" else archive
    with monkeypatch.context() as patch:
        first = getattr(module, dies_in)
        done: list[Any] = []

        def dies_later(*arguments: Any) -> Any:
            if done or dies_in == "forget_details":
                dies()
            done.append(arguments)
            return first(*arguments)

        patch.setattr(module, dies_in, dies_later)
        with pytest.raises(KeyboardInterrupt):
            pruning.prune(planned)
    assert verdicts(nightly) == before
    prune(nightly, "--yes")
    assert verdicts(nightly) == before
    assert len(names(nightly)) == 2 * KEPT
    assert len(archive.archived(nightly / "archive")) == 2 * (NIGHTS - KEPT)
    assert len(count(nightly, "step")) == 2 * KEPT


def test_a_database_that_would_judge_otherwise_is_not_taken(nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = verdicts(nightly)
    monkeypatch.setattr(forgetting, "_DETAILS", (*forgetting._DETAILS, "graded_sample"))
    said = prune(nightly, "--yes", code=2)
    assert "nights would be judged otherwise" in said
    assert verdicts(nightly) == before
    assert len(names(nightly)) == 2 * NIGHTS


def test_an_archive_that_is_not_written_as_it_should_be_keeps_the_run(
    nightly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folders([nightly])[0]
    check = archive._check
    monkeypatch.setattr(archive, "_check", lambda path, of, files: check(path, of, files[:-1]))
    with pytest.raises(archive.ArchiveFailed, match="changed while it was archived"):
        archive.archive(run, nightly / "archive")
    assert not archive.archived(nightly / "archive")
    monkeypatch.undo()
    (run.logs_dir / "pipe").symlink_to(run.spec_path)
    with pytest.raises(archive.ArchiveFailed, match="is neither a file nor a folder"):
        archive.archive(run, nightly / "archive")
    assert run.exists()


def test_a_database_of_an_older_version_is_rebuilt_from_archives_too(
    nightly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = verdicts(nightly)
    prune(nightly, "--yes")
    folders, line = loading.plan_migration(run_folders([nightly]), nightly / "warehouse.duckdb")
    assert "8 of them restored from their archives" in line
    assert len(folders) == 2 * NIGHTS
    for _ in loading.rebuild(folders, nightly / "warehouse.duckdb"):
        pass
    assert verdicts(nightly) == before
    prune(nightly, "--yes")
    shutil.rmtree(nightly / "archive")
    with pytest.raises(WarehouseOutdated, match="the folders of 8 of its runs no longer exist"):
        loading.plan_migration(run_folders([nightly]), nightly / "warehouse.duckdb")
    assert warehouse.PRUNED == forgetting.PRUNED
