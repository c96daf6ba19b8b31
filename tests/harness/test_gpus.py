"""Which GPUs this process may use, with stand-ins for the drivers' tools on the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import gpus
from tests.harness.cards import card, put_nvidia_smi, put_tool

EIGHT = [card(i) for i in range(8)]


def indices() -> list[int]:
    return [card.index for card in gpus.visible_gpus()]


@pytest.fixture
def no_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev, so that these tests also hold on a machine with a GPU."""
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path / "dev")
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


def test_a_card_is_read_with_all_its_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(0, "NVIDIA H100", 81559, 1000, "535.1")])
    [h100] = gpus.node_gpus()
    assert (h100.name, h100.memory_bytes, h100.used_bytes) == ("NVIDIA H100", 81559 << 20, 1000 << 20)
    assert h100.driver == "535.1"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("3", [3]),
        ("5, 2", [5, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,9,2", [1]),
        ("1,-1,2", [1]),
        ("GPU-00000006,GPU-00000001-aaaa-bbbb-cccc-dddddddddddd", [6, 1]),
    ],
)
def test_cuda_visible_devices_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, EIGHT)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert indices() == expected
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


def test_a_device_file_is_a_gpu_only_where_it_may_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_device_files: Path
) -> None:
    put_tool(tmp_path, monkeypatch, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    (no_device_files / "nvidiactl").touch()
    assert gpus.accelerator() == "cpu"
    (no_device_files / "nvidia0").touch()
    assert gpus.accelerator() == "gpu"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as a control group answers; root may open all
    assert gpus.accelerator() == "cpu"


def test_a_card_that_two_engines_share_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, EIGHT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [card.index for card in gpus.held_gpus([(None, 1), (None, 2)])] == [4, 5]
    assert [card.index for card in gpus.held_gpus([(("7",), 1), (("4", "5"), 2)])] == [7, 4, 5]
    assert gpus.held_gpus([]) == []
