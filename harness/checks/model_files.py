"""Checks that a model's folder or cache entry is complete: configuration, tokenizer, and every weight file's length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.checks.check import Check, Question, failure, ok, warning
from harness.engine import Role
from harness.engines import adapter
from harness.plural import counted
from harness.problems import hub
from harness.weights import models, smollm

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
_HEADER_LIMIT = 100 << 20
_HUB_SECONDS = 5.0


@dataclass
class ModelFiles:
    """A model's files on this machine, and what the checks of them say."""

    checks: list[Check] = field(default_factory=list)
    folder: Path | None = None
    """Folder of the files, complete or not; None if the model is not on this machine."""
    weight_bytes: int = 0


def find(role: Role, name: str, question: Question) -> ModelFiles:
    """Find a model by name, hub id or folder, and check its files. Nothing is downloaded or converted."""
    if (folder := models.folder_named(name)) is not None:
        return _checked(role, name, folder, question)
    if Path(name).is_absolute():
        return ModelFiles(
            [failure(role, f"{name} is not on this machine: put it on a filesystem that the nodes share")]
        )
    if name.lower() == smollm.NAME:
        return _smollm(role, question)
    if name.lower() in models.BUNDLED:
        return _bundled(role, name.lower(), question)
    reference = models.resolve(name)
    folder = _cached(reference.path_or_hub_id, reference.revision)
    if folder is None:
        return ModelFiles([_not_cached(role, reference)])
    return _checked(role, reference.name, folder, question)


def check_adapter(name: str) -> Check:
    """Check that a folder has LoRA weights for the target that can be served."""
    try:
        selection = adapter.read(name)
    except ValueError as error:
        return failure("selection adapter", f"{error}: put it on a filesystem that the nodes share")
    text = f"{name}: LoRA of rank {selection.rank}, {adapter.fingerprint(Path(selection.path))}"
    return ok("selection adapter", text)


def check_speculator(reference: models.ModelRef) -> Iterator[Check]:
    """Check the weight files of what proposes tokens; it needs no tokenizer, because it reads the target's tokens."""
    folder = Path(reference.path_or_hub_id)
    cached = folder if folder.is_dir() else _cached(reference.path_or_hub_id, reference.revision)
    if cached is None:
        yield _not_cached("speculator", reference)
        return
    files, problems = _weights(cached)
    yield from (failure("speculator", f"{cached}: {problem}") for problem in problems)
    if not problems:
        size = sum(path.stat().st_size for path in files)
        yield ok(
            "speculator", f"{reference.name}: {counted(len(files), 'complete weight file')}, {size / 2**30:.1f} GiB"
        )


def _checked(role: Role, name: str, folder: Path, question: Question) -> ModelFiles:
    checks = [*_configuration(role, folder, question), *_tokenizer_files(role, folder)]
    files, problems = _weights(folder)
    checks += [failure(role, f"{folder}: {problem}") for problem in problems]
    size = sum(path.stat().st_size for path in files if path.is_file())
    if not any(check.status == "failure" for check in checks):
        checks.insert(0, ok(role, f"{name}: {_described(files, size)}"))
    return ModelFiles(checks, folder, size)


def _described(files: Sequence[Path], num_bytes: int) -> str:
    return f"{counted(len(files), 'complete weight file')}, {num_bytes / 2**30:.1f} GiB"


def _configuration(role: Role, folder: Path, question: Question) -> Iterator[Check]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
        family = config["model_type"]
    except FileNotFoundError:
        yield failure(role, f"{folder} has no config.json, so it is not a model in Hugging Face format")
        return
    except (OSError, ValueError, KeyError, TypeError) as problem:
        yield failure(role, f"{folder}/config.json is invalid ({problem!r}): download the model again")
        return
    text = config.get("text_config") or config
    context = text.get("max_position_embeddings")
    if isinstance(context, int) and context < question.token_budget:
        yield warning(
            role, f"{family} has a context of {context} tokens, below --token-budget {question.token_budget}: lower it"
        )


def _tokenizer_files(role: Role, folder: Path) -> Iterator[Check]:
    if not any((folder / name).is_file() and (folder / name).stat().st_size for name in _TOKENIZERS):
        yield failure(role, f"{folder} has no tokenizer.json: download the model again, including its tokenizer")


def _weights(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the weight files that there should be, and a line for each problem with them."""
    index = next((folder / name for name in _INDEXES if (folder / name).exists()), None)
    if index is None:
        files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
        files = sorted({*files, *(sibling for path in files for sibling in _siblings(path))})
    else:
        try:
            files = sorted(folder / name for name in set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            return [], [f"{index.name} is not a valid index of weights ({problem!r}): download the model again"]
    if not files:
        return [], ["no weights (*.safetensors): download the model again"]
    missing = [path.name for path in files if not path.is_file()]
    problems = [
        f"{path.name} {reason}: download it again" for path in files if path.is_file() and (reason := _defect(path))
    ]
    if missing:
        text = f"{len(missing)} of {len(files)} weight files are missing ({missing[0]} …): download them again"
        problems.insert(0, text)
    return files, problems


def _siblings(path: Path) -> Iterator[Path]:
    """Return all files of a numbered series such as model-00001-of-00004.safetensors."""
    if numbered := _NUMBERED.fullmatch(path.name):
        stem, _, count, ending = numbered.groups()
        yield from (path.with_name(f"{stem}-{i:05}-of-{count}{ending}") for i in range(1, int(count) + 1))


def _defect(path: Path) -> str | None:
    """Return what is wrong with a weight file, as far as its header and size show; None if it is complete."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    try:
        with path.open("rb") as file:
            head = file.read(8)
            if head.startswith(b"version "):
                return "is a Git LFS pointer (git lfs pull)"
            if path.suffix != ".safetensors":
                return None
            length = int.from_bytes(head, "little")
            if length > min(size, _HEADER_LIMIT):
                return "is not a safetensors file"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        return f"cannot be read ({type(problem).__name__})"
    expected_size = 8 + length + max(ends, default=0)
    return None if size >= expected_size else f"is truncated at {size} of {expected_size} bytes"


def _bundled(role: Role, name: str, question: Question) -> ModelFiles:
    try:
        return _checked(role, name, models.pair_folder(name), question)
    except models.ModelUnavailable as unavailable:
        return ModelFiles([failure(role, str(unavailable))])


def _smollm(role: Role, question: Question) -> ModelFiles:
    folder = smollm.made()
    if (folder / "config.json").is_file():
        return _checked(role, smollm.NAME, folder, question)
    try:
        smollm.gguf_file()
    except smollm.ModelUnavailable as unavailable:
        return ModelFiles([failure(role, str(unavailable))])
    return ModelFiles(
        [warning(role, f"{smollm.NAME} will be converted at the first launch, which takes half a minute")]
    )


def _cached(hub_id: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def _not_cached(role: str, reference: models.ModelRef) -> Check:
    revision = f" --revision {reference.revision}" if reference.revision else ""
    remedy = (
        "on a machine with access to the hub, with the nodes' HF_HOME: "
        f"hf download {reference.path_or_hub_id}{revision}"
    )
    if hub.is_offline():
        return failure(role, f"{reference.name} is not in the cache and HF_HUB_OFFLINE is set; {remedy}")
    if not hub.is_reachable(_HUB_SECONDS):
        return failure(role, f"{reference.name} is not in the cache and the hub does not answer; {remedy}")
    return warning(role, f"{reference.name} is not in the cache, so every worker would download it; instead, {remedy}")
