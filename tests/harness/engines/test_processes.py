"""Processes of an engine: none outlives its worker, and their files are on the node's disk, apart for each worker."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.engines import processes
from harness.engines.settings import EngineSettings
from harness.engines.vllm import variables
from jobs.run.folder import RunFolder
from jobs.submission import code_archive

ROOT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 10.0


@contextlib.contextmanager
def engine_tree(log: Path, code: Path = ROOT) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A running worker, and the core and two ranks of its engine; `code`: what it imports the project from."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.engines.engine_tree", str(log)],
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": f"{code}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pids: list[int] = []
    try:
        assert worker.stdout is not None
        num_found, *pids = map(int, worker.stdout.readline().split())
        assert num_found == len(pids) == 3
        yield worker, [psutil.Process(pid) for pid in pids]
    finally:
        for pid in (worker.pid, *pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.communicate()


@pytest.mark.needs_tool("proc")
def test_a_killed_worker_leaves_no_process_of_its_engine_although_its_code_was_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / code_archive.take(RunFolder(tmp_path))
    with engine_tree(tmp_path / "log", archive) as (worker, engine):
        archive.unlink()
        worker.kill()
        assert psutil.wait_procs(engine, timeout=LIMIT_SECONDS)[1] == []


@pytest.mark.needs_tool("proc")
def test_a_worker_ends_all_processes_of_its_engine_and_its_guard_ends_with_it(tmp_path: Path) -> None:
    with engine_tree(tmp_path / "log") as (worker, engine):
        children = psutil.Process(worker.pid).children()
        [guard] = [process for process in children if f"{processes.MARK}={worker.pid}-" in " ".join(process.cmdline())]
        guard.terminate()
        time.sleep(0.2)
        assert guard.is_running(), "a signal to the whole process group must not end it before the worker"
        assert worker.communicate("\n", timeout=LIMIT_SECONDS)[0] == "0\n"
        assert not any(process.is_running() for process in engine)
        assert psutil.wait_procs([guard], timeout=LIMIT_SECONDS)[1] == []


def test_a_start_leaves_no_variable_of_vllm_to_the_next_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "own")
    monkeypatch.delenv("VLLM_USE_DEEP_GEMM_E8M0", raising=False)
    monkeypatch.delenv("VLLM_PORT", raising=False)
    with processes.starting(tmp_path / "engine.log", {"VLLM_PORT": "1", "VLLM_ATTENTION_BACKEND": None}):
        assert os.environ["VLLM_PORT"] == "1"
        os.environ["VLLM_USE_DEEP_GEMM_E8M0"] = "1"  # as vLLM's reader of configurations does
    assert os.environ["VLLM_ATTENTION_BACKEND"] == "own"
    assert not {"VLLM_PORT", "VLLM_USE_DEEP_GEMM_E8M0"} & os.environ.keys()


def test_a_guard_refuses_an_entry_that_is_not_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_kill_marked", lambda entry: pytest.fail("it would kill"))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    for entry in (b"", b"PATH=", b"HARNESS_ENGINE=", b"HARNESS_ENGINE=1-", b"HARNESS_ENGINE=12-"):
        with pytest.raises(ValueError, match="not an engine mark of worker 123"):
            processes._guard(123, entry)


_PRINT = "from harness.engines import processes; print(processes.node_variables()['TMPDIR'], flush=True); input()"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a name that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def disk(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own disk, with no folder taken, and an environment without settings of the user's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(processes, "_held", {})
    monkeypatch.setattr(processes, "_SHORT", str(short))
    for name in [*processes.FOLDERS, "VLLM_RPC_BASE_PATH"]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def started(disk: Path, code: str = _PRINT) -> tuple[subprocess.Popen[str], Path]:
    """Start a worker that prints a folder or file of its own and ends after a line of input; returns that, too."""
    worker = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(disk)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    return worker, Path(worker.stdout.readline().strip())


def test_a_model_in_the_process_of_the_core_has_a_thread_per_core_of_its_engine() -> None:
    chosen = variables(EngineSettings(device="cpu", cpu_cores="0,3"))
    assert (chosen["OMP_NUM_THREADS"], chosen["GOMP_CPU_AFFINITY"]) == ("2", "0 3")
    ranks = variables(EngineSettings(device="cpu", cpu_cores="0|3", tensor_parallel=2))
    assert not ranks.keys() & {"OMP_NUM_THREADS", "GOMP_CPU_AFFINITY"}, "vLLM binds the threads of ranks"


def test_every_cache_is_below_a_folder_of_the_user_on_the_nodes_disk(disk: Path) -> None:
    chosen = variables(EngineSettings())
    root = disk / f"speculative-harness-{os.getuid()}"
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(chosen[name] or "").is_relative_to(root / "worker-0")
    assert root.stat().st_mode & 0o777 == 0o700
    assert processes.node_variables() == {name: chosen[name] for name in processes.node_variables()}, (
        "the same in every start"
    )


def test_two_workers_have_a_folder_each_and_a_later_one_finds_the_first_without_its_temporary_files(disk: Path) -> None:
    folders = []
    for held in (True, False):
        worker, folder = started(disk)
        folders.append(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "vllm_dist_0").touch()
        if held:
            assert Path(processes.node_variables()["TMPDIR"]).parent != folder.parent
        worker.communicate("\n")
        assert not folder.exists()
    assert folders[0].parent == folders[1].parent
    assert (folders[0].parent / "lock").exists(), "compiled code stays"


@pytest.mark.parametrize("mode", [0o777, 0o720, None])
def test_a_folder_that_others_may_write_to_is_not_used(disk: Path, mode: int | None) -> None:
    root = disk / f"speculative-harness-{os.getuid()}"
    if mode is None:
        (disk / "elsewhere").mkdir()
        root.symlink_to(disk / "elsewhere")
    else:
        root.mkdir()
        root.chmod(mode)
    with pytest.warns(UserWarning, match=f"home directory, because {root} is not a folder that only this user"):
        assert not processes.node_variables().keys() & processes.FOLDERS.keys()


def test_sockets_have_paths_that_are_short_enough(disk: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = disk / ("job-" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    chosen = processes.node_variables()
    folder = Path(chosen["VLLM_RPC_BASE_PATH"])
    assert folder.is_relative_to(short)
    assert Path(chosen["TMPDIR"]).is_relative_to(long)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "00000000-0000-0000-0000-000000000000"))
    assert len(f"/tmp/speculative-harness-{2**32}/worker-63/tmp") <= processes._MAX_SOCKET_FOLDER_CHARACTERS


def test_what_killed_workers_leave_is_removed_by_the_next_one(short: Path) -> None:
    (first, of_first), (second, of_second) = (started(short) for _ in range(2))
    (of_first / "vllm_dist_0").touch()
    (of_second / "vllm_dist_0").touch()
    first.kill()
    first.communicate()
    next_one, of_next = started(short)
    assert not (of_first / "vllm_dist_0").exists()
    assert of_next != of_second
    assert list(of_second.iterdir()), "a worker that runs keeps its own"
    for worker in (second, next_one):
        worker.communicate("\n")


def test_only_listed_segments_are_removed(short: Path) -> None:
    names = ["psm_0123abcd", "psm_0123abce", "psm_other", "elsewhere"]
    for name in names:
        (short / name).touch()
    (short / processes.SEGMENTS_LIST).write_text("psm_0123abcd\n../elsewhere\nelsewhere\npsm_other\npsm_ffffffff\n")
    processes.remove_noted_segments(short, short)
    assert [name for name in names if (short / name).exists()] == names[1:]


_SHARE = """
import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from harness.engines import processes
processes.node_variables()
segment = SharedMemory(create=True, size=4096)
resource_tracker.unregister(segment._name, "shared_memory")  # as if it had been killed
processes.note_shared_memory([os.getpid()])
print(f"/dev/shm/{segment.name}", flush=True)
input()
"""


def test_shared_memory_of_a_killed_worker_is_removed_by_the_next_one(short: Path) -> None:
    worker, segment = started(short, _SHARE)
    worker.kill()
    worker.communicate()
    assert segment.is_file()
    next_one, _ = started(short)
    next_one.communicate("\n")
    assert not segment.exists()
