"""What each command prints, 80 columns wide. No number is here alone: those are in test_numbers.py."""

from __future__ import annotations

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.snapshots.corpus import Corpus
from tests.snapshots.values import Screen

DATABASE = ("--database", "runs/warehouse.duckdb")
COMMANDS: dict[str, tuple[str, ...]] = {
    "harness.launch --dry-run": ("--method", "speccot", "--dataset", "own.jsonl", "--engine", "scripted"),
    "harness.launch --list": ("methods",),
    "harness.reproduce": ("regimes.toml", "--table"),
    "harness.reproduce --dry-run": ("regimes.toml",),
    "harness.sizing": ("--gpus", "2xH100-80", "--draft", "r1-distill-qwen-1.5b", "--target", "qwq-32b"),
    "jobs example": ("suite",),
    "jobs list": ("runs",),
    "jobs status": ("TIMED",),
    "jobs logs": ("TIMED",),
    "jobs show": ("TIMED",),
    "jobs cancel": ("TIMED",),
    "jobs resume": ("TIMED",),
    "jobs probe": ("BATCH", "--points", "8", "--rollouts", "2", "--cluster", "debug", "--dry-run"),
    "jobs lossless": ("SPECDECODE", "GREEDY"),
    "grading.check": ("--dataset", "own.jsonl"),
    "warehouse.query": ("SELECT run_id, n, k, pass_at_1, low_95, high_95 FROM pass_at_1 ORDER BY ALL", *DATABASE),
    "warehouse.query --list": DATABASE,
    "warehouse.query --describe": ("pass_at_1", *DATABASE),
    "warehouse.trace": ("BATCH", "a", "0", *DATABASE),
    "warehouse.compare": ("BASE", "BATCH", "REASON"),
    "warehouse.report": ("BASE", "BATCH", "REASON", "--format", "md", *DATABASE),
    "warehouse.plan": ("BASE", "BATCH"),
    "warehouse.probed": ("PROBE",),
    "warehouse.nightly": ("--database", "nights/warehouse.duckdb"),
    "warehouse.export": ("BATCH", "-o", "exported", *DATABASE),
}  # fmt: skip
"""Arguments of commands that only read; words in capitals are runs."""
RUNS = {
    "BASE": "vanilla own 6x2 4 in flight",
    "BATCH": "speccot own 6x2 4 in flight",
    "REASON": "specreason own 6x2 4 in flight",
    "TIMED": "speccot own 6x3 4 in flight",
    "DIED": "speccot own 6x3 4 in flight died",
    "SCOT": "scot own 6x2 4 in flight",
    "SPECDECODE": "specdecode demo 8x1 4 in flight greedy",
    "GREEDY": "vanilla demo 8x1 4 in flight greedy",
    "PROBE": "vanilla probe 16x2 64 in flight",
}


@pytest.fixture
def screen(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Screen)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads(command: str, corpus: Corpus, screen: SnapshotAssertion) -> None:
    words = [corpus.folder(RUNS[word]) if word in RUNS else word for word in COMMANDS[command]]
    assert (
        _steady(corpus.run(*command.split(" -")[:1], *_flags(command), *words, exit_code=None).output, corpus) == screen
    )


def _flags(command: str) -> list[str]:
    return [f"-{flag}" for flag in command.split(" -")[1:]]


def test_commands_that_write(corpus: Corpus, screen: SnapshotAssertion) -> None:
    differing = [name for name, printed in corpus.screens.items() if screen(name=name) != _steady(printed, corpus)]
    assert not differing


def _steady(printed: str, corpus: Corpus) -> str:
    """Return what a command printed without what the machine, the day and the code decide."""
    known = printed.replace(f"{corpus.where}/", "")
    for changing, steady in (
        (r"\b(?:(?=[0-9a-f]*[a-f])[0-9a-f]{10,64}|(?<!\.)\d{16})(-dirty)?\b", "HASH"),
        (r"\S+\.py:\d+", "FILE.py:LINE"),
        (r"[\w-]+=\d+\.[\d.]+", "PACKAGE=VERSION"),
        (r"\b\d+\.\d+\.\d+(\+\w+)?(?!\S)", "VERSION"),
        (r"in \d+\.\d s\b", "in 0.0 s"),
        (r"(?m)^.*\d+/\d+ samples?( · .*)?\n", ""),  # progress, which a thread of its own prints
        (r"started \S+ \S+ UTC", "started DATE TIME UTC"),
        (r"(?m)^\| (packages|planned \(UTC\)|harness commit|hash of the code) .*\n", ""),
        (r"(?m) +$", ""),
    ):
        known = re.sub(changing, steady, known)
    # Columns of Markdown are as wide as their widest cell, which may be one of those.
    return re.sub(r"(?m)^\|.*", lambda line: re.sub(r" {2,}", " ", re.sub(r"-{3,}", "---", line[0])), known)
