"""Whatever is killed, the engine's other processes end within 10 s; why engines are spawned and never forked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from harness.engines import processes
from tests.requirements import skip_by_design

ROOT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 10.0


@dataclass
class Tree:
    """A running worker with its engine."""

    worker: subprocess.Popen[str]
    method: str
    pids: list[int]
    """The core's, then those of two ranks."""
    watching: list[bool]
    num_found: int
    """Processes that the worker recognizes as the engine's."""

    def processes(self) -> list[Any]:
        return [psutil.Process(pid) for pid in self.pids]

    def end(self) -> str:
        """End the core as vLLM does; returns what the worker says of its own task."""
        return self.worker.communicate("\n", timeout=60)[0].strip()


@contextlib.contextmanager
def started(log: Path, method: str, *, plugin: bool = True, forks: bool = True) -> Iterator[Tree]:
    flags = [str(log), method, str(int(plugin)), str(int(forks))]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.engines.engine_tree", *flags],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pids: list[int] = []
    try:
        assert worker.stdout is not None
        chosen, *reports, num_found = worker.stdout.readline().split()
        pids = [int(report.partition(":")[0]) for report in reports]
        yield Tree(worker, chosen, pids, [report.endswith(":1") for report in reports], int(num_found))
    finally:
        for pid in (worker.pid, *pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.communicate()


def killed(tree: Tree, victim: Literal["worker", "core", "rank"]) -> None:
    number = {"worker": tree.worker.pid, "core": tree.pids[0], "rank": tree.pids[2]}[victim]
    os.kill(number, signal.SIGKILL)
    if victim == "worker":
        tree.worker.wait()


def left_after(tree: Tree, victim: Literal["worker", "core", "rank"]) -> list[int]:
    """Kill one process; returns the engine's processes that still run 10 s later."""
    left = tree.processes()
    killed(tree, victim)
    deadline = time.monotonic() + LIMIT_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [process for process in left if is_running(process)]
    return [process.pid for process in left]


def is_running(process: Any) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)  # which holds no memory
    return False


def test_ending_a_forked_engine_cancels_its_worker(tmp_path: Path) -> None:
    """What vLLM's default start method on CUDA does to a worker; this is why the harness spawns."""
    if sys.version_info >= (3, 12):
        skip_by_design("Python resets the descriptor in forked processes since 3.12")
    with started(tmp_path / "log", "fork", forks=False) as tree:
        assert tree.end() == "CANCELLED"


def test_a_forked_engine_has_no_parent_watch_of_its_own(tmp_path: Path) -> None:
    """As vLLM takes its plug-ins for loaded in a forked process; this is why the harness spawns."""
    with started(tmp_path / "log", "fork", forks=False) as tree:
        assert not any(tree.watching)


@pytest.mark.parametrize("method", ["chosen", "fork"])
def test_an_engine_watches_its_parents_and_ends_without_cancelling_its_worker(tmp_path: Path, method: str) -> None:
    with started(tmp_path / "log", method) as tree:
        assert tree.method == ("spawn" if method == "chosen" else "fork")
        assert all(tree.watching)
        assert tree.num_found == 3
        assert tree.end() == "not cancelled"


@pytest.mark.parametrize("victim", ["worker", "core", "rank"])
@pytest.mark.parametrize("method", ["chosen", "fork"])
def test_whatever_is_killed_the_rest_of_the_engine_ends(
    tmp_path: Path, method: str, victim: Literal["worker", "core", "rank"]
) -> None:
    with started(tmp_path / "log", method) as tree:
        assert left_after(tree, victim) == []


@pytest.mark.needs_tool("proc")
def test_a_killed_worker_leaves_no_engine_where_the_plug_in_is_not_loaded(tmp_path: Path) -> None:
    with started(tmp_path / "log", "chosen", plugin=False) as tree:
        assert not any(tree.watching)
        assert left_after(tree, "worker") == []


@pytest.mark.needs_tool("proc")
def test_the_guard_ends_with_its_worker(tmp_path: Path) -> None:
    with started(tmp_path / "log", "chosen") as tree:
        [guard] = [p for p in psutil.Process(tree.worker.pid).children() if "guard.py" in " ".join(p.cmdline())]
        guard.terminate()
        assert guard.is_running(), "a signal to the whole process group must not end it before the worker"
        tree.end()
        psutil.wait_procs([guard], timeout=LIMIT_SECONDS)
        assert not guard.is_running()


def test_a_start_leaves_no_variable_of_vllm_to_the_next_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "of the user")
    monkeypatch.delenv("VLLM_USE_DEEP_GEMM_E8M0", raising=False)
    monkeypatch.delenv("VLLM_PORT", raising=False)
    with processes.starting(tmp_path / "engine.log", {"VLLM_PORT": "1", "VLLM_ATTENTION_BACKEND": None}):
        assert os.environ["VLLM_PORT"] == "1"
        os.environ["VLLM_USE_DEEP_GEMM_E8M0"] = "1"  # as vLLM's reader of configurations does
    assert os.environ["VLLM_ATTENTION_BACKEND"] == "of the user"
    assert not {"VLLM_PORT", "VLLM_USE_DEEP_GEMM_E8M0"} & os.environ.keys()
