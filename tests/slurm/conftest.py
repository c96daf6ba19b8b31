"""Fixtures of the tests on a real Slurm: `make test-slurm` starts one; without it these tests are skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.finished.grading import finished_samples
from jobs.run import submissions
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.watch.status import RunStatus, status
from tests.requirements import skip_by_design
from tests.slurm.ledger import Witness

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "slurm" / "local-cluster"
CALL_SECONDS = 0.15
"""Duration of a call of a scripted engine: long enough that a kill comes in the middle."""


@dataclass
class Cluster:
    folder: Path
    conf: Path
    nodes: int

    def command(self, *arguments: str) -> str:
        whole_command = [str(COMMAND), "--folder", str(self.folder), *arguments]
        environment = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run(whole_command, capture_output=True, text=True, check=False, timeout=180, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pid(self, daemon: str) -> int:
        return int((self.folder / "run" / f"{daemon}.pid").read_text())


def slurm_output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def wait_for(holds: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait until `holds` is true; `what` names the condition in the failure's message.

    Where a command of Slurm fails, as one does whose controller has stood still, it is not true yet.
    """

    def looked() -> bool:
        try:
            return bool(holds())
        except subprocess.CalledProcessError:
            return False

    end = time.monotonic() + seconds
    while not looked():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}; Slurm has:\n{slurm_output('squeue', '-r')}"
        time.sleep(0.5)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The local cluster that SLURM_CONF names; any other is left alone."""
    conf = Path(os.environ.get("SLURM_CONF", ""))
    settings = conf.parent / "cluster.json"
    if not conf.is_file() or not settings.exists():
        skip_by_design("SLURM_CONF names no local cluster: make test-slurm starts one")
    return Cluster(conf.parent, conf, json.loads(settings.read_bytes())["nodes"])


@pytest.fixture(autouse=True)
def whole_cluster(cluster: Cluster) -> None:
    """Give every test a cluster whose nodes are all idle: what the test before it has left or killed is no matter."""
    cluster.command("up")
    for state in ("PENDING", "RUNNING", "SUSPENDED"):
        slurm_output("scancel", f"--state={state}")
    wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")
    states = ("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t")
    wait_for(lambda: slurm_output(*states).split() == ["idle"] * cluster.nodes, "idle nodes")


@dataclass
class Launched:
    run: RunFolder
    arguments: list[str]
    environment: dict[str, str]

    @property
    def array(self) -> str:
        """Name of the first job submitted."""
        return submissions.read(self.run)[0].name

    def witness(self) -> Witness:
        """Take down what is recorded now, before something dies."""
        witness = Witness(self.run)
        witness.look()
        return witness

    def again(self, *further: str) -> str:
        """Run the launch command again; return what it prints."""
        return harness("harness.launch", *self.arguments, *further, environment=self.environment)

    def resume(self) -> str:
        return harness("jobs", "resume", str(self.run.path), environment=self.environment)

    def status(self) -> RunStatus:
        return status(self.run)

    def finished(self) -> int:
        """Return the number of finished samples."""
        return len(read_endings(self.run).finished)

    def is_running(self, shards: int = 1) -> bool:
        """Return True if at least this many shards are running, each with a finished sample."""
        now = self.status()
        return sum(s.state == "running" and s.finished > 0 for s in now.shards) >= shards

    def has_ended(self) -> bool:
        """Return True if Slurm has no job of the run left, the finalizer included."""
        return self.run.path.name not in slurm_output("squeue", "-h", "-o", "%200j")

    def complete(self, starts: int = 6, seconds: float = 300, witness: Witness | None = None) -> None:
        """Resume until every sample is finished; a witness takes down what is recorded meanwhile.

        The calls of what is resumed take no time, because nothing is killed any more.
        """

        def ended() -> bool:
            if witness is not None:
                witness.look()
            return self.has_ended()

        for _ in range(starts):
            wait_for(ended, "the run's jobs to end", seconds)
            if self.status().finished == self.status().planned:
                return
            self.environment[SCRIPTED_SECONDS] = "0"
            self.resume()
        raise AssertionError(f"not complete after {starts} starts: {self.status()}")

    def worker_pids(self) -> list[int]:
        pids = []
        for journal in self.run.journals():
            with journal.open("rb") as lines:
                pid = int(json.loads(next(iter(lines)))["pid"])
            if Path(f"/proc/{pid}").exists():
                pids.append(pid)
        return pids


def harness(module: str, *arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def launch(cluster: Cluster, tmp_path: Path) -> Callable[..., Launched]:
    """Return a function that launches a scripted run of `demo` on the cluster."""

    def launched(
        *further: str,
        seconds: float = CALL_SECONDS,
        shards: int = 2,
        output: Path | None = None,
        first_path: str | None = None,
    ) -> Launched:
        """Launch; `first_path` is the PATH of a launcher that is killed, and later commands have the usual one."""
        environment = {**os.environ, SCRIPTED_SECONDS: str(seconds), "COLUMNS": "200"}
        folder = output or tmp_path / "runs"
        arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "2"]
        arguments += ["--cluster", "slurm", "--shards", str(shards), "--concurrency", "8", "--mem", "2G"]
        arguments += ["--output", str(folder), *further]
        if first_path:
            command, dying = [sys.executable, "-m", "harness.launch", *arguments], {**environment, "PATH": first_path}
            done = subprocess.run(command, env=dying, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        else:
            harness("harness.launch", *arguments, environment=environment)
        [path] = folder.glob("demo-*")
        return Launched(RunFolder(path), arguments, environment)

    return launched


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the text of every sample, by its id, of the same run without anything killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "2"]
    arguments += ["--concurrency", "4", "--cluster", "local", "--output", str(folder)]
    harness("harness.launch", *arguments, environment={**os.environ, "SLURM_CONF": "/nowhere"})
    [path] = folder.glob("demo-*")
    return {sample["sample_id"]: text for sample, text in finished_samples(RunFolder(path))}


def assert_whole(run: RunFolder, undisturbed: dict[str, str]) -> None:
    """Assert that every planned sample exists exactly once and equals that of a run without anything killed."""
    planned = [unit.sample_id for shard in run.shards() for unit in shard]
    samples = list(finished_samples(run))
    assert Counter(sample["sample_id"] for sample, _ in samples) == Counter(planned)
    assert {sample["sample_id"]: text for sample, text in samples} == undisturbed
    counts = warehouse(
        run,
        "SELECT count(*), count(DISTINCT sample_id), count(*) FILTER (graded) FROM sample_grade "
        f"WHERE run_id = '{run.path.name}'",
    )
    assert counts == [(len(planned),) * 3], "planned, distinct and graded in the warehouse"


def warehouse(run: RunFolder, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of a query of the warehouse beside the run."""
    import duckdb

    with duckdb.connect(str(run.path.parent / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def doctor(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.doctor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
