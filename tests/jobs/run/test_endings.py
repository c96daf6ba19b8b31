"""Failed samples are retried a bounded number of times and then count as data; each counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine import Role
from harness.engines import scripted as scripted_engine
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.problems import benchmarks
from jobs.finished.grading import finish, finished_samples
from jobs.run import retries, trace_files
from jobs.run.endings import by_shard, compact, read_endings, read_state
from jobs.run.files import with_checksum
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_run, planned_ids
from warehouse.loading.runs import load_run

FIRST = benchmarks.load("demo")[0].text


def granted(run: RunFolder, at_most: int) -> tuple[int, int]:
    """How many failed samples are retried, and how many are out of retries."""
    failed = read_endings(run).failed.to_pylist()
    retried = retries.grant(run, failed, at_most)
    return len(retried), len(failed) - len(retried)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """While `on`, the engines' context is too small for the first problem: its samples fail."""
    made, switch = scripted_engine.dry_run_engine, {"on": True}

    def starting(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = made(role, settings)
        assert isinstance(engine, ScriptedEngine)
        refused = engine._admit

        def admit(request: str, prompt: list[int], tokens: int) -> None:
            refused(request, prompt, 0 if switch["on"] and FIRST in engine.tokenizer.decode(prompt) else tokens)

        monkeypatch.setattr(engine, "_admit", admit)
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", starting)
    return switch


@pytest.fixture
def failed_run(tmp_path: Path, narrow: dict[str, bool]) -> RunFolder:
    """Three of 24 samples failed, those of the first problem."""
    run = finished_run(tmp_path / "runs")
    assert finish(run) == 24
    return run


def verdicts(run: RunFolder) -> list[str]:
    [grades] = run.derived("grades")
    return [row["verdict"] for row in trace_files.read_rows(grades)]


def test_a_failed_sample_that_succeeds_on_its_second_try_counts_once(
    failed_run: RunFolder, narrow: dict[str, bool]
) -> None:
    database = failed_run.path.parent / "warehouse.duckdb"
    assert verdicts(failed_run).count("error") == 3
    load_run(failed_run, database)
    assert granted(failed_run, 2) == (3, 0)
    assert granted(failed_run, 2) == (0, 0), "nobody is granted two tries at once"
    assert by_shard(failed_run, read_endings(failed_run)).num_unfinished == 3
    narrow["on"] = False
    assert run_shard(str(failed_run.path), 0) == 3
    assert finish(failed_run) == 3, "only retried samples are graded again"
    assert sorted(s["sample_id"] for s, _ in finished_samples(failed_run)) == planned_ids(failed_run)
    assert "error" not in verdicts(failed_run)
    assert len(read_endings(failed_run).failed) == 0
    report = load_run(failed_run, database)
    assert (report.num_finished, report.num_graded, report.num_duplicates) == (24, 24, 0)
    assert finish(failed_run) == 0


def test_tries_are_bounded(failed_run: RunFolder) -> None:
    for expected in ((3, 0), (3, 0), (0, 3)):
        assert granted(failed_run, 2) == expected
        assert run_shard(str(failed_run.path), 0) == expected[0]
        finish(failed_run)
    ended = by_shard(failed_run, read_endings(failed_run))
    assert (ended.finished, ended.failed, ended.num_unfinished) == ([24], [3], 0)
    assert len(list(finished_samples(failed_run))) == 24


def test_the_journal_of_a_try_that_was_killed_is_kept(failed_run: RunFolder, narrow: dict[str, bool]) -> None:
    granted(failed_run, 1)
    narrow["on"] = False
    run_shard(str(failed_run.path), 0)
    part = failed_run.trace_files()[-1]
    journal = failed_run.journal_dir / f"{part.stem}.jsonl"
    [attempt] = [trace_files.read_metadata(part)["attempt"]]
    lines = (
        b'{"event":"attempt","format":3,%b' % attempt[1:].encode(),
        b'{"event":"start","trace":%b}' % _began(part).encode(),
    )
    journal.write_bytes(b"".join(with_checksum(line, journal.stem) for line in lines))
    part.unlink()  # as if it had been killed before any of them ended
    compact(failed_run)
    assert journal.exists()
    assert len(read_state(failed_run).unfinished) == 1


def _began(part: Path) -> str:
    import orjson

    row = trace_files.read_rows(part)[0]
    return orjson.dumps({**row, "steps": [], "calls": [], "stop_reason": None, "latency_seconds": 0.0}).decode()


def test_a_torn_grant_grants_nothing(failed_run: RunFolder) -> None:
    with failed_run.events_path.open("ab") as out:
        out.write(b'{"format":3,"event":"retries","at":1.0,"sam')
    assert by_shard(failed_run, read_endings(failed_run)).num_unfinished == 0
    assert granted(failed_run, 1) == (3, 0)
    assert by_shard(failed_run, read_endings(failed_run)).num_unfinished == 3
