"""What the files of a model's folder tell before an engine loads it, on real damages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.weights import models


def write_shard(path: Path, num_bytes: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))


def write_model(folder: Path) -> Path:
    """Write a model folder in the expected format, with two files of weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 32768}))
    (folder / "tokenizer.json").write_text("{}")
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for shard in shards:
        write_shard(folder / shard)
    weight_map = {f"layer{i}": shard for i, shard in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


SECOND, INDEX = "model-00002-of-00002.safetensors", "model.safetensors.index.json"


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n".encode()


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        (INDEX, json.dumps({"weight_map": {"w": "../other.safetensors"}}).encode(), "not a valid weight index"),
        (SECOND, None, "1 of 2 weight files are missing (model-00002"),
        (SECOND, b"", f"{SECOND} is empty"),
        (SECOND, POINTER, f"{SECOND} is a Git LFS pointer (git lfs pull)"),
        (SECOND, -1, f"{SECOND} is damaged ("),
        (SECOND, 30, f"{SECOND} is damaged ("),  # cut off in its header
        ("model*", None, "no weights"),
        ("config.json", None, "has no config.json"),
        ("config.json", -1, "not a valid configuration"),
        ("tokenizer.json", None, "has no tokenizer.json"),
    ],
)
def test_a_damaged_model_folder_is_told_by_a_line_that_names_what_is_missing(
    name: str, change: bytes | int | None, told: str, tmp_path: Path
) -> None:
    """`change`: the file's new content, where it is cut off, or None where it is missing."""
    folder = write_model(tmp_path / "model")
    assert models.faults_of(folder) == []
    for path in folder.glob(name):
        content = path.read_bytes()
        path.unlink()
        if change is not None:
            path.write_bytes(content[:change] if isinstance(change, int) else change)
    assert told in "\n".join(models.faults_of(folder))


def test_weights_of_gguf_or_more_bytes_than_the_header_says_are_told(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with (folder / SECOND).open("ab") as file:
        file.write(b"more")
    assert f"{SECOND} is damaged (" in "\n".join(models.faults_of(folder))
    remove(folder, *(path.name for path in folder.glob("model*")))
    (folder / "model.gguf").write_bytes(b"GGUF")
    assert "has only GGUF weights" in "\n".join(models.faults_of(folder))


def test_a_configuration_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    names = ["\x1b[2J" + "X" * 10_000 + "ForMaskedLM"]
    (folder / "config.json").write_text(json.dumps({"model_type": "x", "architectures": names}))
    [fault] = models.faults_of(folder)
    assert fault.isprintable()
    assert len(fault) < 1000


@pytest.mark.parametrize(
    ("names", "left_over"),
    [
        (["model.safetensors"], "pytorch_model.bin.index.json"),
        (["pytorch_model.bin", "training_args.bin"], INDEX),
        (["model.safetensors", "consolidated.safetensors"], None),
    ],
)
def test_weights_of_one_kind_are_whole_whatever_is_left_of_another(
    tmp_path: Path, names: list[str], left_over: str | None
) -> None:
    """People download one kind of weights and leave the other out, but not its index."""
    folder = write_model(tmp_path / "model")
    remove(folder, *(path.name for path in folder.glob("model*")))
    for name in names:
        write_shard(folder / name)
    if left_over:
        (folder / left_over).write_text(json.dumps({"weight_map": {"w": "absent-00001-of-00002"}}))
    assert models.weight_files(folder).problems == []
