"""The environment: what is recorded, and which GPUs this process may use, with stand-ins for the drivers' tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import environment, gpus
from tests.harness.cards import card, put_nvidia_smi, put_tool

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


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("3", [3]),
        ("5, 2", [5, 2]),
        ("", []),
        ("NoDevFiles", []),
        ("1,9,2", [1]),
        ("1,-1,2", [1]),
        ("GPU-00000006,GPU-00000001-aaaa-bbbb-cccc-dddddddddddd", [6, 1]),
    ],
)
def test_cuda_visible_devices_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [card.index for card in gpus.visible_gpus()] == expected
    assert len(gpus.node_gpus()) == 8
    assert gpus.accelerator() == ("gpu" if expected else "cpu")


def test_slices_take_the_place_of_divided_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [card(0, "NVIDIA A100-SXM4-40GB", 40960, mig="Enabled"), card(1, mig="Enabled")]
    slices = {0: [("3g.20gb", "MIG-c6d4f1ef-42e4"), ("1g.5gb+me", "MIG-cba663e8-9bed")]}
    put_nvidia_smi(tmp_path, monkeypatch, cards, slices)
    assert [part.name for part in gpus.node_gpus()] == [
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me",
    ]
    [first] = gpus.visible_gpus()
    assert (first.uuid, first.memory_bytes) == ("MIG-c6d4f1ef-42e4", 20 * 10**9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-cba663e8-9bed,MIG-c6d4f1ef-42e4")
    [second] = gpus.visible_gpus()
    assert (second.device, second.memory_bytes) == ("MIG-cba663e8-9bed", 5 * 10**9)


def test_a_device_file_is_a_gpu_only_where_it_may_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tool(tmp_path, monkeypatch, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path / "dev")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert gpus.accelerator() == "cpu"
    (tmp_path / "dev" / "nvidia0").touch()
    assert gpus.accelerator() == "gpu"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as a control group answers; root may open all
    assert gpus.accelerator() == "cpu"


def test_a_card_that_two_engines_share_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [card.index for card in gpus.held_gpus([(None, 1), (None, 2)])] == [4, 5]
    assert [card.index for card in gpus.held_gpus([(("7",), 1), (("4", "5"), 2)])] == [7, 4, 5]
    assert gpus.held_gpus([]) == []
