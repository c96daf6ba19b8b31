"""Runs on a real Slurm: `make test-slurm` brings one up on this machine; without it these tests are skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.engines.factory import SCRIPTED_SECONDS
from jobs.after.grading import finished_samples
from jobs.run import submissions
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.watch.status import RunStatus, status
from tests.requirements import skip_by_design
from tests.slurm.ledger import HEADER, Death, Witness, death

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "slurm" / "local-cluster"
CALL_SECONDS = 0.15
"""A call of a scripted engine: long enough that a kill comes in the middle."""


@dataclass
class Cluster:
    """The local cluster."""

    folder: Path
    conf: Path
    nodes: int

    def tell(self, *arguments: str) -> str:
        """Run a command of slurm/local-cluster."""
        command = [str(COMMAND), "--folder", str(self.folder), *arguments]
        environment = {**os.environ, "PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pid(self, daemon: str) -> int:
        """Process id of a daemon."""
        return int((self.folder / "run" / f"{daemon}.pid").read_text())


def said(*command: str) -> str:
    """What a command of Slurm's prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def wait_for(holds: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}; Slurm has:\n{said('squeue', '-r')}"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The local cluster that SLURM_CONF names; any other is left alone."""
    conf = Path(os.environ.get("SLURM_CONF", ""))
    kept = conf.parent / "cluster.json"
    if not conf.is_file() or not kept.exists():
        skip_by_design("SLURM_CONF names no local cluster: make test-slurm brings one up")
    return Cluster(conf.parent, conf, json.loads(kept.read_bytes())["nodes"])


@pytest.fixture(autouse=True)
def whole_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Every test starts on a cluster of which all nodes are idle, and leaves no job."""
    _clear(cluster)
    yield cluster
    _clear(cluster)


def _clear(cluster: Cluster) -> None:
    cluster.tell("up")  # what a test has killed, too
    said("scancel", "--user=root")
    wait_for(lambda: not said("squeue", "-h"), "no job left")
    wait_for(
        lambda: said("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").split() == ["idle"] * cluster.nodes, "idle nodes"
    )


@dataclass
class Launched:
    """A run on the cluster."""

    run: RunFolder
    arguments: list[str]
    environment: dict[str, str]

    @property
    def array(self) -> str:
        """Name of the job that was submitted first."""
        return submissions.read(self.run)[0].name

    def witness(self) -> Witness:
        """What is recorded now, before something dies."""
        witness = Witness(self.run)
        witness.look()
        return witness

    def again(self, *further: str) -> str:
        """Type the launch command again; what it printed."""
        return harness("harness.launch", *self.arguments, *further, environment=self.environment)

    def resume(self) -> str:
        """`python -m jobs resume`."""
        return harness("jobs", "resume", str(self.run.path), environment=self.environment)

    def status(self) -> RunStatus:
        """As `python -m jobs status` sees it."""
        return status(self.run)

    def finished(self) -> int:
        """Samples that have ended."""
        return len(read_endings(self.run).finished)

    def at_work(self, shards: int = 1) -> bool:
        """Whether so many shards are running and some sample of each has ended."""
        now = self.status()
        return sum(s.state == "running" and s.finished > 0 for s in now.shards) >= shards

    def ended(self) -> bool:
        """Whether Slurm has nothing more to do for it, the finalizer included."""
        return self.run.path.name not in said("squeue", "-h", "-o", "%200j")

    def complete(self, starts: int = 6, seconds: float = 300, witness: Witness | None = None) -> None:
        """Resume until every sample is finished; a witness looks on."""

        def ended() -> bool:
            if witness is not None:
                witness.look()
            return self.ended()

        for _ in range(starts):
            wait_for(ended, "the run's jobs to end", seconds)
            if self.status().finished == self.status().planned:
                return
            self.resume()
        raise AssertionError(f"not complete after {starts} starts: {self.status()}")

    def worker_pids(self) -> list[int]:
        """Processes that are at this run's shards now."""
        found = []
        for journal in self.run.journals():
            with journal.open("rb") as lines:
                pid = int(json.loads(next(iter(lines)))["pid"])
            if Path(f"/proc/{pid}").exists():
                found.append(pid)
        return found


def harness(module: str, *arguments: str, environment: dict[str, str]) -> str:
    """`python -m module …`; its output."""
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
    """Launch a scripted run of `demo` on the cluster."""

    def launched(
        *further: str,
        seconds: float = CALL_SECONDS,
        shards: int = 4,
        output: Path | None = None,
        first_path: str | None = None,
    ) -> Launched:
        """`first_path`: PATH of a launcher that is killed; later commands have the usual one."""
        environment = {**os.environ, SCRIPTED_SECONDS: str(seconds), "COLUMNS": "200"}
        folder = output or tmp_path / "runs"
        arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "2"]
        arguments += ["--cluster", "slurm", "--shards", str(shards), "--concurrency", "4", "--mem", "2G"]
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
    """Text of every sample of the same run where nothing was killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "2"]
    arguments += ["--concurrency", "4", "--cluster", "local", "--output", str(folder)]
    harness("harness.launch", *arguments, environment={**os.environ, "SLURM_CONF": "/nowhere"})
    [path] = folder.glob("demo-*")
    return {sample["sample_id"]: sample["text"] for sample in finished_samples(RunFolder(path))}


_DEATHS: list[Death] = []


@pytest.fixture
def ledger() -> Callable[[str, Witness], Death]:
    """Takes down what a death cost, for the table at the end of the tests."""

    def take_down(what: str, witness: Witness) -> Death:
        _DEATHS.append(death(what, witness))
        return _DEATHS[-1]

    return take_down


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of deaths."""
    if _DEATHS:
        terminalreporter.section("deaths")
        terminalreporter.write_line("\n".join([HEADER, *map(str, _DEATHS)]))


def assert_whole(run: RunFolder, undisturbed: dict[str, str]) -> None:
    """Every planned sample is there exactly once, equal to that of a run where nothing was killed."""
    planned = [unit.sample_id for shard in run.shards() for unit in shard]
    samples = list(finished_samples(run))
    assert Counter(sample["sample_id"] for sample in samples) == Counter(planned)
    assert {sample["sample_id"]: sample["text"] for sample in samples} == undisturbed
    counted = warehouse(
        run,
        "SELECT count(*), count(DISTINCT sample_id), count(*) FILTER (graded) FROM sample_grade "
        f"WHERE run_id = '{run.path.name}'",
    )
    assert counted == [(len(planned),) * 3], "planned, distinct and graded in the warehouse"


def warehouse(run: RunFolder, sql: str) -> list[tuple[object, ...]]:
    """Rows of a question to the warehouse beside the run."""
    import duckdb

    with duckdb.connect(str(run.path.parent / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()
