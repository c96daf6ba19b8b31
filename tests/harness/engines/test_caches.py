"""Compiled code and temporary files are on the node's disk, apart for each worker, where nobody else can put files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engines import caches, shared_memory
from harness.engines.settings import EngineSettings
from harness.engines.variables import variables

ROOT = Path(__file__).resolve().parents[3]


_PRINT = "from harness.engines import caches; print(caches.variables()[{name!r}], flush=True); input()"


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
    monkeypatch.setattr(caches, "_held", {})
    monkeypatch.setattr(caches, "_SHORT", str(short))
    for name in [*caches.FOLDERS, "VLLM_RPC_BASE_PATH"]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def started(disk: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a worker that prints one of its variables and ends after a line of input; returns that folder, too."""
    worker = subprocess.Popen(
        [sys.executable, "-c", _PRINT.format(name=name)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(disk)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    return worker, Path(worker.stdout.readline().strip())


def test_every_cache_is_below_a_folder_of_the_user_on_the_nodes_disk(disk: Path) -> None:
    chosen = variables(EngineSettings())
    root = disk / f"speculative-harness-{os.getuid()}"
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(chosen[name] or "").is_relative_to(root / "worker-0")
    assert root.stat().st_mode & 0o777 == 0o700
    assert caches.variables() == {name: chosen[name] for name in caches.variables()}, "the same in every start"


def test_the_users_own_setting_is_kept(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"TRITON_CACHE_DIR": "/elsewhere", "VLLM_ENGINE_READY_TIMEOUT_S": "60", "VLLM_HOST_IP": "10.0.0.1"}
    for name, text in own.items():
        monkeypatch.setenv(name, text)
    chosen = variables(EngineSettings())
    assert not own.keys() & chosen.keys()
    assert "VLLM_CACHE_ROOT" in chosen


def test_two_workers_have_a_folder_each_and_a_later_one_finds_the_first(disk: Path) -> None:
    folders = []
    for held in (True, False):
        worker, folder = started(disk, "VLLM_CACHE_ROOT")
        folders.append(folder)
        if held:
            assert Path(caches.variables()["VLLM_CACHE_ROOT"]) != folders[0]
        worker.communicate("\n")
    assert folders[0] == folders[1]
    assert (folders[0] / "modelinfos").resolve() == disk / f"speculative-harness-{os.getuid()}" / "modelinfos"


@pytest.mark.parametrize("mode", [0o777, 0o720, None])
def test_a_folder_that_others_may_write_to_is_not_used(disk: Path, mode: int | None) -> None:
    root = disk / f"speculative-harness-{os.getuid()}"
    if mode is None:
        (disk / "elsewhere").mkdir()
        root.symlink_to(disk / "elsewhere")
    else:
        root.mkdir()
        root.chmod(mode)
    folder = Path(caches.variables()["VLLM_CACHE_ROOT"])
    assert not folder.is_relative_to(root)
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.needs_tool("root")
def test_a_folder_of_another_user_is_not_used(disk: Path) -> None:
    root = disk / f"speculative-harness-{os.getuid()}"
    root.mkdir(mode=0o700)
    os.chown(root, 12345, 12345)
    assert not Path(caches.variables()["VLLM_CACHE_ROOT"]).is_relative_to(root)


def test_a_disk_without_room_leaves_the_usual_folders(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(disk / "absent"))
    with pytest.warns(UserWarning, match="home directory"):
        assert not caches.variables().keys() & caches.FOLDERS.keys()


def test_sockets_have_paths_that_are_short_enough(disk: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = disk / ("job-" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    chosen = caches.variables()
    folder = Path(chosen["VLLM_RPC_BASE_PATH"])
    assert folder.is_relative_to(short)
    assert Path(chosen["TMPDIR"]).is_relative_to(long)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "00000000-0000-0000-0000-000000000000"))
    assert len(f"/tmp/speculative-harness-{2**32}/worker-63/tmp") <= caches._MAX_SOCKET_FOLDER_CHARACTERS


def test_temporary_files_are_in_a_folder_that_goes_with_the_worker(disk: Path, short: Path) -> None:
    workers = [started(short, name) for name in ("TMPDIR", "VLLM_RPC_BASE_PATH")]
    folders = [folder for _, folder in workers]
    assert folders[0] != folders[1], "each worker has its own"
    for worker, folder in workers:
        assert folder.is_relative_to(short)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "vllm_dist_0").touch()
        worker.communicate("\n")
    assert not any(folder.exists() for folder in folders)
    assert all((folder.parent / "lock").exists() for folder in folders), "compiled code stays"


def test_what_killed_workers_leave_is_removed_by_the_next_one(short: Path) -> None:
    (first, _), (second, of_second), (third, of_third) = (started(short, "TMPDIR") for _ in range(3))
    (of_second / "vllm_dist_0").touch()
    (of_third / "vllm_dist_0").touch()
    second.send_signal(signal.SIGKILL)
    second.communicate()
    first.communicate("\n")
    next_one, of_next = started(short, "TMPDIR")
    assert of_next != of_second, "the next worker has the folder of the first"
    assert not of_second.exists()
    assert list(of_third.iterdir()), "a worker that runs keeps its own"
    for worker in (third, next_one):
        worker.communicate("\n")


def test_a_process_that_is_forked_leaves_the_folder_to_its_parent(disk: Path) -> None:
    folder = Path(caches.variables()["TMPDIR"])
    caches._remove(folder, os.getpid() + 1)
    assert folder.exists()
    caches._remove(folder, os.getpid())
    assert not folder.exists()


_SHARE = """
import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from harness.engines import caches, shared_memory
caches.variables()
segment = SharedMemory(create=True, size=4096)
resource_tracker.unregister(segment._name, "shared_memory")  # as if it had been killed
caches.note_shared_memory([os.getpid()])
print(segment.name, flush=True)
input()
"""


def test_shared_memory_of_a_killed_worker_is_removed_by_the_next_one(short: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", _SHARE],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(short)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    segment = Path("/dev/shm") / worker.stdout.readline().strip()
    worker.kill()
    worker.communicate()
    assert segment.is_file()
    next_one, _ = started(short, "TMPDIR")
    next_one.communicate("\n")
    assert not segment.exists()


def test_only_listed_segments_are_removed(short: Path) -> None:
    names = ["psm_0123abcd", "psm_0123abce", "psm_other", "elsewhere"]
    for name in names:
        (short / name).touch()
    (short / shared_memory.LIST).write_text("psm_0123abcd\n../elsewhere\nelsewhere\npsm_other\npsm_ffffffff\n")
    shared_memory.remove_noted(short, short)
    assert [name for name in names if (short / name).exists()] == names[1:]


def test_segments_that_no_process_uses_are_reported_and_stay(tmp_path: Path) -> None:
    names = ["psm_00000001", "psm_00000002", "psm_00000003", "sem.other"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    for name in names[:2] + names[3:]:
        os.utime(tmp_path / name, (0, 0))
    maps = tmp_path / "proc" / "17" / "maps"
    maps.parent.mkdir(parents=True)
    maps.write_text("7f00-7f01 rw-s 00000000 00:17 5  /dev/shm/psm_00000002\n")
    assert shared_memory.unused(tmp_path, tmp_path / "proc") == [tmp_path / "psm_00000001"]
    assert all((tmp_path / name).exists() for name in names)
