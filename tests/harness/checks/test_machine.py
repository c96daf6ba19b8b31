"""The doctor's checks of output folder, packages, devices and Slurm, on real failures where they can be made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.checks import machine
from harness.checks.finding import Check, Status
from jobs.checks import checks as every_check
from tests.harness.cards import card, put_nvidia_smi
from tests.harness.checks.question import ROOT, asked, problem_texts, worst_status


def storage_checks(output: Path) -> list[Check]:
    return list(machine.check_storage(asked(output=str(output))))


def test_a_file_in_the_place_of_the_output_folder_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert worst_status(storage_checks(tmp_path / "file" / "runs")) == "failure"


_CALLS = """
#include <errno.h>
int flock(int file, int operation) { %s }
"""
_CHECK = """
import json, sys
from dataclasses import asdict
from harness.checks import machine
from harness.checks.finding import Question
from harness.settings.launch_settings import PartialLaunch
launch = PartialLaunch.from_flags({"output": sys.argv[1]})
print(json.dumps([asdict(check) for check in machine.check_storage(Question(launch))]))
"""


@pytest.mark.needs_tool("compiler")
@pytest.mark.parametrize(
    ("flock", "message"),
    [
        ("errno = ENOLCK; return -1;", "No locks available"),
        ("return 0;", "acquired a lock that was already held"),
    ],
    ids=["no locks", "locks of one node only"],
)
def test_a_filesystem_without_locks_is_a_failure(tmp_path: Path, flock: str, message: str) -> None:
    """The system call answers as such a filesystem's would."""
    (tmp_path / "calls.c").write_text(_CALLS % flock)
    library = tmp_path / "calls.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "calls.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    [check] = [Check(**fields) for fields in json.loads(done.stdout) if fields["subject"] == "file locking"]
    assert check.status == "failure"
    assert message in check.text


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


# Packages, devices, Slurm


def test_packages_that_are_missing_or_of_another_version_are_failures_with_their_remedy() -> None:
    lines = ["click>=8", "rich<1", "no-such-package-of-ours>=2", 'never-needed; python_version < "3"']
    checks = list(machine.check_packages(lines))
    assert [check.status for check in checks] == ["failure", "failure", "ok"]
    assert ['"rich<1"' in checks[0].text, '"no-such-package-of-ours>=2"' in checks[1].text] == [True, True]


def fake_vllm(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Make a package named vllm that is imported instead of any installed one."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text(f"{body}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("raise ImportError('libcudart.so.12: no such file')", "failure", "libcudart.so.12: no such file"),
        ("import os; os._exit(9)", "failure", "exited with status 9"),
    ],
    ids=["broken", "crashing"],
)
def test_a_vllm_that_cannot_be_used_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, status: Status, message: str
) -> None:
    fake_vllm(tmp_path, monkeypatch, body)
    checks = [c for c in machine.check_engine(asked(probe_seconds=5)) if "import" in c.text]
    assert (worst_status(checks), message in problem_texts(checks)) == (status, True), checks


@pytest.mark.parametrize(
    ("visible", "used", "status", "message"),
    [
        (None, 0, "ok", ""),
        (None, 90000, "warning", "90000 MiB used by other processes"),
        ("7", 0, "failure", "allowed by CUDA_VISIBLE_DEVICES"),
    ],
)
def test_gpus_are_checked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    used: int,
    status: Status,
    message: str,
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, "NVIDIA H200", 143771, used) for i in range(2)])
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    checks = list(machine.check_devices(asked()))
    assert worst_status(checks) == status
    assert message in problem_texts(checks)


def test_a_job_that_requested_gpus_and_sees_none_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    question = asked(on_node=True, sbatch={"gpus-per-node": "2"})
    assert worst_status(list(machine.check_devices(question))) == "failure"
