"""Progress and status name what a worker is at while its engines start."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli.screen import Screen
from harness.engine import Role
from harness.engines import processes
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.watch.follow import Follower
from jobs.watch.status import page, status
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import FakeSlurm

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


def shown(run: RunFolder) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    Screen(console).show(page(status(run)))
    return console.export_text()


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
