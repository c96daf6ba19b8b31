"""The doctor's checks of drivers and compute modes, with a stand-in for nvidia-smi."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness import environment
from harness.checks import hardware
from harness.checks.finding import Check, Probe, Question, Status
from harness.doctor import question_of
from harness.launch_options import PartialLaunch
from tests.harness.cards import card, put_nvidia_smi
from tests.harness.checks.question import QUESTION, worst_status

CUDA_13 = {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None, "count": 1, "capability": [8, 0], "problem": None}
INSTALLED = {"vllm": "0.32.0", "torch": "2.13.0"}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """vLLM for CUDA is installed, torch answers like it does on an A100, and no MPS runs."""
    monkeypatch.setattr(environment, "installed_version", INSTALLED.get)
    monkeypatch.setattr(hardware, "probe", lambda *_, **__: Probe(CUDA_13, None))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))
    monkeypatch.delenv("VLLM_ENABLE_CUDA_COMPATIBILITY", raising=False)


def found(question: Question = QUESTION) -> dict[str, Check]:
    return {check.subject: check for check in hardware.check_driver(question)}


@pytest.mark.parametrize(
    ("version", "status"),
    [("535.183.01", "failure"), ("550.90", "failure"), ("570.86.15", "failure"), ("580.65.06", "ok")],
)
def test_a_driver_must_serve_the_cuda_of_the_installed_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: Status
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver=version)])
    check = found()["driver"]
    assert check.status == status
    assert version in check.text
    if status == "failure":
        assert "cuda-compat-13-0" in check.text
        assert "container" in check.text
        monkeypatch.setenv("VLLM_ENABLE_CUDA_COMPATIBILITY", "1")
        assert found()["driver"].status == "warning"


def test_a_slice_of_a_card_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [card(0, driver="580.65.06", mig="Enabled")]
    put_nvidia_smi(tmp_path, monkeypatch, cards, {0: [("3g.40gb", "MIG-c6d4f1ef-42e4")]})
    assert found()["gpu 0"].status == "warning"
    assert "use whole cards" in found()["gpu 0"].text


@pytest.mark.parametrize(
    ("mode", "models", "mps", "status", "message"),
    [
        ("Default", 2, False, "ok", ""),
        ("Exclusive_Process", 2, False, "failure", "draft and target are two"),
        ("Exclusive_Process", 2, True, "ok", ""),
        ("Exclusive_Process", 1, False, "ok", ""),
    ],
)
def test_two_engines_cannot_share_a_card_in_exclusive_mode_without_mps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, models: int, mps: bool, status: Status, message: str
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver="580.1", mode=mode)])
    if mps:
        (tmp_path / "mps").mkdir()
        (tmp_path / "mps" / "control").touch()
    question = replace(QUESTION, models={"draft": "a", "target": "b"} if models == 2 else {"target": "b"})
    checks = found(question)
    assert worst_status(list(checks.values())) == status
    assert ("mps" in checks) == mps
    assert message in (checks["gpu 0"].text if "gpu 0" in checks else "")


def test_engines_on_cards_of_their_own_may_have_exclusive_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, driver="580.1", mode="Exclusive_Process") for i in range(2)])
    for own, shared in (("0", False), ("0,1", True)):
        launch = PartialLaunch.from_flags({"draft_gpus": own, "target_gpus": "1"})
        asked = replace(question_of(launch, on_node=False), models={"draft": "a", "target": "b"})
        assert ("gpu 0" in found(asked)) == shared


def test_a_draft_within_the_target_s_engine_needs_no_second_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver="580.1", mode="Exclusive_Process")])
    pair = replace(QUESTION, models={"draft": "a", "target": "b"}, params={})
    assert "gpu 0" in found(replace(pair, method="speccot"))
    assert "gpu 0" not in found(replace(pair, method="specdecode"))


def test_a_card_that_is_too_old_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(name="Tesla V100", driver="580.1", capability="7.0")])
    assert "needs 7.5" in found()["gpu 0"].text


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({}, "ok", "built for CUDA 13.0, sees 1"),
        ({"cuda": None}, "failure", "built for CPUs, but there is an NVIDIA GPU"),
        ({"cuda": None, "hip": "7.0"}, "failure", "built for ROCm 7.0, but there is an NVIDIA GPU"),
        ({"problem": "RuntimeError: The NVIDIA driver on your system is too old"}, "failure", "driver on your system"),
        ({"count": 4}, "warning", "sees 4 devices where 1 are visible"),
    ],
)
def test_torch_is_asked_what_it_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], status: Status, message: str
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver="580.1")])
    monkeypatch.setattr(hardware, "probe", lambda *_, **__: Probe(CUDA_13 | change, None))
    check = found()["torch on the gpu"]
    assert (check.status, message in check.text) == (status, True), check.text


def test_little_shared_memory_is_a_warning_where_engines_have_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, driver="580.1") for i in range(2)])
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=64 << 20))
    assert "shared memory" not in found(replace(QUESTION, tensor_parallel={"draft": 1, "target": 1}))
    check = found(replace(QUESTION, tensor_parallel={"target": 2}))["shared memory"]
    assert check.status == "warning"
    assert "--shm-size" in check.text


def test_without_a_gpu_nothing_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(environment, "accelerator", lambda: "cpu")
    assert found() == {}


def test_a_node_with_another_environment_is_a_failure() -> None:
    assert list(hardware.check_same_environment(QUESTION)) == []
    [same] = hardware.check_same_environment(replace(QUESTION, login_versions=environment.versions()))
    assert same.status == "ok"
    login = environment.versions() | {"vllm": "0.31.0"}
    asked = Question(**json.loads(replace(QUESTION, login_versions=login).to_json()))
    [other] = hardware.check_same_environment(asked)
    assert other.status == "failure"
    assert "vllm 0.32.0 here and 0.31.0 there" in other.text
