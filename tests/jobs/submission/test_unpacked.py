"""The submitted code on a node's disk: unpacked once for all jobs there, whole or absent, and gone after the last."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from jobs.submission import snapshot, unpacked

NUM_FILES = 40


def archive_of(path: Path, text: str) -> Path:
    """Write a small archive that can unpack itself, with as many files that hold a text."""
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("jobs/__init__.py", "jobs/submission/__init__.py"):
            packed.writestr(name, "")
        packed.write(unpacked.__file__, "jobs/submission/unpacked.py")
        for number in range(NUM_FILES):
            packed.writestr(f"files/{number}", text)
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return archive_of(tmp_path / "code $HOME `echo no`.zip", "first\n")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The folder that TMPDIR names."""
    folder = tmp_path / "node's disk"
    folder.mkdir()
    return folder


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(archive: Path, disk: Path) -> Iterator[Start]:
    """Return a function that starts a batch script, which prints its folder and then reads from its input."""
    begun: list[subprocess.Popen[str]] = []

    def started(body: str = "read -r line", code: Path = archive, **variables: str) -> subprocess.Popen[str]:
        setup = snapshot.running(code, sys.executable, {"setup": ["set -e"]})["setup"]
        script = "\n".join([*setup, 'stat -c "%i %n" "$HARNESS_CODE"', body, "exit 7"])
        begun.append(
            subprocess.Popen(
                ["bash", "-c", script],
                env={"PATH": "/usr/bin:/bin", "TMPDIR": str(disk), "SLURMD_NODENAME": "n1", **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return begun[-1]

    yield started
    for process in begun:
        process.kill()
        process.communicate()


def folder_of(process: subprocess.Popen[str]) -> tuple[str, Path]:
    """Wait for a script to have its folder; return the folder's inode and path."""
    assert process.stdout is not None
    inode, _, name = process.stdout.readline().rstrip("\n").partition(" ")
    assert name, process.communicate()[1]
    return inode, Path(name)


def end(process: subprocess.Popen[str]) -> None:
    """Let a script end, and check that it did as it would have without the folder."""
    _, errors = process.communicate("go on\n")
    assert (process.returncode, errors) == (7, "")


def is_whole(folder: Path) -> bool:
    return len(list((folder / "files").iterdir())) == NUM_FILES


def test_jobs_of_a_node_share_one_folder_that_the_last_one_removes(start: Start, disk: Path) -> None:
    jobs = [start() for _ in range(4)]
    [(_, folder)] = {folder_of(job) for job in jobs}
    assert is_whole(folder)
    for job in jobs[1:]:
        end(job)
        assert is_whole(folder), "another job still runs it"
    end(jobs[0])
    assert list(disk.iterdir()) == []


def test_jobs_that_begin_and_end_at_any_moment_always_have_all_files(start: Start, disk: Path) -> None:
    check = f'for i in $(seq 8); do [ "$(ls "$HARNESS_CODE/files" | wc -l)" = {NUM_FILES} ] || exit 1; done'
    moments, jobs = random.Random(0), []
    for _ in range(16):
        jobs.append(start(check))
        time.sleep(moments.random() * 0.06)
    for job in jobs:
        end(job)
    assert list(disk.iterdir()) == []


def test_a_job_never_waits_for_the_end_of_one_that_began_at_the_same_moment(archive: Path, disk: Path) -> None:
    shared = disk / f"{unpacked.PREFIX}0-n1-123"
    first, second = (os.open(shared.with_name(f"{shared.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    fcntl.flock(first, fcntl.LOCK_SH)  # it has looked, and has found no folder yet
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(unpacked.take, archive, digest, shared, second)
        wait([waiting], timeout=0.2)
        assert unpacked.take(archive, digest, shared, first) == shared
        assert waiting.result(timeout=20) == shared
    for lock in (first, second):
        unpacked.leave(shared, lock)
        os.close(lock)
    assert list(disk.iterdir()) == []


def test_what_killed_jobs_left_is_removed_by_the_next_and_what_is_in_use_stays(
    start: Start, disk: Path, tmp_path: Path
) -> None:
    others = [archive_of(tmp_path / f"{name}.zip", name) for name in ("killed", "in use")]
    killed, using = (start(code=code) for code in others)
    _, left = folder_of(killed)
    _, used = folder_of(using)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert is_whole(left)
    job = start()
    _, folder = folder_of(job)
    assert {path.name for path in disk.iterdir()} == {n for f in (folder, used) for n in (f.name, f"{f.name}.lock")}
    for process in (job, using):
        end(process)
    assert list(disk.iterdir()) == []


def test_a_folder_that_a_killed_job_has_half_unpacked_is_not_used(start: Start, disk: Path) -> None:
    job = start()
    _, folder = folder_of(job)
    end(job)
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir()
    (partial / "half").touch()
    again = start()
    assert folder_of(again)[1] == folder
    assert is_whole(folder)
    assert not (folder / "half").exists()
    end(again)
    assert list(disk.iterdir()) == []


def test_a_worker_keeps_the_folder_after_its_script_was_killed(start: Start, disk: Path) -> None:
    job = start()
    _, folder = folder_of(job)
    program = "import sys, pathlib; from jobs.submission import unpacked; unpacked.hold(pathlib.Path(sys.argv[1]))"
    worker = subprocess.Popen(
        [sys.executable, "-c", f"{program}; print(flush=True); input()", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "\n"
    job.kill()
    job.wait()
    assert not unpacked.remove_if_unused(folder), "a worker runs it"
    assert is_whole(folder)
    worker.communicate("\n")
    assert unpacked.remove_if_unused(folder)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("reason", ["writable for others", "no locks"])
def test_where_a_folder_cannot_be_shared_safely_a_job_has_its_own(start: Start, disk: Path, reason: str) -> None:
    first = start()
    _, shared = folder_of(first)
    end(first)
    if reason == "no locks":  # a folder in its place cannot be opened for writing, as a file of another user
        shared.with_name(f"{shared.name}.lock").mkdir()
    else:
        shared.mkdir()
        shared.chmod(0o777)
    jobs = [start(), start()]
    folders = {folder_of(job)[1] for job in jobs}
    assert len(folders) == 2
    assert shared not in folders
    assert all(map(is_whole, folders))
    for job in jobs:
        end(job)
    assert not any(folder.exists() for folder in folders)


def test_an_archive_that_is_not_what_was_submitted_is_refused(archive: Path, disk: Path) -> None:
    shared = disk / "harness-code-0-n1-1"
    with pytest.raises(unpacked.Damaged, match="is not the archive that was submitted"):
        unpacked.take(archive, "0" * 64, shared, None)
    assert list(disk.iterdir()) == []


def test_a_lock_that_was_removed_is_opened_again(archive: Path, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = disk / "harness-code-0-n1-1"
    lock = os.open(disk / "harness-code-0-n1-1.lock", os.O_RDWR | os.O_CREAT)
    with contextlib.closing(os.fdopen(lock)):
        assert unpacked.remove_if_unused(shared)
        arguments = ["take", str(archive), snapshot._sha256(archive), str(shared), str(lock)]
        assert unpacked.main(arguments) == unpacked.REOPEN
        fcntl.flock(lock, fcntl.LOCK_UN)
    assert capsys.readouterr().out == ""
    assert list(disk.iterdir()) == []
