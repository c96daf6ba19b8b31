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
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
import pytest_asyncio

from jobs import suite
from jobs.run.endings import read_state
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records
from jobs.work.run_part import RunPart
from tests.conftest import PAIR_CONCURRENCY, VLLMPair
from tests.jobs.runs import launch_suite

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


@dataclass
class Killed:
    """A suite whose worker was killed in the middle of its first run."""

    file: Path
    """The suite."""
    run: RunFolder
    accepted: dict[str, list[tuple[str, float]]]
    """Of the samples under way: text and time of each step that was accepted by then."""
    left: list[psutil.Process]
    """What the worker had started and was still there ten seconds later."""


def under_way(run: RunFolder) -> dict[str, list[tuple[str, float]]]:
    """Text and time of the steps of unfinished samples that have several."""
    unfinished = read_state(run).unfinished if run.exists() else {}
    steps = {name: [(step.text, step.elapsed_seconds) for step in trace.steps] for name, trace in unfinished.items()}
    return {name: texts for name, texts in steps.items() if len(texts) >= 2}


@pytest.fixture(scope="session")  # the tests that share the session's pair stand apart, at the end
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """The demo's speccot, its target alone and its draft alone, in one process with their worker, which alone dies."""
    folder = tmp_path_factory.mktemp("demo")
    script, file, log = folder / "suite.py", folder / "suite.toml", folder / "suite.log"
    script.write_text(_SUITE, encoding="utf-8")
    content = tomllib.loads(DEMO.read_text(encoding="utf-8"))
    runs = sorted((run for run in content.pop("run") if run["method"] != "specreason"), key=itemgetter("method"))
    flags = {name: value for name, value in content.items() if name not in ("latency", "probe", "target-logprobs")}
    flags |= {"output": str(folder), "prompts": str(DEMO.parent / content["prompts"])}
    flags |= {"dtype": "float32", "concurrency": PAIR_CONCURRENCY}
    tables = [flags, *({name: run[name] for name in run if name != "target-logprobs"} for run in runs)]
    file.write_text("[[run]]\n".join(map(_toml, tables)), encoding="utf-8")
    environment = {name: text for name, text in os.environ.items() if name != METHOD}
    command = [sys.executable, str(script), str(file)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
    accepted: dict[str, list[tuple[str, float]]] = {}
    end = time.monotonic() + 600
    while len(accepted) < 5:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < end, "no sample of two steps under way"
        time.sleep(0.1)
        # On a busy machine a look takes a second, and the whole run takes six: it stands still meanwhile.
        os.killpg(process.pid, signal.SIGSTOP)
        for path in folder.glob("demo-speccot-*"):
            accepted = under_way(RunFolder(path))
        os.killpg(process.pid, signal.SIGCONT)
    below = psutil.Process(process.pid).children(recursive=True)
    assert any("EngineCore" in " ".join(child.cmdline()) for child in below)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(below, timeout=10)
    for child in left:
        child.kill()
    run = RunFolder(next(folder.glob("demo-speccot-*")))
    return Killed(file, run, under_way(run), left)


def _toml(table: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def resumed(killed: Killed, vllm_pair: VLLMPair) -> list[RunFolder]:
    """The suite's runs, worked on to their end by the session's pair."""
    runs = [prepared.run for prepared in suite.prepare(suite.read(killed.file), None)]
    for run in runs:
        part = RunPart(run.path, range(run.num_shards()))
        part.kv_bytes = vllm_pair.kv_bytes
        part.needs = vllm_pair.served(part.needs)
        await part.work(vllm_pair.pool, None)
    assert {opened.engine for opened in vllm_pair.pool._open} == {vllm_pair.draft, vllm_pair.target}
    return runs


@pytest.fixture(scope="module")
def output(killed: Killed, resumed: list[RunFolder]) -> Path:
    """The folder of the runs, which are finished, with their warehouse."""
    assert [run.path for run in launch_suite(suite.read(killed.file))] == [run.path for run in resumed]
    return killed.file.parent


def asked(output: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(output / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_a_killed_worker_leaves_no_process(killed: Killed) -> None:
    assert not killed.left


@pytest.mark.usefixtures("output")
def test_a_killed_run_goes_on_behind_the_steps_it_had_accepted(killed: Killed) -> None:
    assert len(killed.accepted) >= 3
    planned = [unit.sample_id for shard in killed.run.shards() for unit in shard]
    steps = {
        row["sample_id"]: row["steps"]
        for row in counting_records(killed.run, ["steps.list.element.text", "steps.list.element.elapsed_seconds"])
    }
    assert sorted(steps) == sorted(planned)
    for sample_id, before in killed.accepted.items():
        after = [(step["text"], step["elapsed_seconds"]) for step in steps[sample_id]]
        assert after[: len(before)] == before, "the same steps, not ones that read alike"
        assert len(after) > len(before)


def test_the_target_is_better_than_its_draft_and_speccot_is_near_the_target(output: Path) -> None:
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


def test_most_tokens_are_the_drafts_and_some_steps_are_refused(killed: Killed, output: Path) -> None:
    run_id = killed.run.path.name
    [(verdicts, rate)] = asked(
        output, f"SELECT num_verdicts, fallback_rate FROM fallback_rate WHERE run_id = '{run_id}'"
    )
    assert verdicts > 100
    assert 0.02 <= rate <= 0.5
    [(share,)] = asked(output, f"SELECT emitted_share FROM token_split WHERE run_id = '{run_id}' AND model = 'draft'")
    assert share > 0.5
