"""A run folder has the files that its page names, and a flipped byte in any is named by load and status alike."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.launch import main as launch
from jobs.__main__ import main as jobs
from jobs.finished.grading import grade_candidates
from jobs.finished.scoring import score
from jobs.run import codes, derived, events, retries, submissions
from jobs.run.files import say_once
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import Attempt
from jobs.run.submissions import Submission
from jobs.submission import code_archive
from tests.jobs.finished.test_score import rewards
from tests.own_methods import no_methods, write_method
from warehouse.load import main as load

__all__ = ["no_methods"]
PAGE = (Path(__file__).parents[3] / "jobs" / "README.md").read_text("utf-8")
BESIDE = ("logs", "locks")
"""Folders of a run that are no kind of its files."""
SMALL = ("--dataset", "demo", "--limit", "3", "--samples", "2", "--engine", "scripted", "--cluster", "debug")


def first_cells(heading: str) -> list[str]:
    """The code in the first column of the table of the page that has this heading, row by row."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def launched(output: Path, *words: str) -> RunFolder:
    run = launch([*words, *SMALL, "--output", str(output)], standalone_mode=False)
    assert isinstance(run, RunFolder)
    return run


def made(folder: Path) -> list[RunFolder]:
    """Runs that have every kind of file: drafts of whole chains, a probe, cuts, a method and a grader of one's own."""
    run = launched(folder, "--method", "scot", "--latency-sample", "2", "--target-logprobs")
    grade_candidates(run, workers=1)
    asyncio.run(score(run, rewards([]), "toy@1/1"))
    code_archive.take(run)
    JournalWriter(run.journal_dir / "killed.jsonl", Attempt("killed", run.path.name, 0, "node", 1, 0.0, None)).close()
    run.append("servers", addresses={})
    submissions.record(run, Submission(0, "job", [[0]], 0.0))
    submissions.record_job(run, "7")
    submissions.leave(run, "shared")
    submissions.record_canceled(run, ["job"])
    run.append("retries", samples=[])
    probed = launched(folder, "--method", "specreason")
    assert CliRunner().invoke(jobs, ["probe", str(probed.path), "--points", "2", "--rollouts", "1"]).exit_code == 0
    [probe] = map(RunFolder, folder.glob("probe-*"))
    assert CliRunner().invoke(jobs, ["sweep-budget", str(probed.path), "--budgets", "9"]).exit_code == 0
    [cut] = map(RunFolder, folder.glob("budgets-*"))
    grader = write_method(folder / "own", "def grade(text, gold, problem):\n    return True\n", "short.py")
    method = write_method(folder / "own")
    own = launched(folder, "--method", f"{method}:Confident", "--grader", f"{grader}:grade")
    return [run, probe, cut, own]


@pytest.fixture
def runs(tmp_path: Path, no_methods: None) -> Iterator[list[RunFolder]]:
    yield made(tmp_path)
    say_once.cache_clear()


def files(run: RunFolder) -> list[str]:
    found = (path.relative_to(run.path) for path in run.path.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if path.parts[0] not in BESIDE)


def test_the_page_names_every_kind_of_file_and_of_event(runs: list[RunFolder]) -> None:
    patterns = [re.sub("[A-Z]{4,}", "*", name) for name in first_cells("file")]
    assert len(first_cells("file")) == 11, "nine kinds, of which one has three names"
    kinds = {
        (file, pattern)
        for run in runs
        for file in files(run)
        for pattern in patterns
        if fnmatchcase(file.removeprefix("timing/"), pattern)
    }
    assert {pattern for _, pattern in kinds} == set(patterns)
    assert {file for file, _ in kinds} == {file for run in runs for file in files(run)}
    timed = {file.split("/")[1] for run in runs for file in files(run) if file.startswith("timing/")}
    assert timed <= {"journal", "traces"}
    assert set(first_cells("kind of a derived file")) == set(derived.SCHEMAS)
    assert {kind for kind in derived.SCHEMAS if any(run.derived(kind) for run in runs)} == set(derived.SCHEMAS)
    named = first_cells("kind of event")
    assert {kind for kind in named if any(run.events(kind) for run in runs)} == set(named)
    lines = sum(len(run.events_path.read_bytes().splitlines()) for run in runs)
    assert lines == sum(len(run.events(kind)) for run in runs for kind in named), "no other kind of event"


def test_a_flipped_byte_of_any_kind_is_named_by_load_and_status_alike(
    runs: list[RunFolder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Journals, whose lines cost only their own steps, have tests of their own; nothing reads results.json."""
    damaged = [(run, name) for run in runs[:2] for name in files(run) if name.endswith(".parquet")]
    damaged += [(runs[0], name) for name in ("spec.json", "events.jsonl")]
    assert len(damaged) >= 13
    for run, name in damaged:
        copy = tmp_path / "copy" / run.path.name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run.path, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        for command, words in ((jobs, ["status", str(copy)]), (load, [str(copy)])):
            say_once.cache_clear()
            events._parsed.cache_clear()  # each command is a process of its own
            caplog.clear()
            told = CliRunner().invoke(
                command, [*words, *(["--database", str(tmp_path / "w")] if command is load else [])]
            )
            assert name.rpartition("/")[2] in told.output + caplog.text, (command.name, name)


def test_a_retry_is_granted_by_an_event(tmp_path: Path) -> None:
    run = launched(tmp_path, "--method", "vanilla")
    run.append("retries", samples=["a"])
    run.append("retries", samples=["a", "b"])
    assert retries.granted(run) == {"a": 2, "b": 1}
    assert codes.read(run)
