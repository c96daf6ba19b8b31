"""The doctor's checks of drivers and compute modes, with a stand-in for nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import environment
from harness.checks import machine
from harness.checks.finding import Check, Question, Status
from tests.harness.cards import card, put_nvidia_smi
from tests.harness.checks.question import QUESTION, asked

INSTALLED = {"vllm": "0.32.0", "torch": "2.13.0"}


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM for CUDA is installed."""
    monkeypatch.setattr(environment, "installed_version", INSTALLED.get)
    monkeypatch.delenv("VLLM_ENABLE_CUDA_COMPATIBILITY", raising=False)


def found(question: Question = QUESTION) -> dict[str, Check]:
    return {check.subject: check for check in machine.check_driver(question)}


@pytest.mark.parametrize(
    ("version", "status"),
    [("570.86.15", "failure"), ("580.65.06", "ok")],
)
def test_a_driver_must_serve_the_cuda_of_the_installed_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: Status
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver=version)])
    check = found()["driver"]
    assert check.status == status
    assert version in check.text
    if status == "failure":
        monkeypatch.setenv("VLLM_ENABLE_CUDA_COMPATIBILITY", "1")
        assert found()["driver"].status == "warning"


@pytest.mark.parametrize(("method", "is_told"), [("speccot", True), ("vanilla", False)])
def test_a_card_that_serves_one_process_is_named_where_two_engines_would_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, is_told: bool
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver="580.1", mode="Exclusive_Process")])
    assert ("compute mode" in found(asked(method=method))) == is_told


def test_a_node_with_another_environment_is_a_failure() -> None:
    assert list(machine.check_same_environment(QUESTION)) == []
    [same] = machine.check_same_environment(asked(login_versions=environment.versions()))
    assert same.status == "ok"
    login = environment.versions() | {"vllm": "0.31.0"}
    [other] = machine.check_same_environment(asked(login_versions=login))
    assert other.status == "failure"
    assert "0.31.0" in other.text
