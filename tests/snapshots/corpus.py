"""The recorded runs that the snapshots are made of, by the scripted engine under a clock of its own.

Everything goes through commands. What a rebuilding of the code may change without changing a number is held still here:
ids of runs and samples, which seeds come from, are made of what the corpus itself sets (`_steady_ids`).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

from harness.chain.chain_scores import RewardModel
from harness.engine import EngineDied, EngineError, RequestRefused
from harness.engines.scripted import ScriptedEngine
from harness.problems.problem import Problem
from jobs.finished.scoring import score
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.jobs.runs import plan
from tests.snapshots.clock import Clock
from tests.snapshots.values import Names
from warehouse.database import Connection, reader, rows

METHODS = ("scot", "rsd", "lookahead", "spec_thinking", "glimprouter", "specguard")
"""Some that no suite below has; `specdecode` is planned by hand, because it needs an engine of vLLM."""
REGIMES = """
output = "runs"
engine = "scripted"
cluster = "debug"
dataset = "own.jsonl"
samples = 2
concurrency = 4
target-logprobs = true

[[run]]
method = "vanilla"

[[run]]
method = "speccot"

[[run]]
method = "specreason"

[latency]
limit = 4
samples = 1

[probe]
points = 8
rollouts = 2
"""
NIGHTS = """
output = "nights"
engine = "scripted"
cluster = "debug"
dataset = "own.jsonl"
samples = 2
concurrency = 4

[[run]]
method = "speccot"
"""
OWN = [
    {"id": "a", "problem": "What is 12 + 30?", "answer": "42", "level": "easy"},
    {"id": "b", "problem": "What is 7 * 8?", "answer": "56", "level": "easy"},
    {"id": "c", "problem": "What is 100 - 58?", "answer": "42", "level": "easy", "subject": "differences"},
    {"id": "d", "problem": "What is 19 * 21?", "answer": "\\frac{798}{2}", "level": "hard"},
    {"id": "e", "problem": "What is 45 + 55 + 1?", "answer": "101", "level": "hard"},
    {"id": "f", "problem": "What is 3 - 9?", "answer": "-6", "level": "hard", "subject": "differences"},
]
"""Sums that the scripted engine solves, more or less often; the fifth it never does."""
DATES = tuple(f"2026-01-{day:02}" for day in range(1, 10))
"""Nights: the verdict on the eighth is the first with enough of them before it."""
EARLY = 5
"""Nights that ran before the runs that are last."""
SPEEDS = {"draft": 0.002, "other": 0.01}
"""Seconds per token of the engines."""


@dataclass
class Corpus:
    """A folder with everything that was recorded, and what the commands that recorded it have printed."""

    where: Path
    clock: Clock = field(default_factory=Clock)
    screens: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """Work in the corpus's folder, with its clock and without what the machine adds."""
        with pytest.MonkeyPatch.context() as patch, self.clock.installed():
            for name in [name for name in os.environ if name.startswith(("HARNESS_", "SLURM_"))]:
                patch.delenv(name)
            patch.setenv("COLUMNS", "80")
            patch.chdir(self.where)
            patch.setattr(socket, "gethostname", lambda: "node1")
            patch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))
            connect: Any = duckdb.connect
            one_thread = {"threads": 1}  # adds up in one order

            def connected(*arguments: Any, config: Mapping[str, Any] | None = None, **named: Any) -> Any:
                return connect(*arguments, config={**(config or {}), **one_thread}, **named)

            patch.setattr(duckdb, "connect", connected)
            _steady_ids(patch)
            yield

    @contextmanager
    def opened(self, database: Path) -> Iterator[Connection]:
        """Open a database for reading, with the settings that all of its connections need to share."""
        with ExitStack() as stack:
            with self.held_still():
                connection = stack.enter_context(reader(database))
            yield connection

    def run(self, command: str, *words: str, exit_code: int | None = 0) -> Result:
        """Run a command of the project in this process, a minute after the last one; `exit_code`: None is any."""
        self.clock.seconds += 60
        module, *subcommand = command.split()
        found = importlib.import_module(module)
        if hasattr(found, "__path__"):
            found = importlib.import_module(f"{module}.__main__")
        with self.held_still():
            result = CliRunner().invoke(found.main, [*subcommand, *words])
        if exit_code not in (None, result.exit_code):
            raise AssertionError(f"{command} {words}: {result.exit_code}\n{result.output}") from result.exception
        return result

    def print(self, command: str, *words: str, exit_code: int | None = 0) -> None:
        self.screens[command] = self.run(command, *words, exit_code=exit_code).output

    def launch(self, label: str, *words: str, dataset: str = "own.jsonl", exit_code: int = 0, **flags: object) -> str:
        """Launch a run; returns its folder, relative to the corpus."""
        given = {"dataset": dataset, "engine": "scripted", "cluster": "debug", "concurrency": 4, **flags}
        typed = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        result = self.run("harness.launch", *typed, *words, "--json", exit_code=exit_code)
        self.screens[f"harness.launch, {label}"] = result.stderr
        outcome = json.loads(result.stdout.splitlines()[-1])
        return str(outcome["run"])

    def folders(self, beginning: str) -> list[str]:
        return sorted(f"runs/{path.name}" for path in (self.where / "runs").glob(f"{beginning}-*") if path.is_dir())

    def folder(self, label: str) -> str:
        """Return the folder of a run, relative to the corpus, by what stands for its id."""
        [name] = [name for name, known in self.run_names().items() if known == label]
        return f"runs/{name}"

    def run_names(self) -> dict[str, str]:
        """Return what stands for the id of each run."""
        names: dict[str, str] = {}
        for database in sorted(self.where.glob("*/warehouse.duckdb")):
            with self.opened(database) as connection:
                names |= {str(row["run_id"]): _label(row) for row in rows(connection, "FROM run")}
        assert len(set(names.values())) == len(names), sorted(names.values())
        return names

    def known_names(self) -> Names:
        """Return what stands for the ids of all runs and samples."""
        names = self.run_names()
        for database in sorted(self.where.glob("*/warehouse.duckdb")):
            with self.opened(database) as connection:
                ids = rows(connection, "SELECT run_id, sample_id, problem_id, sample_index FROM sample ORDER BY ALL")
            for row in ids:
                of_sample = f"{names[str(row['run_id'])]}: {row['problem_id']}, {row['sample_index']}"
                names.setdefault(str(row["sample_id"]), of_sample)
        return Names({f"{self.where}/": "", **names})


