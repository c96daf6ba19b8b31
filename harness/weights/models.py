"""Models by name, and their files: the papers' models, hub ids, folders and the bundled pair.

Revisions are full commit ids of the hub, each confirmed as the snapshot in several independent public repositories.
Whether the files of a folder are whole is told from sizes, headers and indexes without reading weights, so that a login
node tells within a second. No heavy package is imported here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.cli.messages import did_you_mean
from harness.engine import Json, Role


class ModelUnavailable(RuntimeError):
    """A bundled model is missing; the message is one line with the remedy."""


PAIR = {"demo-draft": "draft", "demo-target": "target"}
"""The bundled pair, by name: its folders in the package. It knows stories like those of `demo` and nothing else."""
REWARD = "demo-reward"
"""The bundled pair's reward model."""
BUNDLED = {**PAIR, REWARD: "reward"}
"""All bundled models by name: their folders in the package."""
PAIR_FOLDER = "HARNESS_BUNDLED_MODELS"
"""Environment variable: where the bundled models lie, for code that runs without them, as a Slurm job's does."""


_AT_THE_HUB: Mapping[str, tuple[str, str]] = {
    "r1-distill-qwen-1.5b": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "ad9f0ae0864d7fbcd1cd905e3c6c5b069cc8b562"),
    "r1-distill-qwen-32b": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "711ad2ea6aa40cfca18895e8aca02ab92df1a746"),
    "r1-distill-llama-70b": ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "b1c0b44b4369b597ad119a196caf79a9c40e141e"),
    "qwq-32b": ("Qwen/QwQ-32B", "976055f8c83f394f35dbd3ab09a285a984907bd0"),
    "qwen2.5-1.5b-instruct": ("Qwen/Qwen2.5-1.5B-Instruct", "989aa7980e4cf806f80c7fef2b1adb7bc71aa306"),
    "qwen2.5-32b-instruct": ("Qwen/Qwen2.5-32B-Instruct", "5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd"),
    "qwen2.5-coder-0.5b-instruct": ("Qwen/Qwen2.5-Coder-0.5B-Instruct", "ea3f2471cf1b1f0db85067f1ef93848e38e88c25"),
    "qwen2.5-coder-1.5b-instruct": ("Qwen/Qwen2.5-Coder-1.5B-Instruct", "2e1fd397ee46e1388853d2af2c993145b0f1098a"),
}


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as an engine loads it, with what identifies it across runs."""

    name: str
    """A short name, a hub id, or a folder's own name."""
    path_or_hub_id: str
    revision: str | None
    """Commit of the hub repository; None for folders, and where it is neither given nor cached."""
    fingerprint: str | None
    """Hash over the configuration, tokenizer and samples of the weights of a folder; None for hub models."""

    @property
    def identity(self) -> str:
        """What tells the model from any other: the fingerprint, or hub id and revision."""
        return self.fingerprint or f"{self.path_or_hub_id}@{self.revision or 'unpinned'}"


MODELS: dict[str, ModelRef] = {name: ModelRef(name, *place, None) for name, place in _AT_THE_HUB.items()}
"""Models that have a short name here."""


