"""A model's folder or cache entry is whole: configuration, tokenizer, and every file of weights to its last byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import benchmarks, models, smollm
from harness.checks.check import Check, Question, failure, ok, warning
from harness.engine import Role
from harness.engines import adapter

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
_HEADER_LIMIT = 100 << 20
_HUB_SECONDS = 5.0


@dataclass
class Found:
    """A model on this machine."""

    checks: list[Check] = field(default_factory=list)
    folder: Path | None = None
    """Where it lies, whole or not; None: nowhere."""
    weight_bytes: int = 0


def find(role: Role, name: str, question: Question) -> Found:
    """Look for a model by name, hub id or folder, and at its files. Nothing is downloaded, nothing converted."""
    if Path(name).expanduser().is_dir():
        return _look(role, name, Path(name).expanduser(), question)
    if Path(name).is_absolute():
        return Found([failure(role, f"{name} is not on this machine: put it on a filesystem that the nodes share")])
    if name.lower() == smollm.NAME:
        return _smollm(role, question)
    if name.lower() in models.PAIR:
        return _of_the_pair(role, name.lower(), question)
    reference = models.resolve(name)
    folder = _cached(reference.path_or_hub_id, reference.revision)
    if folder is None:
        return Found([_not_cached(role, reference)])
    return _look(role, reference.name, folder, question)


def check_adapter(name: str) -> Check:
    """The target's LoRA weights lie here and can be served."""
    try:
        found = adapter.read(name)
    except ValueError as wrong:
        return failure("selection adapter", f"{wrong}: put it on a filesystem that the nodes share")
    return ok("selection adapter", f"{name}: LoRA of rank {found.rank}, {adapter.fingerprint(Path(found.path))}")


def _look(role: Role, name: str, folder: Path, question: Question) -> Found:
    checks = [*_configuration(role, folder, question), *_tokenizer_files(role, folder)]
    files, problems = _weights(folder)
    checks += [failure(role, f"{folder}: {problem}") for problem in problems]
    size = sum(path.stat().st_size for path in files if path.is_file())
    if not any(check.status == "failure" for check in checks):
        checks.insert(0, ok(role, f"{name}: {len(files)} whole files of weights, {size / 2**30:.1f} GiB"))
    return Found(checks, folder, size)


def _configuration(role: Role, folder: Path, question: Question) -> Iterator[Check]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
        family = config["model_type"]
    except FileNotFoundError:
        yield failure(role, f"{folder} holds no config.json, so it is not a model in Hugging Face format")
        return
    except (OSError, ValueError, KeyError, TypeError) as problem:
        yield failure(role, f"{folder}/config.json is no model's configuration ({problem!r}): fetch the model again")
        return
    text = config.get("text_config") or config
    context = text.get("max_position_embeddings")
    if isinstance(context, int) and context < question.token_budget:
        yield warning(
            role, f"{family} reads {context} tokens, less than --token-budget {question.token_budget}: lower the budget"
        )


def _tokenizer_files(role: Role, folder: Path) -> Iterator[Check]:
    if not any((folder / name).is_file() and (folder / name).stat().st_size for name in _TOKENIZERS):
        yield failure(role, f"{folder} holds no tokenizer.json: fetch the model again, its tokenizer included")


def _weights(folder: Path) -> tuple[list[Path], list[str]]:
    """Files of weights that there should be, and what is wrong with them."""
    index = next((folder / name for name in _INDEXES if (folder / name).exists()), None)
    if index is None:
        files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
        files = sorted({*files, *(sister for path in files for sister in _sisters(path))})
    else:
        try:
            files = sorted(folder / name for name in set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            return [], [f"{index.name} is no index of weights ({problem!r}): fetch the model again"]
    if not files:
        return [], ["no weights (*.safetensors): fetch the model again"]
    missing = [path.name for path in files if not path.is_file()]
    problems = [
        f"{path.name} {reason}: fetch it again" for path in files if path.is_file() and (reason := _broken(path))
    ]
    if missing:
        problems.insert(
            0, f"{len(missing)} of {len(files)} files of weights are missing ({missing[0]} …): fetch them again"
        )
    return files, problems


def _sisters(path: Path) -> Iterator[Path]:
    if numbered := _NUMBERED.fullmatch(path.name):
        stem, _, count, ending = numbered.groups()
        yield from (path.with_name(f"{stem}-{i:05}-of-{count}{ending}") for i in range(1, int(count) + 1))


def _broken(path: Path) -> str | None:
    """Why a file of weights is not whole; None where it is, as far as can be seen from its header and size."""
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
                return "is no safetensors file"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        return f"cannot be read ({type(problem).__name__})"
    whole = 8 + length + max(ends, default=0)
    return None if size >= whole else f"is cut off at {size} of {whole} bytes"


def _of_the_pair(role: Role, name: str, question: Question) -> Found:
    try:
        return _look(role, name, models.pair_folder(name), question)
    except models.ModelUnavailable as unavailable:
        return Found([failure(role, str(unavailable))])


def _smollm(role: Role, question: Question) -> Found:
    folder = smollm.made()
    if (folder / "config.json").is_file():
        return _look(role, smollm.NAME, folder, question)
    try:
        smollm.gguf_file()
    except smollm.ModelUnavailable as unavailable:
        return Found([failure(role, str(unavailable))])
    return Found([warning(role, f"{smollm.NAME} is converted at the first launch, half a minute")])


def _cached(hub_id: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def _not_cached(role: Role, reference: models.ModelRef) -> Check:
    revision = f" --revision {reference.revision}" if reference.revision else ""
    remedy = (
        f"on a machine that reaches the hub, with the nodes' HF_HOME: hf download {reference.path_or_hub_id}{revision}"
    )
    if benchmarks.is_offline():
        return failure(role, f"{reference.name} is not in the cache and HF_HUB_OFFLINE is set; {remedy}")
    if not benchmarks.hub_answers(_HUB_SECONDS):
        return failure(role, f"{reference.name} is not in the cache and the hub does not answer; {remedy}")
    return warning(role, f"{reference.name} is not in the cache, workers would download it; better now: {remedy}")
