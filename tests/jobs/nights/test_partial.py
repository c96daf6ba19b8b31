"""Nights that lose workers, graders or everything: each ends with a verdict that says what is missing and why."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from jobs import after, nightly
from jobs.finished import grading
from jobs.nightly import Night
from jobs.outcome import LaunchFailed
from jobs.recovery import NightRecord
from jobs.run.folder import RunFolder, run_folders
from jobs.slurm import client
from jobs.work import run_part
from tests.jobs.runs import write_suite
from warehouse.nightly.judge import EXIT_CODES

NIGHT = date(2026, 1, 1)


def written(folder: Path) -> Path:
    runs = ({"method": "vanilla"}, {"method": "speccot", "drafts": 2})
    return write_suite(folder, *runs, limit=2, samples=1, shards=2, tables="[nightly]\nrecoveries = 3\n")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite whose runs of the night have ended, which tests launch again."""
    path = written(tmp_path_factory.mktemp("night"))
    nightly.launch(Night.read(path, NIGHT))
    return path


@pytest.fixture
def runs(launched: Path) -> list[RunFolder]:
    """The runs of the night, which has no verdict yet; their results are gone."""
    runs = Night.read(launched, NIGHT).runs()
    names = {str(number): run.path.name for number, run in enumerate(runs)}
    record(launched).append("launched", runs=names, requests={})
    (launched.parent / "runs" / "warehouse.duckdb").unlink()
    for run in runs:
        run.results_path.unlink(missing_ok=True)
    return runs


def page(suite: Path) -> str:
    return (suite.parent / "runs" / "nights" / f"{NIGHT}.md").read_text()


def escaped(run: RunFolder) -> str:
    """Return a run's name as the page, which is Markdown, has it."""
    return run.path.name.replace("_", "\\_")


def record(suite: Path) -> NightRecord:
    return NightRecord(suite.parent / "runs" / "nights" / f"{NIGHT}.jsonl")


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Let the workers of speccot die: the number is how many of them still do."""
    left = {"deaths": 0}
    work = run_part.RunPart.work

    async def dies(self: run_part.RunPart, *arguments: Any) -> None:
        if self.run.spec().method == "speccot" and left["deaths"]:
            left["deaths"] -= 1
            raise RuntimeError("EngineDied: out of memory")
        await work(self, *arguments)

    monkeypatch.setattr(run_part.RunPart, "work", dies)
    return left


def test_a_night_that_stays_partial_says_what_is_missing_and_why(suite: Path, dying: dict[str, int]) -> None:
    dying["deaths"] = 99
    nightly.launch(Night.read(suite, NIGHT))
    assert nightly.conclude(Night.read(suite, NIGHT)) == EXIT_CODES["INCONCLUSIVE"]
    [speccot] = [escaped(run) for run in run_folders([suite.parent / "runs"]) if run.spec().method == "speccot"]
    assert page(suite).splitlines()[2].startswith("**PARTIAL NIGHT: 1 ")
    [line] = [line for line in page(suite).splitlines() if line.startswith(f"- {speccot}: 2 of 2 samples")]
    assert "RuntimeError: EngineDied" in line
    assert 99 - dying["deaths"] == 3, "one launch and two recoveries"
    concluded = record(suite).last("concluded")
    assert concluded is not None
    assert (concluded["verdict"], concluded["exit_code"]) == ("INCONCLUSIVE", 4)
    assert concluded["found"]["verdict"] == "INCONCLUSIVE", "what `--json` prints"


def ended(suite: Path) -> object:
    """Give the verdict as the verdict job does; returns the exit code."""
    with pytest.raises(SystemExit) as end:
        nightly.give_verdict(str(suite), str(NIGHT))
    return end.value.code


@pytest.mark.parametrize(
    ("name", "error"),
    [("jobs.recovery.recover", client.SlurmError("squeue: timed out")), ("jobs.after.judged", "busy")],
)
def test_a_verdict_job_that_finds_slurm_or_the_database_away_leaves_verdict_and_grading_to_the_next(
    name: str, error: Exception | str, launched: Path, runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away(*_: object) -> None:
        raise after.WarehouseBusy(error) if isinstance(error, str) else error

    for path in runs[0].derived("grades"):
        path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(name, is_away)
        assert (ended(launched), record(launched).last("concluded")) == (nightly.NO_VERDICT, None)
    assert ended(launched) == EXIT_CODES["INCONCLUSIVE"]
    recovered = page(launched).partition("## Recovered")[2]
    assert all(escaped(run) in recovered for run in runs), "what their own jobs did not grade was graded"
    assert "PARTIAL" not in page(launched)
    assert all(map(grading.is_concluded, runs))


@pytest.mark.parametrize(
    ("error", "attempts"), [(RuntimeError("no memory"), 1), (SystemExit("as a process that is killed"), 3)]
)
def test_a_run_that_cannot_be_graded_is_named_and_the_others_are_judged(
    error: BaseException, attempts: int, launched: Path, runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: RunFolder, *others: Any) -> None:
        if run.path == runs[1].path:
            raise error
        report(run, *others)

    report = after.report
    monkeypatch.setattr(after, "report", fails)
    assert [ended(launched) for _ in range(attempts)][-1] == EXIT_CODES["INCONCLUSIVE"]
    assert "PARTIAL NIGHT: 1 " in page(launched)
    assert f"{escaped(runs[1])}: " in page(launched)


def test_a_damaged_run_is_named_once_and_the_others_are_judged(
    launched: Path, runs: list[RunFolder], tmp_path: Path
) -> None:
    plan = runs[0].plan_path.rename(tmp_path / "plan.parquet")
    runs[0].plan_path.write_bytes(b"not Parquet")
    nightly.conclude(Night.read(launched, NIGHT))
    plan.replace(runs[0].plan_path)
    assert "PARTIAL NIGHT: 1 " in page(launched)
    assert page(launched).count("plan.parquet") == 1


def test_without_any_result_the_page_says_that_there_is_no_verdict(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise LaunchFailed("all workers failed")

    monkeypatch.setattr("jobs.drive.carry_out", fails)
    nightly.launch(Night.read(suite, NIGHT))
    assert ended(suite) == nightly.NO_VERDICT
    assert nightly.NO_VERDICT not in EXIT_CODES.values()
    assert page(suite).startswith("**NO VERDICT: ")
    assert "PARTIAL NIGHT: 2 " in page(suite)


def test_errors_of_verdict_jobs_are_no_verdict_and_after_three_the_page_says_so(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise RuntimeError("a file of the night is damaged\nand more")

    monkeypatch.setattr(after, "judged", damaged)
    dismissed: list[Night] = []

    def dismiss(night: Night) -> None:
        dismissed.append(night)

    monkeypatch.setattr(Night, "dismiss_successors", dismiss)
    night_page = suite.parent / "runs" / "nights" / f"{NIGHT}.md"
    for is_writable in (True, False):
        dismissed.clear()
        record(suite).append("launched", runs={}, requests={})
        if not is_writable:
            night_page.unlink()
            night_page.mkdir()
        for number in (1, 2, 3):
            assert ended(suite) == nightly.NO_VERDICT, "1 would be FAIL"
            is_last = number == 3
            assert bool(dismissed) == is_last, "until then, the job that takes its place tries again"
            assert bool(record(suite).last("concluded")) == (is_last and is_writable)
        if is_writable:
            assert page(suite).startswith("**NO VERDICT: ")
            assert "RuntimeError: a" in page(suite)
