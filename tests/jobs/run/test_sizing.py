"""Widths, memory shares and caches: left open in a specification, chosen on the node, and planned by a launch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.engine import Role
from harness.engines.admission import Cache
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings, batched_tokens
from harness.launch import main
from harness.methods import build
from harness.methods.method import Method
from harness.problems import benchmarks
from harness.sizing.card_plan import DoesNotFit
from harness.sizing.memory import cards_here
from harness.trace import Call, Purpose, Step, Trace
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec
from jobs.work.engine_settings import engine_settings
from jobs.work.shard_run import caches, step_tokens
from tests.harness.cards import card, put_nvidia_smi
from tests.jobs.runs import plan
from tests.shared import with_settings

DRAFT = ModelSpec(model="r1", path="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", revision=None, fingerprint="r1@main")
TARGET = ModelSpec(model="qwq", path="Qwen/QwQ-32B", revision=None, fingerprint="qwq@main")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    yield
    cards_here.cache_clear()


def spec_of(tmp_path: Path, engine: EngineSpec, **changes: Any) -> RunSpec:
    return replace(plan(tmp_path, engine=engine).spec(), draft=DRAFT, target=TARGET, **changes)


def settings_on_node(spec: RunSpec) -> dict[Role, EngineSettings]:
    return engine_settings(spec, build(spec.method, dict(spec.params)), benchmarks.load("demo")[:8])


@pytest.mark.parametrize(("seen", "widths"), [(None, (4, 8)), ("6,7", (2, 2))])
def test_a_node_chooses_widths_and_shares_from_the_cards_that_a_process_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str | None, widths: tuple[int, int]
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, memory=81559) for i in range(8)])
    if seen:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    spec = spec_of(tmp_path, EngineSpec("vllm"), concurrency=1000)
    settings = settings_on_node(spec)
    assert (settings["draft"].tensor_parallel, settings["target"].tensor_parallel) == widths
    assert 0.85 < settings["draft"].memory_fraction + settings["target"].memory_fraction < 0.96
    assert batched_tokens(settings["target"], 40_000) == 2048
    given = settings_on_node(with_settings(spec, "draft", tensor_parallel=1, memory=0.2))
    assert (given["draft"].tensor_parallel, given["draft"].memory_fraction) == (1, 0.2)
    assert given["target"].memory_fraction < 0.75


def test_what_does_not_fit_on_the_node_is_one_line_before_a_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(0, memory=46068)])
    with pytest.raises(DoesNotFit, match=r"do not fit on 1 × .* of 44\.4 GiB; run python -m harness\.sizing"):
        settings_on_node(spec_of(tmp_path, EngineSpec("vllm")))


def dry_run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    command = ["--method", "speccot", "--dataset", "demo", "--engine", "vllm", "--cluster", "slurm", "--dry-run"]
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path), *arguments], prog_name="launch")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus-per-node", "l40s:1"], "do not fit on 1 × L40S"),
        (["--gpus-per-node", "h100:8", "--draft.tensor-parallel", "8"], "12 attention heads are not divisible by 8"),
        (["--gpus-per-node", "2", "--target.tensor-parallel", "4"], "4: a worker has 2 GPUs; valid: 1, 2"),
        (["--gpus-per-node", "4", "--target.gpus", "1-4"], "1,2,3,4: a worker has 4 GPUs; valid: 0 to 3, or all"),
        (["--target.gpus", "0-2"], "--target.gpus 0,1,2: cannot split qwq-32b this way: 40 attention heads"),
        (["--gpus-per-node", "h100:2", "--workers-per-task", "4"], "its engines need 1; use fewer workers"),
        (["--draft.memory", "0.5", "--target.memory", "0.6"], "add up to more than 1"),
        (["--gpus-per-node", "2", "--gpu-memory", "huge"], "expected the memory of one GPU"),
        (["--gpus-per-node", "h100:4", "--token-budget", "99000"], "the context of the target qwq-32b is 40960 tokens"),
    ],
)
def test_what_cannot_start_is_refused_before_anything_is_queued(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, output = dry_run(tmp_path, *arguments)
    assert (code, output.count("\n")) == (2, 1)
    assert message in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpus-per-node", "h100:4"],
        ["--gpus-per-node", "1", "--gpu-memory", "80GB"],
        ["--gpus-per-node", "2"],
        ["--gpus-per-node", "h100:8", "--concurrency", "2"],
        ["--gres", "gpu:a100:2"],
        ["--gpus-per-node", "h100:4", "--draft", "nobody/nothing"],
    ],
    ids=" ".join,
)
def test_a_dry_run_prints_the_plan_or_why_there_is_none(
    tmp_path: Path, arguments: list[str], snapshot: SnapshotAssertion
) -> None:
    code, output = dry_run(tmp_path, *arguments)
    assert code == 0, output
    assert "#SBATCH --gpu-memory" not in output
    told = [line for line in output.splitlines() if re.search("memory|GPU|tensor parallel", line)]
    assert [line.replace(str(tmp_path), "OUTPUT") for line in told if not line.startswith("#SBATCH")] == snapshot


BUDGET = 8192
PROMPTS = {"draft": 100, "target": 120}


def call(purpose: Purpose, model: Role, step: int, n: int, prompt: int, output: int) -> Call:
    return Call(purpose, model, step, n, prompt, 0, output, output // n, 0.0, 0.0, 0.0, 0.0, 1)


def trace_of(*calls: Call, steps: int) -> Trace:
    trace = Trace("sample", "problem", 0, 0, calls=list(calls))
    trace.steps = [Step("draft", "draft", "x", 40, (), "stop") for _ in range(steps)]
    return trace


def cached(method: Method, **tokens: int | None) -> dict[str, Cache]:
    """The caches of engines with room for so many tokens."""
    made: dict[Role, ScriptedEngine] = {
        role: ScriptedEngine(lambda _, sampling: [""] * sampling.n, lambda _, o: [1.0] * len(o), kv_tokens=tokens[role])
        for role in ("draft", "target")
        if role in tokens
    }
    return caches(method, made, BUDGET)


def test_every_engine_has_a_cache_with_the_room_that_its_part_of_the_method_needs() -> None:
    five, one = (cached(build("speccot", {"drafts": n}), draft=165_000, target=None) for n in (5, 1))
    assert (five["draft"].capacity_tokens, five["target"].capacity_tokens) == (165_000, None)
    assert five["draft"].step_tokens == 5 * one["draft"].step_tokens > 0
    assert cached(build("vanilla", {}), target=1000)["target"].step_tokens == 0
    together = cached(build("scot", {"drafts": 4}), draft=1000, target=1000)
    assert (together["draft"].width, together["target"].width) == (4, 1)


@pytest.mark.parametrize(
    ("method", "params", "calls", "held"),
    [
        (
            "speccot",
            {},
            [
                call("draft", "draft", 0, 5, 100, 999),  # an earlier step's
                call("draft", "draft", 1, 5, 140, 200),
                call("verdict", "target", 1, 1, 120 + 40 + 260, 1),
                call("fallback", "target", 1, 1, 160, 50),
            ],
            {"draft": 200, "target": 50 + 260},
        ),
        (
            "speccot",
            {"verdict": "separate"},
            [call("draft", "draft", 1, 5, 140, 200), call("verdict", "target", 1, 5, 5 * (120 + 40 + 60), 5)],
            {"draft": 200, "target": 5 * 60},
        ),
    ],
)
def test_a_step_holds_its_candidates_and_the_question_behind_the_chain(
    method: str, params: dict[str, Any], calls: list[Call], held: dict[Role, int]
) -> None:
    assert step_tokens(build(method, params), trace_of(*calls, steps=2), PROMPTS) == held
    calls = [call("draft", "draft", 0, 5, 100, 15_000), call("verdict", "target", 0, 1, 16_120, 1)]
    assert step_tokens(build("scot", {}), trace_of(*calls, steps=1), PROMPTS) == {"target": 1600}, "for a short time"