def resolve(name: str, revision: str | None = None) -> ModelRef:
    """Resolve a short name, a folder with config.json, or a hub id (`org/name`, `org/name@revision`).

    Raises ValueError for anything else, and ModelUnavailable.
    """
    if name.lower() in BUNDLED:
        folder = pair_folder(name.lower())
        return ModelRef(name.lower(), str(folder), None, folder_fingerprint(folder))
    if pinned_model := MODELS.get(name.lower()):
        return replace(pinned_model, revision=revision or pinned_model.revision)
    if (local := folder_named(name)) is not None:
        if not (local / "config.json").is_file():
            raise ValueError(f"the folder {name} has no config.json, so it is not a model in Hugging Face format")
        folder = local.resolve()
        return ModelRef(folder.name, str(folder), None, folder_fingerprint(folder))
    if os.path.isfile(name):  # noqa: PTH113 Path.is_file raises OSError for a name that is too long
        gguf = ", or the address of a llama-server that runs the file" if name.endswith(".gguf") else ""
        raise ValueError(f"{name} is a file; valid: the folder with a model's config.json and weights{gguf}")
    hub = re.fullmatch(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?", name)
    if hub:
        pinned = dict(_AT_THE_HUB.values()).get(hub["id"])
        return ModelRef(hub["id"], hub["id"], revision or hub["revision"] or pinned or _cached_commit(hub["id"]), None)
    if name.startswith(("/", "./", "../", "~")):
        raise ValueError(f"{name}: no such folder")
    names = [*MODELS, *BUNDLED]
    hint = did_you_mean(name, names)
    raise ValueError(f"unknown model {name!r}; valid: {', '.join(names)}, or a hub id org/name or a folder{hint}")


def folder_named(name: str) -> Path | None:
    """Return the folder of that name; None where there is none, or where no folder can have such a name."""
    folder = os.path.expanduser(name)  # noqa: PTH111 Path's raises for the home of no user
    return Path(folder) if name.strip() and os.path.isdir(folder) else None  # noqa: PTH112 Path's raises for long names


_WINDOWS, _WINDOW_BYTES = 256, 16 << 10
"""Evenly spaced samples of each weight file: fine-tunes of the same base have equal names and sizes, and
reading gigabytes at every launch is too slow."""


GIT_LFS_POINTER = b"version https://git-lfs"
"""How the file begins that git leaves in place of a large one that it has not fetched."""


def read_config(path: Path) -> dict[str, Json]:
    """Read a model's config.json. Raises ValueError, with one line, where it is no configuration."""
    try:
        if reason := defect(path):
            raise ValueError(f"it {reason}")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is not a valid configuration ({problem})") from problem
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a valid configuration (no JSON object)")
    return config


def folder_fingerprint(folder: Path) -> str:
    """Return 16 hex digits that identify a model folder, without reading gigabytes of weights.

    Raises ValueError, with one line, where its config.json is no configuration.
    """
    config = read_config(folder / "config.json")
    # The version of the library that wrote the file, not a property of the model.
    config.pop("transformers_version", None)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    tokenizer = folder / "tokenizer.json"
    digest.update(hashlib.sha256(tokenizer.read_bytes() if tokenizer.is_file() else b"").digest())
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".bin", ".gguf"}:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as weights:
                for window in range(_WINDOWS):
                    weights.seek(size * window // _WINDOWS)
                    digest.update(weights.read(_WINDOW_BYTES))
    return digest.hexdigest()[:16]


def default_pair(method_name: str, device: Literal["gpu", "cpu"]) -> dict[Role, str]:
    """Return the models of the method's own paper; on a CPU the bundled toy pair.

    SCoT (arXiv 2504.19095) speculates for R1-Distill-Qwen-32B; SpecReason (arXiv 2504.07891) and SpecCoT for QwQ-32B.
    """
    if device == "cpu":
        return {"draft": "demo-draft", "target": "demo-target"}
    return {"draft": "r1-distill-qwen-1.5b", "target": "r1-distill-qwen-32b" if method_name == "scot" else "qwq-32b"}


def by_role(
    method: str,
    roles: Collection[Role],
    flags: Mapping[Role, str | None],
    device: Literal["gpu", "cpu"],
    *,
    compares: bool = False,
) -> tuple[Mapping[Role, str], str | None]:
    """Return the model of each of the roles, the one that is named or the method's own, and a warning of stand-ins.

    `compares`: the third model is asked whether steps mean the same, which the bundled reward model cannot say.
    Raises ValueError where a third model is needed that is neither named nor bundled for the pair.
    """
    names = {role: name for role, name in flags.items() if name is not None and role in roles}
    defaults = default_pair(method, device).items()
    assumed = {role: name for role, name in defaults if role in roles and role not in names}
    names |= assumed
    if "reward" in roles and "reward" not in names:
        if compares or not names or any(name.lower() not in PAIR for name in names.values()):
            raise ValueError(
                f"--reward: {method} needs a reward model or judge: a Hugging Face id, or a folder, of a causal "
                "language model that answers the question of the prompts about a step (see --list prompts)"
            )
        names["reward"] = REWARD
    if not assumed or device == "gpu":
        return names, None
    notice = (
        f"NO GPU: {' and '.join(assumed.values())} of the package stand in; they know stories like those of the "
        f"dataset demo and nothing else. For real models give {' and '.join(f'--{role}' for role in assumed)}."
    )
    return names, notice


def bundled_folder() -> Path:
    """Return the folder that contains the folders of the bundled pair's models."""
    elsewhere = os.environ.get(PAIR_FOLDER)
    return Path(elsewhere).absolute() if elsewhere else Path(__file__).parents[1] / "data" / "models"


def pair_folder(name: str) -> Path:
    """Return the folder of one of the bundled models. Raises ModelUnavailable."""
    folder = bundled_folder() / BUNDLED[name]
    if not (folder / "config.json").is_file():
        raise ModelUnavailable(f"the bundled model {name} is not in {folder}: install the whole package")
    return folder


def hub_cache(hub_id: str) -> Path:
    """Return the folder of the hub's cache on this machine that a model lies in, or would lie in.

    By the variables of huggingface_hub, which reads them once, on import.
    """
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(cache)).expanduser() / f"models--{hub_id.replace('/', '--')}"


