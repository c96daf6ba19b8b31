"""The demo's pair end to end on real vLLM, which would fork its processes, as on CUDA: what the demo shows, in ranges,
samples resumed mid-chain, and no engine that outlives its worker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import duckdb
import psutil
import pytest

from jobs.run.endings import read_state
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.needs_tool("vllm"),
]
DEMO = ROOT / "harness" / "data" / "demo_full.toml"


METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
_SUITE = f"""
# vLLM's platform for CPUs sets the start method itself, its platform for CUDA leaves it as it finds it: as here.
import os
from vllm.platforms.cpu import CpuPlatform

set_up = CpuPlatform.check_and_update_config.__func__

def as_on_cuda(cls, vllm_config):
    found = os.environ.get("{METHOD}")
    set_up(cls, vllm_config)
    del os.environ["{METHOD}"]
    if found is not None:
        os.environ["{METHOD}"] = found

CpuPlatform.check_and_update_config = classmethod(as_on_cuda)
if __name__ == "__main__":
    import sys
    from jobs.__main__ import main

    main(["suite", sys.argv[1]])
"""


def started(folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """The demo's target alone, its draft alone and speccot, in one process with their worker."""
    script, suite = folder / "suite.py", folder / "suite.toml"
    script.write_text(_SUITE, encoding="utf-8")
    content = tomllib.loads(DEMO.read_text(encoding="utf-8"))
    runs = [run for run in content.pop("run") if run["method"] != "specreason"]
    prompts = str(DEMO.parent / content["prompts"])
    flags = {name: value for name, value in content.items() if name not in ("latency", "probe")}
    flags |= {"output": str(folder), "prompts": prompts}
    lines = [*_toml(flags), *(line for run in runs for line in ("[[run]]", *_toml(run)))]
    suite.write_text("\n".join(lines), encoding="utf-8")
    environment = {name: text for name, text in os.environ.items() if name != METHOD}
    command = [sys.executable, str(script), str(suite)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)


def _toml(table: dict[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in table.items()]


@dataclass
class Interrupted:
    """A run that was killed in the middle and started again."""

    run: RunFolder
    accepted: dict[str, list[tuple[str, float]]]
    """Of the samples under way when it was killed: text and time of each step that was accepted by then."""
    left: list[psutil.Process]
    """What the killed worker had started and was still there ten seconds later."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def interrupted(output: Path) -> Interrupted:
    """The demo's speccot, whose worker alone is killed, with the runs of target and draft around it."""
    with (output / "killed.log").open("wb") as log:
        process = started(output, log)
    accepted: dict[str, list[tuple[str, float]]] = {}
    end = time.monotonic() + 600
    while len(accepted) < 5:
        assert process.poll() is None, (output / "killed.log").read_text()[-3000:]
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
    below = psutil.Process(process.pid).children(recursive=True)
    assert any("EngineCore" in " ".join(child.cmdline()) for child in below)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(below, timeout=10)
    for child in left:
        child.kill()
    [path] = output.glob("demo-speccot-*")
    run = RunFolder(path)
    under_way = read_state(run).unfinished
    accepted = {i: [(s.text, s.elapsed_seconds) for s in t.steps] for i, t in under_way.items() if len(t.steps) >= 2}
    with (output / "resumed.log").open("wb") as log:
        code = started(output, log).wait(600)
    assert code == 0, (output / "resumed.log").read_text()[-6000:]
    return Interrupted(run, accepted, left)


def asked(output: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(output / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_a_killed_worker_leaves_no_process(interrupted: Interrupted) -> None:
    assert not interrupted.left


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
