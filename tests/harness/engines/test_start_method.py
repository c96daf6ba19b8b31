"""The variables that engine processes start with: their start method, their cards, and exact calculation."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engines.settings import EngineSettings
from harness.engines.variables import variables
from tests.harness.cards import card, put_nvidia_smi

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


@pytest.mark.parametrize("outside", [None, "fork"])
def test_the_start_method_is_spawn_in_any_environment(monkeypatch: pytest.MonkeyPatch, outside: str | None) -> None:
    if outside is not None:
        monkeypatch.setenv(METHOD, outside)
    assert variables(EngineSettings(kind="vllm", device="gpu"))[METHOD] == "spawn"


def test_an_engine_sees_only_the_cards_that_slurm_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    gpu = EngineSettings(kind="vllm", device="gpu")
    assert "CUDA_VISIBLE_DEVICES" not in variables(gpu)
    monkeypatch.setenv("SLURM_JOB_GPUS", "6,7")
    devices = (variables(gpu)["CUDA_VISIBLE_DEVICES"] or "").split(",")
    assert [device[:12] for device in devices] == ["GPU-00000006", "GPU-00000007"]
    assert "CUDA_VISIBLE_DEVICES" not in variables(EngineSettings(kind="vllm", device="cpu"))


def test_float32_is_calculated_with_all_bits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = EngineSettings(kind="vllm", device="gpu", dtype="float32")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in variables(EngineSettings(kind="vllm", device="gpu"))
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32x3")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "tf32x3"


@pytest.mark.parametrize(
    ("visible", "given"),
    [
        ("GPU-00000006,GPU-00000001-aaaa", "6,1"),
        ("GPU-00000006-aaaa-bbbb-cccc-dddddddddddd", None),
        ("3,5", None),
        ("GPU-ffffffff", None),
    ],
)
def test_an_engine_gets_the_whole_names_of_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, given: str | None
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    chosen = variables(EngineSettings(kind="vllm", device="gpu")).get("CUDA_VISIBLE_DEVICES")
    assert chosen == (given and ",".join(card(int(number))["uuid"] for number in given.split(",")))
