"""Progress is shown while a run is at work, wherever its workers are, and what they are at while engines start."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from harness.engine import Role
from harness.engines import processes, scripted
from harness.trace import Trace
from jobs.run import submissions
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import Attempt
from jobs.run.submissions import Submission
from jobs.submission.here import Job, start_workers
from jobs.watch import follow
from jobs.watch.follow import Follower
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.runs import plan, planned_ids, shown
from tests.jobs.slurm.fake import FakeSlurm


class _InProcessJob:
    """A job in the launcher's own process: it works while `done` is called."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.cancelled = run, False

    def done(self) -> bool:
        run_shard(str(self.run.path), 0)
        return True

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize(("terminal", "elsewhere"), [(False, False), (True, False), (True, True)])
def test_a_run_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, elsewhere: bool
) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "0.02")
    monkeypatch.setattr(follow, "_PLAIN_LINE_SECONDS", 0.1)
    monkeypatch.setattr(follow, "_POLL_SECONDS", 0.1)
    text, run = io.StringIO(), plan(tmp_path)
    console = Console(file=text, force_terminal=terminal, width=120)
    follow.follow([run], [cast(Job, _InProcessJob(run))], console, elsewhere=elsewhere)
    counts = [int(count) for count in re.findall(r"(\d+)/24 samples", text.getvalue())]
    assert set(counts) - {0, 24}, "while it was under way"
    assert (counts[0], counts[-1], sorted(counts)) == (0, 24, counts)
    assert text.getvalue().endswith("24/24 samples\n"), "nothing else is known for certain at the end"
    assert ("\x1b[" in text.getvalue()) == elsewhere, "a line that renews itself would draw over the worker's own lines"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_interruption_ends_the_jobs_and_the_display(tmp_path: Path, *, elsewhere: bool) -> None:
    class Interrupted(_InProcessJob):
        def done(self) -> bool:
            raise KeyboardInterrupt

    run = plan(tmp_path)
    job = Interrupted(run)
    with pytest.raises(KeyboardInterrupt):
        follow.follow([run], [cast(Job, job)], Console(file=io.StringIO()), elsewhere=elsewhere)
    assert job.cancelled
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_killed_worker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "5")
    run = plan(tmp_path)
    [job] = start_workers(run, [(run, [0])])
    job.process.kill()
    assert job.exception() is not None
    assert job.done()


@pytest.mark.usefixtures("journals_stay")
def test_progress_follows_the_journal_and_ends_complete(tmp_path: Path) -> None:
    run = plan(tmp_path)
    follower = Follower(run)
    assert follower.poll().total == 24
    journal = JournalWriter(run.journal_dir / "0.jsonl", Attempt("0", run.path.name, 0, "host", 1, 0.0, None))
    journal.start(Trace(planned_ids(run)[0], "demo/0", 0, seed=1))
    journal.close()
    assert follower.poll().line.endswith("· 1 in flight")
    run_shard(str(run.path), 0)
    progress = follower.poll()
    assert len(progress.ended) == 24
    assert progress.pace.rates(time.time())[0]["draft"] > 0
    assert num_unfinished(run) == 0


INITIALIZING = (
    "(EngineCore pid=1) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: enforce_eager={}"
)
LOADING = "(Worker pid=2) INFO [cpu_model_runner.py:68] Starting to load model /models/target..."
WEIGHTS = "target: loading weights"
LOADED = "(Worker pid=2) INFO [default_loader.py:501] Loading weights took 0.01 seconds"


def log_of(run: RunFolder, shard: int, role: Role = "target") -> Path:
    path = run.logs_dir / f"shard-{shard}" / f"{role}.log"
    path.parent.mkdir(exist_ok=True)
    processes.log_start(path, role)
    return path


def add(log: Path, *lines: str) -> None:
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


PHASES = [
    (INITIALIZING.format(False), "target: starting vLLM's processes"),
    (LOADING, WEIGHTS),
    ("Loading safetensors checkpoint shards:   0% Completed | 0/4", "target: loading weights (0 %)"),
    ("Loading … checkpoint shards:  75% Completed", "target: loading weights (75 %)"),
    (LOADED, "target: compiling and measuring memory"),
    ("Capturing CUDA graphs (decode, FULL):   3%|█ | 1/35\rCapturing CUDA graphs (decode, FULL):  40%|██ | 14/35",
     "target: capturing CUDA graphs (40 %)"),
    ("INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.77 s",
     "target: first requests of the warm-up"),
]  # fmt: skip
"""Lines of an engine's log, and what the progress line says behind each."""


