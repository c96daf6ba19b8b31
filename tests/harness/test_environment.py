"""The environment: what is recorded, and that only what cannot work is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import environment
from tests.harness.cards import card, put_nvidia_smi

ROOT = Path(__file__).resolve().parents[2]


def test_a_commit_is_dirty_where_untracked_code_lies_among_the_code(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    for name in ("__init__.py", "environment.py", "gpus.py"):
        (tmp_path / "harness" / name).write_bytes((ROOT / "harness" / name).read_bytes())
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    def recorded() -> str:
        command = [sys.executable, "-B", "-c", "import harness.environment as e; print(e.git_commit())"]
        variables = {"PATH": os.environ["PATH"]}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    clean = recorded()
    assert len(clean) == 40
    (tmp_path / "notes.txt").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "spec.json").touch()
    assert recorded() == clean
    (tmp_path / "harness" / "methods").mkdir()
    (tmp_path / "harness" / "methods" / "mine.py").touch()
    assert recorded() == f"{clean}-dirty"
    subprocess.run(["git", "clean", "-qfd", "harness"], cwd=tmp_path, check=True)
    (tmp_path / "harness" / "gpus.py").write_text((ROOT / "harness" / "gpus.py").read_text() + "\n")
    assert recorded() == f"{clean}-dirty"


def test_the_recorded_gpus_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i, "NVIDIA H200", 143771) for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    [gpu] = environment.hardware()["gpus"]
    assert (gpu["name"], gpu["memory.total"], gpu["driver_version"]) == ("NVIDIA H200", "143771 MiB", "570.86.15")
    assert gpu["uuid"].startswith("GPU-00000003")
    assert environment.accelerator() == "gpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (environment.hardware()["gpus"], environment.accelerator()) == ([], "cpu")
