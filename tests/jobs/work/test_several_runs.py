"""A worker with shards of several runs: engines stay open between them, and each run is what it would be alone."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied, Role
from harness.engines import scripted as scripted_engine
from harness.engines.pool import EnginePool
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from jobs.run.endings import compact, num_unfinished
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.work import worker
from jobs.work.worker import run_parts
from tests.jobs.runs import attempts, finished_ids, plan, planned_ids, texts
from tests.slurm.ledger import Witness

ROLES = ("draft", "target")


def three_runs(folder: Path, **options: Any) -> list[RunFolder]:
    """Return two methods with the pair and between them the target alone."""
    runs = [plan(folder, drafts=2, **options), plan(folder, method="vanilla", **options)]
    return [*runs, plan(folder, method="specreason", **options)]


def parts(*runs: RunFolder) -> list[tuple[str, list[int]]]:
    return [(str(run.path), list(range(run.num_shards()))) for run in runs]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEngine]:
    scripted, engines = scripted_engine.dry_run_engine, []

    def recorded(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = scripted(role, settings)
        assert isinstance(engine, ScriptedEngine)
        engines.append(engine)
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", recorded)
    return engines


def breaking(engine: ScriptedEngine, after: int, act: Callable[[], None]) -> None:
    """Let an engine act at each text it writes from its call with this number on."""
    write = engine.write

    def written(*arguments: Any) -> Any:
        if len(engine.requests) >= after:
            act()
        return write(*arguments)

    engine.write = written


def test_every_run_is_finished_and_a_start_is_counted_once(tmp_path: Path, started: list[ScriptedEngine]) -> None:
    runs = three_runs(tmp_path)
    assert run_parts(parts(*runs)) == 3 * 24
    assert len(started) == 3, "the pair once for both methods, the target alone once"
    assert all(engine.closed for engine in started)
    assert [finished_ids(run) == planned_ids(run) for run in runs] == [True] * 3
    [first], [alone], [second] = map(attempts, runs)
    for role in ROLES:
        assert first["engines"][role]["engine_start"] == second["engines"][role]["engine_start"]
    assert alone["engines"]["target"]["engine_start"] != first["engines"]["target"]["engine_start"]
    starts = {
        a["engines"][r]["engine_start"]: a["engines"][r] for a in (first, alone) for r in a["engines"] if r in ROLES
    }
    total = sum(a["engines"]["startup_seconds"] for a in (first, alone, second))
    assert total == pytest.approx(sum(start["engine_start_seconds"] for start in starts.values()))
    assert second["engines"]["startup_seconds"] == 0


def test_a_run_that_fails_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[ScriptedEngine]
) -> None:
    first, broken, last = plan(tmp_path, drafts=2), plan(tmp_path, drafts=3), plan(tmp_path, method="specreason")
    lease = EnginePool.lease

    async def dying(pool: Any, *arguments: Any) -> Any:
        engines = await lease(pool, *arguments)
        if broken.path in arguments[1].parents:

            def die() -> None:
                raise EngineDied("out of memory")

            breaking(started[0], len(started[0].requests) + 30, die)
        return engines

    monkeypatch.setattr(EnginePool, "lease", dying)
    with pytest.raises(worker.Unfinished, match=f"^1 of 3 runs failed: {broken.path.name}: out of memory$"):
        run_parts(parts(first, broken, last))
    assert finished_ids(first) == planned_ids(first)
    assert finished_ids(last) == planned_ids(last)
    assert len(started) == 4, "what a failed run leaves behind is not handed on"
    monkeypatch.undo()
    run_parts(parts(first, broken, last))
    assert finished_ids(broken) == planned_ids(broken)


def test_the_time_limit_ends_the_run_under_way_and_leaves_the_rest_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = three_runs(tmp_path)
    requeued: list[str] = []

    class SlurmEnds(BaseException):
        """Slurm ends the process some time after the requeue."""

    def requeue(job: str) -> None:
        requeued.append(job)
        raise SlurmEnds

    monkeypatch.setattr(worker, "_ends_at", time.time)
    monkeypatch.setattr(client, "this_job", lambda: "7_0")
    monkeypatch.setattr(client, "requeue", requeue)
    with pytest.raises(SlurmEnds):
        run_parts(parts(*runs))
    assert requeued == ["7_0"]
    assert 1 <= sum(len(finished_ids(run)) for run in runs) < 24
    assert [run.trace_files() for run in runs[1:]] == [[], []], "no further run was started"
    monkeypatch.setattr(worker, "_ends_at", lambda: None)
    run_parts(parts(*runs))
    assert [finished_ids(run) == planned_ids(run) for run in runs] == [True] * 3


_NUM_KILLS = 3
_SLOW_WORKER = """
import os, sys
os.environ["HARNESS_SCRIPTED_SECONDS"] = "0.01"
from jobs.work.worker import run_parts
run_parts([(folder, [0, 1]) for folder in sys.argv[1:]])
"""


def one_pair(folder: Path) -> list[RunFolder]:
    methods = [{"drafts": 2}, {"drafts": 3}, {"method": "specreason"}]
    return [plan(folder, samples=2, shards=2, **options) for options in methods]  # type: ignore[arg-type]


def num_events(journals: set[Path]) -> int:
    """Return the number of lines in these journals; one may be compacted meanwhile."""
    number = 0
    for path in journals:
        with contextlib.suppress(FileNotFoundError):
            number += path.read_bytes().count(b"\n")
    return number


def test_whatever_moment_a_shared_worker_is_killed_at_every_sample_exists_once(tmp_path: Path) -> None:
    dice = random.Random(20261123)
    undisturbed = one_pair(tmp_path / "undisturbed")
    run_parts([(str(run.path), [0, 1]) for run in undisturbed])

    runs = one_pair(tmp_path / "killed")
    command = [sys.executable, "-c", _SLOW_WORKER, *(str(run.path) for run in runs)]
    witnesses = [Witness(run) for run in runs]
    kills = steps = 0
    while any(num_unfinished(run) for run in runs):
        before = {path for run in runs for path in run.journals()}
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        events = dice.randint(1, 60) if kills < _NUM_KILLS else math.inf
        while worker.poll() is None:
            if num_events({path for run in runs for path in run.journals()} - before) >= events:
                os.kill(worker.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        worker.wait()
        for witness in witnesses:
            witness.look()
            steps += witness.steps
    for run, witness, other in zip(runs, witnesses, undisturbed, strict=True):
        compact(run)
        assert Counter(finished_ids(run)) == Counter(planned_ids(run))
        assert texts(run) == texts(other), "a resumed sample draws the same steps as an undisturbed one"
        assert witness.lost() == 0, "no recorded call was made again"
    assert steps, "kills came in the middle of samples"
