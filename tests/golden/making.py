"""How a corpus is made, part by part; make.py is the command."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import options
from harness.launch import main as launch
from harness.problems import benchmarks
from jobs import nightly, suite
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from tests.golden import corpus, digests, identities, killed, measured
from warehouse.database import reader
from warehouse.load import load_run
from warehouse.regress import main as regress

NIGHTS = [date(2026, 11, day) for day in (1, 2, 3, 4, 5)]
_CHANGED_NIGHT = date(2026, 11, 6)
"""A night on which the benchmark had lost a problem: its inputs changed, so its verdict is FAIL."""
_KILLED_TWICE = frozenset({"specreason"})
_TORN = frozenset({"scot", "speccot"})
"""Methods whose last journal ends in the middle of a line."""


def make(folder: Path) -> None:
    """Make every part of a corpus in a folder that holds its three suites."""
    if (folder / "finished").exists():
        raise SystemExit(f"{folder} holds a corpus already, and none is ever made again")
    with stand_ins() as data:
        corpus.write_json(folder / "ids.json", identities.every(data))
        _make_interrupted(folder)
        _make_nights(folder)
        _make_finished(folder)
    (folder / corpus.MANIFEST).write_text(corpus.manifest(folder), encoding="utf-8")


@contextmanager
def stand_ins() -> Iterator[Path]:
    """A folder with a stand-in for every benchmark, where the harness finds it; no cache of the hub's models."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", folder)  # a model in it would have another revision
        patch.setenv(benchmarks.DATA_DIR_VARIABLE, folder)
        identities.write_stand_ins(Path(folder))
        yield Path(folder)


def _make_finished(folder: Path) -> None:
    """Real runs, the warehouse of them, and their numbers."""
    chosen = suite.read(folder / "finished.toml")
    runs = suite.launch(chosen, None)
    for run in runs:
        corpus.keep(run, folder / "finished")
    database = chosen.output / "warehouse.duckdb"
    corpus.pack(database, folder / "warehouse.duckdb.gz")
    names = [run.path.name for run in runs]
    with reader(database) as connection:
        numbers = {
            "runs": measured.of_runs(connection, names),
            "comparison": measured.of_comparison(connection, names),
        }
    corpus.write_json(folder / "results.json", numbers)


def _make_interrupted(folder: Path) -> None:
    """Killed runs, and how their samples end where nobody kills them."""
    chosen, endings = suite.read(folder / "interrupted.toml"), {}
    for number, flags in enumerate(corpus.launch_flags(folder / "interrupted.toml")):
        with tempfile.TemporaryDirectory() as elsewhere:
            whole: RunFolder = launch.main(options.arguments({**flags, "output": elsewhere}))
            found = digests.in_trace_files(whole)
        run = RunFolder(chosen.output / whole.path.name)
        (killed.kill_twice if flags["method"] in _KILLED_TWICE else killed.kill)(run, flags)
        if flags["method"] in _TORN:
            killed.tear(max(run.journals()))
        corpus.keep(run, folder / "interrupted")
        endings[run.path.name] = {"launch": number, "samples": {sample: digest for sample, [digest] in found.items()}}
    corpus.write_json(folder / "interrupted.json", endings)


def _make_nights(folder: Path) -> None:
    """Nights on which nothing happened, and one on which the problems were others."""
    path = folder / "nights.toml"
    for night in NIGHTS:
        _night(path, night)
    with tempfile.TemporaryDirectory() as elsewhere:
        changed = Path(elsewhere) / path.name
        changed.write_text(path.read_text(encoding="utf-8").replace("limit = 6", "limit = 5"), encoding="utf-8")
        _night(changed, _CHANGED_NIGHT)
    output = suite.read(path).output
    for run in sorted(output.glob("amc23-*")):
        corpus.keep(RunFolder(run), folder / "nights")
    for file in sorted((output / "nights").iterdir()):
        write_atomically(folder / "nights" / "nights" / file.name, file.read_bytes())
    corpus.write_json(folder / "nights.json", said_of_nights(output, [*NIGHTS, _CHANGED_NIGHT]))


def _night(path: Path, night: date) -> None:
    nightly.launch(path, night)
    try:
        nightly.conclude(str(path), night.isoformat())
    except nightly.NightFailed as failed:
        print(failed)


def said_of_nights(output: Path, nights: list[date]) -> dict[str, object]:
    """What `warehouse.regress` says of each night, over a warehouse made of its run folders."""
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as elsewhere:
        database = Path(elsewhere) / "nights.duckdb"
        for run in sorted(output.glob("amc23-*")):
            load_run(RunFolder(run.resolve()), database)
        for night in nights:
            found[night.isoformat()] = judged(database, night.isoformat())
    return found


def judged(database: Path, night: str) -> dict[str, object]:
    """What is said of one night, and that the command's exit code says it too."""
    result = CliRunner().invoke(regress, ["--database", str(database), "--night", night, "--format", "json"])
    record = json.loads(result.stdout)
    if result.exit_code != record["exit_code"]:
        raise RuntimeError(f"{night}: exit code {result.exit_code}, but it says {record['exit_code']}")
    return measured.of_night(record)
