"""Compiled code is kept on the node's own disk, apart for each worker, where nobody else can put files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.engines import caches
from harness.engines.settings import EngineSettings
from harness.engines.variables import variables

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own disk, with no folder taken, and an environment without settings of the user's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(caches, "_held", {})
    for name in [*caches._FOLDERS, "VLLM_RPC_BASE_PATH"]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


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
    program = "from harness.engines import caches; print(caches.variables()['VLLM_CACHE_ROOT'], flush=True); input()"
    folders = []
    for held in (True, False):
        worker = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(disk)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        folders.append(Path(worker.stdout.readline().strip()))
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
        assert not caches.variables().keys() & caches._FOLDERS.keys()


def test_sockets_have_paths_that_are_short_enough(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "VLLM_RPC_BASE_PATH" not in caches.variables() or len(str(disk)) > 60
    long = disk / ("job-" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert caches.variables()["VLLM_RPC_BASE_PATH"] == "/tmp"