def files_at_hand(path_or_hub_id: str, revision: str | None) -> Path | None:
    """Return the folder of a model on this machine, of a hub id in the hub's cache; None where there is none.

    Not all of its files need be there. `revision`: a commit, or what the cache knows as one.
    """
    if Path(path_or_hub_id).is_dir():
        return Path(path_or_hub_id)
    cache = hub_cache(path_or_hub_id)
    named = (revision, _cached_commit(path_or_hub_id, revision)) if revision else ()
    return next((folder for name in named if name and (folder := cache / "snapshots" / name).is_dir()), None)


def _cached_commit(hub_id: str, reference: str = "main") -> str | None:
    """The commit that the hub's cache on this machine holds under a name, as engines would load it offline."""
    file = hub_cache(hub_id) / "refs" / reference
    return file.read_text().strip() or None if file.is_file() else None


def config_at_hand(reference: ModelRef) -> Mapping[str, Json] | None:
    """Return the config.json of a folder or of the hub's cache; None where it is not on this machine.

    Raises ValueError where the file is no configuration.
    """
    folder = files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None or not (path := folder / "config.json").is_file():
        return None
    return read_config(path)


def architectures(config: Mapping[str, Json]) -> Iterator[str]:
    """Return the classes that a configuration names for the model."""
    names = config.get("architectures")
    yield from (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))


_SAFETENSORS, _BIN = "model.safetensors.index.json", "pytorch_model.bin.index.json"
_OF_A_TRAINER = {"training_args.bin", "optimizer.bin", "scheduler.bin"}
_VOCABULARIES = (
    ("tokenizer.json",), ("tokenizer.model",), ("spiece.model",), ("tiktoken.model",), ("vocab.json", "merges.txt"),
)  # fmt: skip
"""Files that transformers makes a fast tokenizer of."""


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


_ANOTHER_LOADER = frozenset({"load_format", "config_format", "hf_overrides"})
"""Arguments of vLLM's engine that have it read other files than these, or read them otherwise."""
_LONGEST_PROBLEM = 500
"""Characters of a line about a model's files."""


def faults_of(
    folder: Path,
    *,
    to_download: bool = False,
    proposes: bool = False,
    rates: bool = False,
    arguments: Collection[str] = (),
) -> list[str]:
    """Return what keeps engines from loading the model in a folder and writing with it, as far as its files tell.

    One line each, which names the file and what helps. `to_download`: engines fetch what is missing. `proposes`: its
    weights are loaded beside the target's, which needs no tokenizer. `rates`: it may have a head of its own instead of
    writing. `arguments`: the engine's own.
    """

    def of(problem: str) -> str:
        join = " " if problem.startswith("has ") else ": " if problem[0].isdigit() else "/"
        # It quotes what the files say, which may be anything.
        shown = problem if problem.isprintable() else problem.encode("unicode_escape").decode()
        return f"{folder}{join}{shown[:_LONGEST_PROBLEM]}"

    if proposes:
        weights = weight_files(folder)
        return [of(problem) for problem in (weights.damaged if to_download else weights.problems)]
    faults = [of(problem) for problem in _folder_problems(folder, to_download=to_download)]
    if faults or not (folder / "config.json").is_file() or not _ANOTHER_LOADER.isdisjoint(arguments):
        return faults
    if rates and has_head(read_config(folder / "config.json")):
        return []
    return [of(nothing)] if (nothing := writes_nothing(folder)) is not None else []


