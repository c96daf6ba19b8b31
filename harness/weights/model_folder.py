"""Whether the files of a model on this machine are whole: its configuration, its tokenizer and every file of weights.

Sizes, headers and indexes are read and no weights, so that a login node tells within a second, without torch.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.weights.models import GIT_LFS_POINTER, read_config

_SAFETENSORS, _BIN = "model.safetensors.index.json", "pytorch_model.bin.index.json"
_OF_A_TRAINER = {"training_args.bin", "optimizer.bin", "scheduler.bin"}
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
_HEADER_LIMIT = 100 << 20
"""Bytes of the longest header that the safetensors library reads, and of an index."""
_VOCABULARIES = (("tokenizer.model",), ("spiece.model",), ("tiktoken.model",), ("vocab.json", "merges.txt"))
"""Files that transformers makes a fast tokenizer of where there is no tokenizer.json."""


@dataclass(frozen=True)
class WeightFiles:
    """The files of weights that a model needs, and what is wrong with them."""

    files: Sequence[Path] = ()
    """Those that there should be."""
    missing: str | None = None
    """A line that says which of them are not there; None: all are."""
    damaged: Sequence[str] = ()
    """A line for each that is there and not whole."""

    @property
    def problems(self) -> list[str]:
        """All that is wrong, one line each."""
        return [*([self.missing] if self.missing else []), *self.damaged]

    @property
    def num_bytes(self) -> int:
        """Size of those that are there."""
        return sum(path.stat().st_size for path in self.files if path.is_file())


def problems(folder: Path, *, to_download: bool = False) -> Iterator[str]:
    """Yield a line for everything that keeps engines from loading the model in a folder; it goes on after its name.

    `to_download`: engines fetch the files that are missing, as of a hub id, so that only damaged ones count.
    """
    if (folder / "config.json").is_file() or not to_download:
        yield from _configuration(folder)
    if (problem := tokenizer_problem(folder)) and not (to_download and problem.startswith("has no")):
        yield problem
    weights = weight_files(folder)
    yield from weights.damaged if to_download else weights.problems


def _configuration(folder: Path) -> Iterator[str]:
    file = folder / "config.json"
    if not file.is_file():
        yield "has no config.json, so it is not a model in Hugging Face format"
        return
    try:
        if not isinstance(read_config(file).get("model_type"), str):
            yield "config.json names no model_type: download the model again"
    except ValueError as problem:
        yield f"{str(problem).removeprefix(f'{folder}/')}: download the model again"


def tokenizer_problem(folder: Path) -> str | None:
    """Return why transformers could not read the tokenizer in a folder, as far as its files show."""
    file = folder / "tokenizer.json"
    is_whole = file.is_file() and file.stat().st_size > 0
    vocabularies: Sequence[Sequence[str]] = (("tokenizer.json",), *_VOCABULARIES) if is_whole else _VOCABULARIES
    names = next((found for found in vocabularies if all((folder / name).is_file() for name in found)), None)
    if names is None:
        other = "tekken.json, which transformers does not read, and " if (folder / "tekken.json").is_file() else ""
        return f"has {other}no tokenizer.json: download the model again, including its tokenizer"
    for name in names:
        head, tail = _ends(folder / name)
        if head.startswith(GIT_LFS_POINTER):
            return f"{name} is a Git LFS pointer (git lfs pull): download it again"
        if not head or (name == "tokenizer.json" and not tail.rstrip().endswith(b"}")):
            return f"{name} is truncated: download it again"
    return None


def _ends(file: Path) -> tuple[bytes, bytes]:
    with file.open("rb") as opened:
        head = opened.read(64)
        opened.seek(max(0, file.stat().st_size - 64))
        return head, opened.read(64)


def weight_files(folder: Path) -> WeightFiles:
    """Return the files of weights that a folder should have, and what is wrong with them.

    Engines read *.safetensors, and *.bin where there are none, each by its index where it has one.
    """
    safetensors = sorted(folder.glob("*.safetensors"))
    files = safetensors or [path for path in sorted(folder.glob("*.bin")) if path.name not in _OF_A_TRAINER]
    is_safe = bool(safetensors) or ((folder / _SAFETENSORS).exists() and not files)
    index = folder / (_SAFETENSORS if is_safe else _BIN)
    if index.exists():
        try:
            files = sorted(folder / name for name in _indexed(index))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            line = f"{index.name} is not a valid index of weights ({problem!r}): download the model again"
            return WeightFiles(damaged=[line])
    else:
        files = [path for path in files if not path.name.startswith("consolidated")] or files
        files = sorted({*files, *(sibling for path in files for sibling in _siblings(path))})
    if not files:
        return WeightFiles(missing=_no_weights(folder))
    missing = [path.name for path in files if not path.is_file()]
    return WeightFiles(
        files,
        f"{len(missing)} of {len(files)} weight files are missing ({missing[0]} …): download them again"
        if missing
        else None,
        [f"{path.name} {reason}: download it again" for path in files if path.is_file() and (reason := defect(path))],
    )


def _indexed(index: Path) -> set[str]:
    if index.stat().st_size > _HEADER_LIMIT:
        raise ValueError("it is too large")
    names = set(json.loads(index.read_bytes())["weight_map"].values())
    if not names or any(Path(name).name != name for name in names):
        raise ValueError("it names no files beside it")
    return names


def _no_weights(folder: Path) -> str:
    if any(folder.glob("*.gguf")):
        return (
            "has GGUF weights alone, which no engine here reads: download its *.safetensors, or have llama-server run "
            "it and give its address"
        )
    return "has no weights (*.safetensors): download the model again"


def _siblings(path: Path) -> Iterator[Path]:
    """Return all files of a numbered series such as model-00001-of-00004.safetensors."""
    if numbered := _NUMBERED.fullmatch(path.name):
        stem, _, count, ending = numbered.groups()
        yield from (path.with_name(f"{stem}-{i:05}-of-{count}{ending}") for i in range(1, int(count) + 1))


def defect(path: Path) -> str | None:
    """Return what is wrong with a file of weights, as far as its header and size show; None if it is whole."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    try:
        with path.open("rb") as file:
            head = file.read(8)
            if GIT_LFS_POINTER.startswith(head):
                return "is a Git LFS pointer (git lfs pull)"
            if path.suffix != ".safetensors":
                # PyTorch writes zip archives, whose list of contents comes last; older files show nothing.
                return "is truncated" if head.startswith(b"PK\3\4") and not zipfile.is_zipfile(path) else None
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length > min(size, _HEADER_LIMIT):
                return "is not a safetensors file" if len(head) == 8 else "is truncated"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as problem:
        return f"cannot be read ({type(problem).__name__})"
    if size == expected:
        return None
    return f"is truncated at {size} of {expected} bytes" if size < expected else f"has {size} bytes, not {expected}"
