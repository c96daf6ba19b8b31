"""The demo's pair end to end on real vLLM: what the demo shows, in ranges, and samples resumed mid-chain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from jobs.run.folder import RunFolder
from jobs.run.records import counting_records
from jobs.run.state import read_state

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.needs_tool("vllm"),
]
DEMO = ROOT / "harness" / "data" / "demo.toml"


def launch_flags(path: Path) -> list[dict[str, Any]]:
    """Return the flags of each launch of a suite's tables `[[run]]`, as a person would type them."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    for table in ("latency", "probe"):
        content.pop(table, None)
    if "prompts" in content:
        content["prompts"] = str(path.parent / content["prompts"])
    return [content | run for run in content.pop("run")]


def command(number: int, output: Path) -> list[str]:
    """The launch of a run of the demo, in one process with its worker, so that one signal ends it."""
    from harness.cli import options

    flags = {**launch_flags(DEMO)[number], "output": str(output), "cluster": "debug"}
    if flags["method"] == "vanilla":  # a suite names the pair once for all; typed, an unused model is refused
        del flags["draft" if flags["model"] == "target" else "target"]
    return [sys.executable, "-m", "harness.launch", *options.arguments(flags)]


def run_to_its_end(number: int, output: Path) -> None:
    done = subprocess.run(command(number, output), capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@dataclass
class Interrupted:
    """A run that was killed in the middle and started again."""

    run: RunFolder
    accepted: dict[str, list[tuple[str, float]]]
    """Of the samples under way when it was killed: text and time of each step that was accepted by then."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def interrupted(output: Path) -> Interrupted:
    """Run 2 of the demo, speccot; behind the runs of target and draft alone."""
    run_to_its_end(0, output)
    run_to_its_end(1, output)
    with (output / "speccot.log").open("wb") as log:
        process = subprocess.Popen(command(2, output), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    accepted: dict[str, list[tuple[str, float]]] = {}
    end = time.monotonic() + 240
    while len(accepted) < 5:
        assert process.poll() is None, (output / "speccot.log").read_text()[-3000:]
        assert time.monotonic() < end, "no sample of two steps under way"
        time.sleep(0.1)
        # On a busy machine a look takes a second, and the whole run takes six: it stands still meanwhile.
        os.killpg(process.pid, signal.SIGSTOP)
        for path in output.glob("demo-speccot-*"):
            under_way = read_state(RunFolder(path)).unfinished if RunFolder(path).exists() else {}
            accepted = {
                sample_id: [(step.text, step.elapsed_seconds) for step in trace.steps]
                for sample_id, trace in under_way.items()
                if len(trace.steps) >= 2
            }
        os.killpg(process.pid, signal.SIGCONT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    [path] = output.glob("demo-speccot-*")
    run = RunFolder(path)
    under_way = read_state(run).unfinished
    accepted = {i: [(s.text, s.elapsed_seconds) for s in t.steps] for i, t in under_way.items() if len(t.steps) >= 2}
    run_to_its_end(2, output)
    return Interrupted(run, accepted)


def asked(output: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(output / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_a_killed_run_goes_on_behind_the_steps_it_had_accepted(interrupted: Interrupted) -> None:
    assert len(interrupted.accepted) >= 3
    planned = [unit.sample_id for shard in interrupted.run.shards() for unit in shard]
    steps = {
        row["sample_id"]: row["steps"]
        for row in counting_records(interrupted.run, ["steps.list.element.text", "steps.list.element.elapsed_seconds"])
    }
    assert sorted(steps) == sorted(planned)
    for sample_id, before in interrupted.accepted.items():
        after = [(step["text"], step["elapsed_seconds"]) for step in steps[sample_id]]
        assert after[: len(before)] == before, "the same steps, not ones that read alike"
        assert len(after) > len(before)


def test_the_target_is_better_than_its_draft_and_speccot_is_near_the_target(
    interrupted: Interrupted, output: Path
) -> None:
    rows = asked(
        output,
        "SELECT run.method, run.target_name IS NOT NULL, pass_at_1, num_samples, num_not_run "
        "FROM pass_at_1 JOIN run USING (run_id)",
    )
    assert {(samples, not_run) for *_, samples, not_run in rows} == {(80, 0)}
    accuracy = {(method, has_target): score for method, has_target, score, *_ in rows}
    target, draft = accuracy["vanilla", True], accuracy["vanilla", False]
    assert target >= 0.65
    assert 0.35 <= draft <= min(0.75, target - 0.05)
    assert accuracy["speccot", True] >= max(draft + 0.05, target - 0.15)


def test_most_tokens_are_the_drafts_and_some_steps_are_refused(interrupted: Interrupted, output: Path) -> None:
    run_id = interrupted.run.path.name
    [(verdicts, rate)] = asked(
        output, f"SELECT num_verdicts, fallback_rate FROM fallback_rate WHERE run_id = '{run_id}'"
    )
    assert verdicts > 100
    assert 0.02 <= rate <= 0.5
    [(share,)] = asked(output, f"SELECT emitted_share FROM token_split WHERE run_id = '{run_id}' AND model = 'draft'")
    assert share > 0.5
