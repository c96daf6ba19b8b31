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
from warehouse.nightly.judge import EXIT_CODES

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 2
samples = 1
shards = 2

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2

[nightly]
recoveries = 3
"""
NIGHT = date(2026, 1, 1)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    return path


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


def runs_of(suite: Path) -> list[RunFolder]:
    nightly.launch(Night.read(suite, NIGHT))
    return Night.read(suite, NIGHT).runs()


def ended(suite: Path) -> object:
    """Give the verdict as the verdict job does; returns the exit code."""
    with pytest.raises(SystemExit) as end:
        nightly.give_verdict(str(suite), str(NIGHT))
    return end.value.code


def test_what_the_runs_own_jobs_did_not_grade_is_graded_for_the_verdict(suite: Path) -> None:
    runs = runs_of(suite)
    (suite.parent / "runs" / "warehouse.duckdb").unlink()
    for path in runs[0].derived("grades"):
        path.unlink()
    assert ended(suite) == EXIT_CODES["INCONCLUSIVE"]
    recovered = page(suite).partition("## Recovered")[2]
    assert all(escaped(run) in recovered for run in runs)
    assert "PARTIAL" not in page(suite)
    assert all(map(grading.is_concluded, runs))


@pytest.mark.parametrize(
    ("error", "attempts"), [(RuntimeError("no memory"), 1), (SystemExit("as a process that is killed"), 3)]
)
def test_a_run_that_cannot_be_graded_is_named_and_the_others_are_judged(
    error: BaseException, attempts: int, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: RunFolder, *others: Any) -> None:
        if run.path == runs[1].path:
            raise error
        report(run, *others)

    report, runs = after.report, runs_of(suite)
    (suite.parent / "runs" / "warehouse.duckdb").unlink()
    for run in runs:
        run.results_path.unlink()
    monkeypatch.setattr(after, "report", fails)
    assert [ended(suite) for _ in range(attempts)][-1] == EXIT_CODES["INCONCLUSIVE"]
    assert "PARTIAL NIGHT: 1 " in page(suite)
    assert f"{escaped(runs[1])}: " in page(suite)


def test_a_damaged_run_is_named_once_and_the_others_are_judged(suite: Path) -> None:
    runs = runs_of(suite)
    runs[0].plan_path.write_bytes(b"not Parquet")
    runs[0].results_path.unlink()
    nightly.conclude(Night.read(suite, NIGHT))
    assert "PARTIAL NIGHT: 1 " in page(suite)
    assert page(suite).count("plan.parquet") == 1


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


@pytest.mark.parametrize(
    ("name", "error"),
    [("jobs.recovery.recover", client.SlurmError("squeue: timed out")), ("jobs.after.judged", "busy")],
)
def test_a_verdict_job_that_finds_slurm_or_the_database_away_leaves_the_verdict_to_the_next(
    name: str, error: Exception | str, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away(*_: object) -> None:
        raise after.WarehouseBusy(error) if isinstance(error, str) else error

    runs_of(suite)
    with monkeypatch.context() as patched:
        patched.setattr(name, is_away)
        assert (ended(suite), record(suite).last("concluded")) == (nightly.NO_VERDICT, None)
    assert ended(suite) == EXIT_CODES["INCONCLUSIVE"]