def test_the_progress_line_follows_the_start_of_an_engine_through_its_phases(tmp_path: Path) -> None:
    run = plan(tmp_path)
    follower, log = Follower(run), log_of(run, 0)
    for line, phase in PHASES:
        add(log, line)
        assert follower.poll().line.endswith(f" · {phase}")
    eager = log_of(run, 0, "draft")
    add(eager, INITIALIZING.format(True), LOADED)
    assert "draft: measuring memory" in follower.poll().line
    processes.log_end_of_start(log, "target", is_ready=True)
    processes.log_end_of_start(eager, "draft", is_ready=True)
    assert "draft" not in follower.poll().line


def test_much_output_of_an_engine_does_not_hide_its_start(tmp_path: Path) -> None:
    log = log_of(plan(tmp_path), 0)
    add(log, LOADING, *["a warning of a library"] * 10_000)
    assert log.stat().st_size > 128 << 10
    assert processes.start_phase(log) == WEIGHTS
    processes.log_end_of_start(log, "target", is_ready=True)
    assert processes.start_phase(log) is None


def test_a_worker_is_gone_where_only_a_thread_has_its_number(tmp_path: Path) -> None:
    log, over = log_of(plan(tmp_path), 0), threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    log.write_text(log.read_text().replace(f"process {os.getpid()} on", f"process {thread.native_id} on"))
    assert processes.start_phase(log) is None
    over.set()
    thread.join()


def test_a_start_that_failed_was_killed_or_is_of_an_earlier_launch_is_not_waited_for(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=3)
    failed, killed, earlier = (log_of(run, shard) for shard in range(3))
    processes.log_end_of_start(failed, "target", is_ready=False)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    killed.write_text(killed.read_text().replace(f"process {os.getpid()} on", f"process {ended.pid} on"))
    os.utime(earlier, (time.time() - 60,) * 2)
    assert "target" not in Follower(run).poll().line
    add(earlier, LOADING)  # it goes on after all
    assert Follower(run).poll().line.endswith(WEIGHTS)


def test_status_names_the_phase_of_a_job_on_another_node(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = plan(tmp_path, shards=2)
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    rows = [f"run.0|{index}|42|4{index}|RUNNING|n2|None|0|root|1:20:05" for index in range(2)]
    slurm.prints(squeue="\n".join(rows), sacct="")
    log = log_of(run, 1)
    log.write_text(log.read_text().replace(socket.gethostname(), "n2").replace(f"process {os.getpid()}", "process 1"))
    add(log, LOADING)
    assert [shard.starting for shard in status(run).shards] == ["", WEIGHTS]
    assert f"80 min; {WEIGHTS}" in shown(run)
    journal = run.journal_dir / "20261123T125216.123456-n2-7-deal0-shard1.jsonl"
    journal.parent.mkdir(exist_ok=True)
    journal.write_bytes(b"")
    assert status(run).shards[1].starting == "", "a worker with a journal is at work, so its engines' logs are not read"
    journal.unlink()
    os.utime(log, (time.time() - 5_000,) * 2)  # that of the start before the requeue
    assert [shard.starting for shard in status(run).shards] == ["", ""]


def test_status_knows_the_workers_of_this_machine_by_their_locks(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    assert [shard.state for shard in status(run).shards] == ["stopped", "stopped"]
    log_of(run, 1)
    with run.shard_lock(1):
        now = status(run)
        assert [shard.state for shard in now.shards] == ["stopped", "running"]
        assert now.may_progress
        assert "importing" in shown(run)
    assert [shard.state for shard in status(run).shards] == ["stopped", "stopped"]
    assert "importing" not in shown(run)


@pytest.mark.needs_tool("vllm")
def test_the_installed_vllm_prints_what_tells_the_phases() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    sources = [
        path.read_text()
        for name in ("v1", "model_executor/model_loader", "compilation")
        for path in (root / name).rglob("*.py")
    ]
    for line in processes.PHASES:
        assert any(line in source for source in sources), line
    assert any("checkpoint shards" in source and "% Completed" in source for source in sources)
