"""Widths and memory shares: left open in a specification, chosen on the node, and planned by a launch."""

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
from harness.engines.settings import EngineSettings, batched_tokens
from harness.launch import main
from harness.methods import build
from harness.problems import benchmarks
from harness.sizing.card_plan import DoesNotFit
from harness.sizing.memory import cards_here
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec
from jobs.work.engine_settings import engine_settings
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
        (["--gpus-per-node", "h100:8", "--draft.tensor-parallel", "8"], "12 attention heads cannot be divided by 8"),
        (["--gpus-per-node", "2", "--target.tensor-parallel", "4"], "4: a worker has 2 GPUs; valid: 1, 2"),
        (["--target.gpus", "0-2"], "--target.gpus 0,1,2: cannot split qwq-32b this way: 40 attention heads"),
        (["--gpus-per-node", "h100:2", "--workers-per-task", "4"], "its engines need 1; use fewer workers"),
        (["--draft.memory", "0.5", "--target.memory", "0.6"], "exceed 1 in total"),
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