def _label(run: Mapping[str, Any]) -> str:
    """Return what stands for a run's id: what tells it from the other runs of the corpus."""
    alone = json.loads(run["params"]).get("model")
    sizes = f"{run['num_problems']}x{run['samples']}", f"{run['concurrency']} in flight"
    kind = "probe" if "probe" in run["dataset"] else run["dataset"]
    words = run["method"], alone == "draft" and "draft", kind, *sizes, run["tag"], run["is_greedy"] and "greedy"
    return " ".join(word for word in words if word)


def _steady_ids(patch: pytest.MonkeyPatch) -> None:
    """Make ids of what tells the runs of the corpus apart, so that formats and new settings do not draw anew."""

    def digest(*parts: object) -> str:
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=dict).encode()).hexdigest()

    def of_run(spec: RunSpec) -> str:
        models = [model and model.name for model in spec.models.values()]
        sizes = spec.num_problems, spec.samples, spec.temperature, spec.concurrency
        return digest(spec.method, spec.params, spec.dataset, models, sizes, spec.seed, spec.tag)[:8]

    def of_samples(spec: RunSpec, problem: Problem) -> list[str]:
        kind = spec.method, spec.params, spec.temperature, spec.seed, spec.tag, problem.id
        return [digest(*kind, index)[:16] for index in range(spec.samples)]

    patch.setattr(RunSpec, "digest", property(of_run))
    patch.setattr(RunSpec, "sample_ids", of_samples)


@contextmanager
def _speeds(failures: dict[int, EngineError] | None = None) -> Iterator[None]:
    """Give scripted engines a time per call and per token; the target has `failures`, by number of the call."""
    original = ScriptedEngine.__init__

    def slowly(self: ScriptedEngine, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        is_draft = getattr(getattr(self.write, "__self__", None), "skill", 1.0) < 0.9
        self.seconds_per_call, self.seconds_per_token = 0.05, SPEEDS["draft" if is_draft else "other"]
        if not is_draft:
            self.failures = failures or {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedEngine, "__init__", slowly)
        yield


def make(where: Path) -> Corpus:
    corpus = Corpus(where)
    for name, text in (("regimes.toml", REGIMES), ("nights.toml", NIGHTS)):
        (where / name).write_text(text, encoding="utf-8")
    (where / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in OWN), encoding="utf-8")
    with _speeds():
        corpus.print("jobs suite", "regimes.toml")
        runs = {method: corpus.launch(method, method=method, samples=2) for method in METHODS}
        alone = corpus.launch("draft alone", method="vanilla", model="draft", samples=2)
        corpus.print("jobs target-logprobs", alone, "--target-of", corpus.folder("vanilla own 6x2 4 in flight"))
        corpus.launch("repeated", method="vanilla", samples=2, tag="again")
        for method in ("vanilla", "speccot"):
            timed = corpus.launch(f"timed: {method}", method=method, samples=3, latency_sample=5)
        corpus.launch("greedy", dataset="demo", method="vanilla", limit=8, samples=1, temperature=0)
        _without_vllm(corpus)
        for run in (timed, runs["rsd"]):
            _scored(corpus, run)
        corpus.print("warehouse.candidates", runs["scot"])
        for night in DATES[:EARLY]:
            corpus.print("jobs nightly", "--suite", "nights.toml", "--date", night, exit_code=None)
    with _speeds({20: RequestRefused("too long"), 45: RequestRefused("too long")}):
        failed = corpus.launch("errors", method="specreason", samples=2, tag="errors")
        corpus.print("jobs retry-failed", failed)
    with _speeds({50: EngineDied("out of memory")}):
        died = corpus.launch("died", method="speccot", drafts=1, samples=3, tag="died", exit_code=1)
    corpus.print("jobs finalize", died)
    corpus.print("grading.regrade", died)
    corpus.print("warehouse.load", "runs")
    with _speeds():
        for night in DATES[EARLY:]:
            corpus.run("jobs nightly", "--suite", "nights.toml", "--date", night, exit_code=None)
    return corpus


def _without_vllm(corpus: Corpus) -> None:
    """Run `specdecode` on scripted engines, which a launch refuses because they do not speculate."""
    with corpus.held_still():
        name = str(plan(Path("runs"), samples=1, method="specdecode", temperature=0.0).path)
    corpus.print("jobs worker", name, "0")
    corpus.run("jobs finalize", name)


def _scored(corpus: Corpus, run: str) -> None:
    """Score the steps of a run: the command has no scripted engines."""

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        return [0.2, 0.6] if "roughly" in prompt.rsplit("\n\n", 1)[-1] else [0.5, 0.25]

    with corpus.held_still():
        engine = ScriptedEngine(lambda prompt, sampling: [""], judge)
        asyncio.run(score(RunFolder(Path(run)), RewardModel(engine), "scripted@1/1"))
    corpus.run("warehouse.load", run)
