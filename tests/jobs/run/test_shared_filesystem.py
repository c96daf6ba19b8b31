"""A shared filesystem that lags or has no locks loses nothing and counts nothing twice; the other node is a process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.checks import machine
from jobs.run import files
from jobs.run.endings import compact, read_state
from jobs.run.files import read_records
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.harness.checks.question import asked
from tests.jobs.runs import finished_ids, plan, planned_ids, texts

pytestmark = pytest.mark.needs_tool("compiler")
ROOT = Path(__file__).resolve().parents[3]
Node = Callable[..., subprocess.CompletedProcess[str]]
SHARED = (
    "from jobs.run import folder; from harness.checks import machine; machine.is_shared = lambda path: True; "
    "folder._LOOK_SECONDS = 0.1\n"
)
ELSEWHERE = "import socket; socket.gethostname = lambda: 'another-node'\n"
FINISH = f"""{ELSEWHERE}import sys; from pathlib import Path
from jobs.finished.grading import finish
from jobs.run.folder import RunFolder
finish(RunFolder(Path(sys.argv[1])), workers=1)
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system calls of another node."""
    library = tmp_path_factory.mktemp("node") / "another_node.so"
    source = Path(__file__).with_name("another_node.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, capture_output=True)
    return library


@pytest.fixture
def node(library: Path) -> Node:
    """Return a function that runs Python on another node; keywords set what that node sees."""

    def run(*arguments: str, check: bool = True, **sees: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        environment |= {f"NODE_{name.upper()}": text for name, text in sees.items()}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """A run whose worker was killed at its very end, before it compacted its journal."""
    run = plan(tmp_path, samples=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.run.endings.compact_own", lambda run, path: None)
        run_shard(str(run.path), 0)
    return run


@pytest.mark.parametrize("num_samples", [None, 1], ids=["half a journal", "whole samples"])
def test_a_journal_whose_end_is_seen_late_is_not_removed(
    killed: RunFolder, node: Node, num_samples: int | None
) -> None:
    """Where whole samples are seen, nothing tells that more follows."""
    [journal] = killed.journals()
    seen = {}
    if num_samples:
        attempt, *lines = journal.read_bytes().splitlines(keepends=True)
        first = [line for line in lines if planned_ids(killed)[0].encode() in line]
        journal.write_bytes(b"".join([attempt, *first, *(line for line in lines if line not in first)]))
        seen = {"bytes": str(len(b"".join([attempt, *first])))}
    node("-c", FINISH, str(killed.path), shortens=journal.name, **seen)
    assert 0 < len(finished_ids(killed)) < len(planned_ids(killed)), "the other node has seen a part of the journal"
    assert len(finished_ids(killed)) == (num_samples or len(finished_ids(killed)))
    assert journal.exists()
    assert read_state(killed).finished == set(planned_ids(killed))
    compact(killed)
    assert finished_ids(killed) == planned_ids(killed)


def test_a_trace_file_that_is_not_seen_yet_is_not_replaced(killed: RunFolder, node: Node, tmp_path: Path) -> None:
    """The other node still sees a journal that its worker has compacted and removed, and not yet its trace file."""
    [journal] = killed.journals()
    content = journal.read_bytes()
    compact(killed)
    expected = texts(killed)
    [trace_file] = killed.trace_files()
    assert not journal.exists()
    remembered = tmp_path / "remembered.jsonl"
    remembered.write_bytes(content[: len(content) // 2])
    remembers = f"""import pathlib, os
real_open, real_dir = pathlib.Path.open, pathlib.Path.iterdir
here = lambda path: pathlib.Path({str(remembered)!r}) if path.name == {journal.name!r} else path
pathlib.Path.open = lambda self, *a, **k: real_open(here(self), *a, **k)
pathlib.Path.iterdir = lambda self: [*real_dir(self), *([self / {journal.name!r}] if self.name == "journal" else [])]
"""
    node("-c", remembers + FINISH, str(killed.path), hides=trace_file.name)
    assert texts(killed) == expected


def test_a_plan_that_is_seen_late_is_waited_for(tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    worker = f"{SHARED}import sys; from jobs.work.worker import run_shard; run_shard(sys.argv[1], 0)"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    sees = {"hides": "plan.parquet:spec.json", "shortens": "problems.parquet"}
    node("-c", worker, str(run.path), until=str(int(time.time()) + 3), **sees)
    assert finished_ids(run) == planned_ids(run)


APPEND = """import sys, time; from pathlib import Path
from jobs.run.files import append_record
time.sleep(max(0.0, float(sys.argv[3]) - time.time()))
for number in range(60):
    append_record(Path(sys.argv[1]), {"node": sys.argv[2], "number": number})
"""


def test_records_that_two_nodes_append_at_once_are_all_there(tmp_path: Path, node: Node) -> None:
    path = tmp_path / "events.jsonl"
    with ThreadPoolExecutor() as pool:
        begin = str(time.time() + 3)
        list(pool.map(lambda name: node("-c", APPEND, str(path), name, begin, appends="1"), "ab"))
    found = [(record["node"], record["number"]) for record in read_records(path)]
    assert sorted(found) == [(name, number) for name in "ab" for number in range(60)]


def test_where_locks_are_refused_launch_and_worker_say_so_in_one_line(tmp_path: Path, node: Node) -> None:
    refused = str(errno.ENOLCK)
    launch = ["-m", "harness.launch", "--method", "vanilla", "--dataset", "demo", "--engine", "scripted"]
    done = node(*launch, "--output", str(tmp_path), check=False, flock=refused)
    assert done.returncode == 2
    assert files.REMEDY in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left"
    run = plan(tmp_path, samples=1)
    run.locks_dir.mkdir(exist_ok=True)
    (run.locks_dir / "shard-0.lock").touch()  # by a node that has locks
    done = node("-m", "jobs", "worker", str(run.path), "0", check=False, flock=refused)
    assert done.returncode == 2, done.stderr
    assert files.REMEDY in done.stderr.splitlines()[-1]
    assert not [path for path in run.locks_dir.iterdir() if path.stat().st_size], "no file stands for a lock"
    run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)


@pytest.mark.parametrize(
    ("mount", "option"),
    [
        ("nfs4 server:/x rw,vers=4.2,local_lock=none", ""),
        ("nfs server:/x rw,vers=3,nolock,local_lock=all", "nolock"),
        ("lustre mds@tcp:/x rw,localflock", "localflock"),
        ("ext4 /dev/sda rw", ""),
    ],
)
def test_locks_that_hold_on_one_node_only_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, option: str
) -> None:
    kind, _, options = mount.split()
    table = [
        SimpleNamespace(mountpoint="/", fstype="ext4", opts="rw"),
        SimpleNamespace(mountpoint=str(tmp_path), fstype=kind, opts=f"rw,relatime,{options}"),
    ]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: table)
    assert machine.locks_of_one_node(tmp_path) == option
    assert machine.is_shared(tmp_path) == (mount.split()[0] != "ext4")
    [check] = [c for c in machine.check_storage(asked(output=str(tmp_path))) if c.subject == "file locking"]
    assert (check.status, option in check.text) == ("warning" if option else "ok", True)