def _folder_problems(folder: Path, *, to_download: bool = False) -> Iterator[str]:
    """Yield a line for everything that keeps engines from loading the model in a folder; it goes on after its name.

    `to_download`: engines fetch the files that are missing, as of a hub id, so that only damaged ones count.
    """
    file = folder / "config.json"
    if file.is_file():
        try:
            if not isinstance(read_config(file).get("model_type"), str):
                yield "config.json names no model_type: download the model again"
        except ValueError as error:
            yield f"{str(error).removeprefix(f'{folder}/')}: download the model again"
    elif not to_download:
        yield "has no config.json, so it is not a model in Hugging Face format"
    if (problem := tokenizer_problem(folder)) and not (to_download and problem.startswith("has no")):
        yield problem
    weights = weight_files(folder)
    yield from weights.damaged if to_download else weights.problems


_WRITE_NOTHING = (
    "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    "ForNextSentencePrediction", "ForImageClassification", "RewardModel", "EncoderModel", "BertModel", "RobertaModel",
    "CLIPModel",
)  # fmt: skip
"""How the names of architectures end that rate, classify or encode text, in every version of the libraries."""


_HEADS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel")


def has_head(config: Mapping[str, Json]) -> bool:
    """Return True for a model that ends in a value head or a classifier, by which it rates texts."""
    return any(name.endswith(_HEADS) for name in architectures(config))


def writes_nothing(folder: Path) -> str | None:
    """Return why no engine could write with the model in a folder; None where one may.

    Raises ValueError where its config.json is no configuration.
    """
    config = read_config(folder / "config.json")
    names = list(architectures(config))
    kind = ", ".join(names) or str(config.get("model_type"))
    if config.get("is_encoder_decoder") is True:
        return f"config.json: {kind} is an encoder with a decoder: give a causal language model"
    if names and all(name.endswith(_WRITE_NOTHING) for name in names):
        return f"config.json: {kind} writes no text: give a causal language model"
    return None


def tokenizer_problem(folder: Path) -> str | None:
    """Return why transformers could not read the tokenizer in a folder, as far as its files show."""
    names = next((found for found in _VOCABULARIES if all((folder / name).is_file() for name in found)), None)
    if names is None:
        return "has no tokenizer.json: download the model again, including its tokenizer"
    damaged = (f"{name} {reason}: download it again" for name in names if (reason := defect(folder / name)))
    return next(damaged, None)


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
    if not files and any(folder.glob("*.gguf")):
        return WeightFiles(missing="has GGUF weights alone: download *.safetensors, or give a llama-server's address")
    if not files:
        return WeightFiles(missing="has no weights (*.safetensors): download the model again")
    damaged = [f"{path.name} {why}: download it again" for path in files if path.is_file() and (why := defect(path))]
    if absent := [path.name for path in files if not path.is_file()]:
        line = f"{len(absent)} of {len(files)} weight files are missing ({absent[0]} …): download them again"
        return WeightFiles(files, line, damaged)
    return WeightFiles(files, None, damaged)


def _indexed(index: Path) -> set[str]:
    names = set(json.loads(index.read_bytes())["weight_map"].values())
    if not names or any(Path(name).name != name for name in names):
        raise ValueError("it names no files beside it")
    return names


def _siblings(path: Path) -> Iterator[Path]:
    """Return all files of a numbered series such as model-00001-of-00004.safetensors."""
    if numbered := re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)", path.name):
        stem, _, count, ending = numbered.groups()
        yield from (path.with_name(f"{stem}-{i:05}-of-{count}{ending}") for i in range(1, int(count) + 1))


def defect(path: Path) -> str | None:
    """Return what is wrong with a file of a model, as far as its beginning and size show; None if it is whole."""
    with path.open("rb") as file:
        head = file.read(len(GIT_LFS_POINTER))
    if head in (b"", GIT_LFS_POINTER):
        return "is a Git LFS pointer (git lfs pull)" if head else "is empty"
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy"):
                return None
        except (SafetensorError, OSError) as problem:
            return f"is damaged ({problem})"
    return None
