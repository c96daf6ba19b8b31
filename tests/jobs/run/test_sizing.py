"""Widths and memory shares: left open in a specification, chosen on the node, and planned by a launch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.engine import Role
from harness.engines.settings import EngineSettings, batched_tokens
from harness.launch import main
from harness.methods import build
from harness.problems import benchmarks
from harness.settings.roles import ModelSettings
from harness.sizing.card_plan import DoesNotFit
from harness.sizing.memory import cards_here
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec
from jobs.work.engine_settings import engine_settings
from tests.harness.cards import card, put_nvidia_smi
from tests.jobs.runs import plan
from tests.shared import with_settings
from warehouse.loading.convert import chosen_widths, run_row, utc

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


def test_a_node_chooses_widths_and_shares_from_its_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, memory=81559) for i in range(8)])
    settings = settings_on_node(spec_of(tmp_path, EngineSpec("vllm"), concurrency=1000))
    assert (settings["draft"].tensor_parallel, settings["target"].tensor_parallel) == (4, 8)
    assert 0.85 < settings["draft"].memory_fraction + settings["target"].memory_fraction < 0.96
    assert batched_tokens(settings["target"], 40_000) == 2048


def test_the_cards_that_a_process_sees_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, memory=81559) for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    settings = settings_on_node(spec_of(tmp_path, EngineSpec("vllm"), concurrency=1000))
    assert (settings["draft"].tensor_parallel, settings["target"].tensor_parallel) == (2, 2)


def test_flags_win_over_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, memory=81559) for i in range(4)])
    spec = with_settings(
        spec_of(tmp_path, EngineSpec("vllm"), concurrency=1000), "draft", tensor_parallel=1, memory=0.2
    )
    settings = settings_on_node(spec)
    assert (settings["draft"].tensor_parallel, settings["draft"].memory_fraction) == (1, 0.2)
    assert settings["target"].tensor_parallel == 4
    assert settings["target"].memory_fraction < 0.75


def test_what_does_not_fit_on_the_node_is_one_line_before_a_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(0, memory=46068)])
    with pytest.raises(DoesNotFit, match=r"do not fit on 1 × .* of 44\.4 GiB; 2 × .* would hold 4 samples at once"):
        settings_on_node(spec_of(tmp_path, EngineSpec("vllm")))


def test_engines_whose_size_is_unknown_get_the_former_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, memory=81559) for i in range(4)])
    unknown = replace(TARGET, path="nobody/nothing", tensor_parallel=4)
    spec = replace(spec_of(tmp_path, EngineSpec("vllm")), target=unknown)
    settings = settings_on_node(spec)
    assert (settings["draft"].memory_fraction, settings["target"].memory_fraction) == (0.12, 0.78)
    assert (settings["draft"].tensor_parallel, settings["target"].tensor_parallel) == (1, 4)


def dry_run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    command = ["--method", "speccot", "--dataset", "demo", "--engine", "vllm", "--cluster", "slurm", "--dry-run"]
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path), *arguments], prog_name="launch")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus-per-node", "l40s:1"], "would hold 1 sample at once"),
        (["--gpus-per-node", "h100:8", "--draft.tensor-parallel", "8"], "12 attention heads cannot be divided by 8"),
        (["--gpus-per-node", "2", "--target.tensor-parallel", "4"], "4: a worker has 2 GPUs; valid: 1, 2"),
        (["--draft.tensor-parallel", "3"], "valid: 1, 2, 4"),
        (["--dtype", "int3"], "'int3' is not one of 'auto', 'bfloat16'"),
        (["--target.gpus", "0-2"], "--target.gpus 0,1,2: qwq-32b cannot be split so, because 40 attention heads"),
        (["--gpus-per-node", "h100:2", "--workers-per-task", "4"], "its engines need 1; choose fewer workers"),
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


def test_shares_are_checked_even_where_a_model_is_unknown(tmp_path: Path) -> None:
    arguments = ("--draft", "nobody/nothing", "--draft.memory", "0.5", "--target.memory", "0.6")
    assert "add up to more than 1" in dry_run(tmp_path, *arguments)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus-per-node", "h100:4"], "target qwq-32b: tensor parallel 4, 15.3 GiB of weights a GPU"),
        (["--gpus-per-node", "1", "--gpu-memory", "80"], "2 samples at the full token budget at once, 64 in flight"),
        (["--gpus-per-node", "2"], "memory: the node decides on 2 GPUs"),
        (["--gpu-memory", "80GB"], "NO GPU ASKED FOR: "),
        (
            ["--gpus-per-node", "h100:8", "--concurrency", "2"],
            "1 of the 8 GPUs of a worker are used: --workers-per-task uses the rest, --gpus-per-node asks for fewer",
        ),
        (
            ["--gpus-per-node", "h100:6", "--concurrency", "40", "--workers-per-task", "1"],
            "4 of the 6 GPUs of a worker are used",
        ),
        (["--gres", "gpu:a100:2"], "assumed: the smaller of two cards with this name"),
        (["--gpus-per-node", "h100:4", "--draft", "nobody/nothing"], "nobody/nothing is unknown"),
    ],
)
def test_a_dry_run_prints_the_plan_or_why_there_is_none(tmp_path: Path, arguments: list[str], message: str) -> None:
    code, output = dry_run(tmp_path, *arguments)
    assert code == 0, output
    assert message in output


def test_the_memory_of_a_gpu_is_not_passed_to_sbatch(tmp_path: Path) -> None:
    code, output = dry_run(tmp_path, "--gpus-per-node", "h100:4", "--gpu-memory", "80GB")
    assert code == 0
    assert "#SBATCH --gpus-per-node=h100:4" in output
    assert "gpu-memory" not in output


def test_the_warehouse_has_the_widths_that_attempts_recorded(tmp_path: Path) -> None:
    run = plan(tmp_path, settings={"target": ModelSettings(tensor_parallel=2)})
    row = run_row(run, run.spec(), utc(0))
    attempts: list[dict[str, object]] = [
        {"engines": json.dumps({"draft": {"tensor_parallel": width}, "target": {"tensor_parallel": 8}})}
        for width in (2, 4)
    ]
    assert chosen_widths(row, attempts) == {"engine_draft_tensor_parallel": 4}
    assert chosen_widths(row, [{"engines": json.dumps({"startup_seconds": 1.0})}, {}]) == {
        "engine_draft_tensor_parallel": 1
    }
