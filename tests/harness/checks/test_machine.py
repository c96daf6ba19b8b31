"""The doctor's checks of output folder, packages, devices and Slurm, on real failures where they can be made."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from harness import environment
from harness.checks import machine
from harness.checks.finding import Check, Question, Status
from jobs.checks import checks as every_check
from tests.harness.cards import card, put_nvidia_smi
from tests.harness.checks.question import QUESTION, asked, problem_texts, worst_status


def test_a_file_in_the_place_of_the_output_folder_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = list(machine.check_storage(asked(output=str(tmp_path / "file" / "runs"))))
    assert worst_status(checks) == "failure"


def test_a_filesystem_without_locks_or_with_locks_of_one_node_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for place, answer, message in (
        ("harness.checks.machine.try_lock", lambda path: "taken", "acquired a lock that was already held"),
        ("fcntl.flock", refuse, "No locks available"),
    ):
        monkeypatch.setattr(place, answer)
        checks = machine.check_storage(asked(output=str(tmp_path)))
        [check] = [check for check in checks if check.subject == "file locking"]
        assert (check.status, message in check.text) == ("failure", True)


def test_a_check_that_breaks_or_hangs_is_reported_and_the_others_complete() -> None:
    def broken() -> list[Check]:
        raise KeyError("surprise")

    def hanging() -> list[Check]:
        time.sleep(6)
        return []

    question = asked(engine="scripted", output="/tmp", limit_seconds=3)
    checks = {check.subject: check for check in every_check(question, {"one": broken, "other": hanging})}
    assert (checks["one"].status, "surprise" in checks["one"].text) == ("failure", True)
    assert (checks["other"].status, "3 s" in checks["other"].text) == ("warning", True)
    assert checks["python"].status == "ok"


def test_packages_that_are_missing_or_of_another_version_are_failures_with_their_remedy() -> None:
    lines = ["click>=8", "rich<1", "no-such-package-of-ours>=2", 'never-needed; python_version < "3"']
    checks = list(machine.check_packages(lines))
    assert [check.status for check in checks] == ["failure", "failure", "ok"]
    assert ['"rich<1"' in checks[0].text, '"no-such-package-of-ours>=2"' in checks[1].text] == [True, True]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ImportError('libcudart.so.12: no such file')", "libcudart.so.12: no such file"),
        ("import os; os._exit(9)", "exited with status 9"),
    ],
)
def test_a_vllm_that_cannot_be_used_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"{body}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    checks = [c for c in machine.check_engine(asked(probe_seconds=5)) if "import" in c.text]
    assert (worst_status(checks), message in problem_texts(checks)) == ("failure", True), checks


@pytest.mark.parametrize(
    ("visible", "used", "status", "message"),
    [
        (None, 0, "ok", ""),
        (None, 90000, "warning", "90000 MiB used by other processes"),
        ("7", 0, "failure", "CUDA_VISIBLE_DEVICES allows"),
        ("", 0, "failure", ""),  # of a job that asked for some
    ],
)
def test_gpus_are_checked(
    visible: str | None, used: int, status: Status, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, "NVIDIA H200", 143771, used) for i in range(2)])
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    question = asked(on_node=True, sbatch={"gpus-per-node": "2"}) if visible == "" else asked()
    checks = list(machine.check_devices(question))
    assert worst_status(checks) == status
    assert message in problem_texts(checks)


@pytest.fixture
def vllm_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_version", {"vllm": "0.32.0", "torch": "2.13.0"}.get)
    monkeypatch.delenv("VLLM_ENABLE_CUDA_COMPATIBILITY", raising=False)


def driver_checks(question: Question = QUESTION) -> dict[str, Check]:
    return {check.subject: check for check in machine.check_driver(question)}


@pytest.mark.usefixtures("vllm_for_cuda")
def test_a_driver_must_serve_the_cuda_of_the_installed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, compatibility, status in (
        ("580.65.06", "0", "ok"),
        ("570.86.15", "0", "failure"),
        ("570.86.15", "1", "warning"),
    ):
        put_nvidia_smi(tmp_path, monkeypatch, [card(driver=version)])
        monkeypatch.setenv("VLLM_ENABLE_CUDA_COMPATIBILITY", compatibility)
        check = driver_checks()["driver"]
        assert (check.status, version in check.text) == (status, True)


@pytest.mark.usefixtures("vllm_for_cuda")
@pytest.mark.parametrize(("method", "is_told"), [("speccot", True), ("vanilla", False)])
def test_a_card_that_serves_one_process_is_named_where_two_engines_would_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, is_told: bool
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(driver="580.1", mode="Exclusive_Process")])
    assert ("compute mode" in driver_checks(asked(method=method))) == is_told


def test_a_node_with_another_environment_is_a_failure() -> None:
    assert list(machine.check_same_environment(QUESTION)) == []
    [same] = machine.check_same_environment(asked(login_versions=environment.versions()))
    assert same.status == "ok"
    login = environment.versions() | {"vllm": "0.31.0"}
    [other] = machine.check_same_environment(asked(login_versions=login))
    assert other.status == "failure"
    assert "0.31.0" in other.text
