"""What the files of a model's folder tell before an engine loads it, on real damages."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def keep(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:num_bytes])


def as_gguf(folder: Path) -> None:
    remove(folder, *(path.name for path in folder.glob("model*")))
    (folder / "model.gguf").write_bytes(b"GGUF")


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "an index names files elsewhere": (
        lambda f: (f / INDEX).write_text(json.dumps({"weight_map": {"w": "../other.safetensors"}})),
        "not a valid weight index",
    ),
    "a shard is missing": (lambda f: (f / SECOND).unlink(), "1 of 2 weight files are missing (model-00002"),
    "a shard is empty": (lambda f: (f / SECOND).write_bytes(b""), f"{SECOND} is empty"),
    "a shard is cut off": (lambda f: cut(f / SECOND), f"{SECOND} is damaged ("),
    "a shard is a Git LFS pointer": (
        lambda f: (f / SECOND).write_text(POINTER),
        f"{SECOND} is a Git LFS pointer (git lfs pull)",
    ),
    "a shard is cut in its header": (lambda f: keep(f / SECOND, 30), f"{SECOND} is damaged ("),
    "a shard is too long": (lambda f: (f / SECOND).open("ab").write(b"more"), f"{SECOND} is damaged ("),
    "GGUF alone": (as_gguf, "has only GGUF weights"),
    "no weights": (lambda f: remove(f, *(p.name for p in f.glob("model*"))), "no weights"),
    "no config.json": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "a broken config.json": (lambda f: cut(f / "config.json"), "not a valid configuration"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder_is_told_by_a_line_that_names_what_is_missing(tmp_path: Path, damage: str) -> None:
    folder = write_model(tmp_path / "model")
    assert models.faults_of(folder) == []
    harm, text = DAMAGES[damage]
    harm(folder)
    assert text in "\n".join(models.faults_of(folder))


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
