"""Resolve models (the papers' models, Hub ids, folders, the bundled pair) and check their files.

Revisions are full Hub commit ids, each verified against several independent public repositories. Files are checked by
size, header and index, without reading weights, so the check takes less than a second on a login node. Imports no heavy
packages.
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
    """A bundled model is missing; the one-line message includes the remedy."""


PAIR = {"demo-draft": "draft", "demo-target": "target"}
"""Folders of the bundled pair in the package, by name. The pair is trained only on stories like those of `demo`."""
REWARD = "demo-reward"
BUNDLED = {**PAIR, REWARD: "reward"}
"""Folders of all bundled models in the package, by name."""
PAIR_FOLDER = "HARNESS_BUNDLED_MODELS"
"""Environment variable with the folder of the bundled models, for code archives without them, as in Slurm jobs."""


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
    """A model as loaded by an engine, with its identity across runs."""

    name: str
    """Short name, Hub id, or folder name."""
    path_or_hub_id: str
    revision: str | None
    """Hub commit; None for folders, or if no commit was requested, pinned or cached."""
    fingerprint: str | None
    """Hash of a folder's configuration, tokenizer and weight samples; None for Hub models."""

    @property
    def identity(self) -> str:
        """The fingerprint, or Hub id and revision."""
        return self.fingerprint or f"{self.path_or_hub_id}@{self.revision or 'unpinned'}"


MODELS: dict[str, ModelRef] = {name: ModelRef(name, *place, None) for name, place in _AT_THE_HUB.items()}
"""Models with a short name."""


def resolve(name: str, revision: str | None = None) -> ModelRef:
    """Resolve a short name, a folder with config.json, or a Hub id (`org/name`, `org/name@revision`).

    Raises ValueError for anything else, and ModelUnavailable.
    """
    if name.lower() in BUNDLED:
        folder = pair_folder(name.lower())
        return ModelRef(name.lower(), str(folder), None, folder_fingerprint(folder))
    if pinned_model := MODELS.get(name.lower()):
        return replace(pinned_model, revision=revision or pinned_model.revision)
    if (local := folder_named(name)) is not None:
        if not (local / "config.json").is_file():
            raise ValueError(f"the folder {name} has no config.json: not a model in Hugging Face format")
        folder = local.resolve()
        return ModelRef(folder.name, str(folder), None, folder_fingerprint(folder))
    if os.path.isfile(name):  # noqa: PTH113 Path.is_file raises OSError for a name that is too long
        gguf = ", or the address of a llama-server that serves the file" if name.endswith(".gguf") else ""
        raise ValueError(f"{name} is a file; valid: a folder with config.json and weights{gguf}")
    hub = re.fullmatch(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?", name)
    if hub:
        pinned = dict(_AT_THE_HUB.values()).get(hub["id"])
        return ModelRef(hub["id"], hub["id"], revision or hub["revision"] or pinned or _cached_commit(hub["id"]), None)
    if name.startswith(("/", "./", "../", "~")):
        raise ValueError(f"{name}: no such folder")
    names = [*MODELS, *BUNDLED]
    hint = did_you_mean(name, names)
    raise ValueError(f"unknown model {name!r}; valid: {', '.join(names)}, a Hub id ORG/NAME, or a folder{hint}")


def folder_named(name: str) -> Path | None:
    """Return the folder with this name, or None if it does not exist or the name is invalid."""
    folder = os.path.expanduser(name)  # noqa: PTH111 Path's raises for the home of an unknown user
    return Path(folder) if name.strip() and os.path.isdir(folder) else None  # noqa: PTH112 Path's raises for long names


_WINDOWS, _WINDOW_BYTES = 256, 16 << 10
"""A fingerprint reads this number of evenly spaced samples of each weight file, of this size in bytes. Names and sizes
of files do not distinguish fine-tunes of the same base, and reading gigabytes at every launch is too slow."""


GIT_LFS_POINTER = b"version https://git-lfs"
"""First bytes of a Git LFS pointer, the placeholder for a large file that was not fetched."""


def read_config(path: Path) -> dict[str, Json]:
    """Read a model's config.json. Raises ValueError with a one-line message if it is invalid."""
    try:
        if reason := defect(path):
            raise ValueError(f"the file {reason}")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise ValueError(f"{path} is not a valid configuration ({problem})") from problem
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a valid configuration (not a JSON object)")
    return config


def folder_fingerprint(folder: Path) -> str:
    """Return a hash (16 hex digits) of a model folder, using samples of the weights.

    Raises ValueError with a one-line message if config.json is invalid.
    """
    config = read_config(folder / "config.json")
    # This key depends on the library that wrote the file, not on the model.
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
    """Return a method's default models; on a CPU, the bundled toy pair.

    Target: R1-Distill-Qwen-32B for SCoT, as in arXiv 2504.19095; else QwQ-32B, as in SpecReason, arXiv 2504.07891.
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
    """Return the model for each role (from `flags`, otherwise the method's default), and a warning about toy models.

    `compares`: whether the model of the role `reward` must judge the equivalence of steps, which the bundled one cannot
    do. Raises ValueError if that model is not given, unless the bundled one fits (no `compares`, and the bundled pair).
    """
    names = {role: name for role, name in flags.items() if name is not None and role in roles}
    defaults = default_pair(method, device).items()
    assumed = {role: name for role, name in defaults if role in roles and role not in names}
    names |= assumed
    if "reward" in roles and "reward" not in names:
        if compares or not names or any(name.lower() not in PAIR for name in names.values()):
            raise ValueError(
                f"--reward: {method} requires {'' if compares else 'a reward model or '}a causal language model as a "
                "judge (its question: --list prompts); valid: a known model, a Hugging Face id, or a folder"
            )
        names["reward"] = REWARD
    if not assumed or device == "gpu":
        return names, None
    notice = (
        f"NO GPU: using the bundled toy models {' and '.join(assumed.values())}, which only handle the dataset demo. "
        f"For real models, set {' and '.join(f'--{role}' for role in assumed)}."
    )
    return names, notice


def bundled_folder() -> Path:
    """Return the parent folder of the bundled models."""
    elsewhere = os.environ.get(PAIR_FOLDER)
    return Path(elsewhere).absolute() if elsewhere else Path(__file__).parents[1] / "data" / "models"


def pair_folder(name: str) -> Path:
    """Return the folder of a bundled model. Raises ModelUnavailable."""
    folder = bundled_folder() / BUNDLED[name]
    if not (folder / "config.json").is_file():
        raise ModelUnavailable(f"the bundled model {name} is missing from {folder}: reinstall the package")
    return folder


def hub_cache(hub_id: str) -> Path:
    """Return a model's folder in this machine's Hub cache, whether or not it exists.

    Reads huggingface_hub's environment variables on every call, because huggingface_hub reads them only on import.
    """
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(cache)).expanduser() / f"models--{hub_id.replace('/', '--')}"


def files_at_hand(path_or_hub_id: str, revision: str | None) -> Path | None:
    """Return a model's folder on this machine (for a Hub id, in the Hub cache); None if there is none.

    Files in it may be missing. `revision`: a commit, or a branch or tag in the cache.
    """
    if Path(path_or_hub_id).is_dir():
        return Path(path_or_hub_id)
    cache = hub_cache(path_or_hub_id)
    named = (revision, _cached_commit(path_or_hub_id, revision)) if revision else ()
    return next((folder for name in named if name and (folder := cache / "snapshots" / name).is_dir()), None)


def _cached_commit(hub_id: str, reference: str = "main") -> str | None:
    """Return the commit of a branch or tag in this machine's Hub cache, as engines would load it offline."""
    file = hub_cache(hub_id) / "refs" / reference
    return file.read_text().strip() or None if file.is_file() else None


def config_at_hand(reference: ModelRef) -> Mapping[str, Json] | None:
    """Return the config.json of a folder or from the Hub cache; None if it is not on this machine.

    Raises ValueError if the file is invalid.
    """
    folder = files_at_hand(reference.path_or_hub_id, reference.revision)
    if folder is None or not (path := folder / "config.json").is_file():
        return None
    return read_config(path)


def architectures(config: Mapping[str, Json]) -> Iterator[str]:
    """Yield the model classes listed in a configuration."""
    names = config.get("architectures")
    yield from (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))


_SAFETENSORS, _BIN = "model.safetensors.index.json", "pytorch_model.bin.index.json"
_OF_A_TRAINER = {"training_args.bin", "optimizer.bin", "scheduler.bin"}
_VOCABULARIES = (
    ("tokenizer.json",), ("tokenizer.model",), ("spiece.model",), ("tiktoken.model",), ("vocab.json", "merges.txt"),
)  # fmt: skip
"""Files from which transformers can create a fast tokenizer."""


@dataclass(frozen=True)
class WeightFiles:
    """The weight files of a model, and problems with them."""

    files: Sequence[Path] = ()
    """Expected files."""
    missing: str | None = None
    """Message about missing files; None: all exist."""
    damaged: Sequence[str] = ()
    """One message per damaged file."""

    @property
    def problems(self) -> list[str]:
        """All messages."""
        return [*([self.missing] if self.missing else []), *self.damaged]

    @property
    def num_bytes(self) -> int:
        """Total size of the existing files."""
        return sum(path.stat().st_size for path in self.files if path.is_file())


_ANOTHER_LOADER = frozenset({"load_format", "config_format", "hf_overrides"})
"""vLLM engine arguments that change which files are read, or how."""
_LONGEST_PROBLEM = 500
"""Maximum length, in characters, of a message about a model's files."""


def faults_of(
    folder: Path,
    *,
    to_download: bool = False,
    proposes: bool = False,
    rates: bool = False,
    arguments: Collection[str] = (),
) -> list[str]:
    """Return the problems that would prevent engines from loading and using the model in a folder.

    Each is one line with the file and a remedy. `to_download`: whether engines download missing files. `proposes`:
    whether the model only proposes tokens in the target's engine, without a tokenizer. `rates`: whether the model may
    have a value head and generate no text. `arguments`: names of vLLM engine arguments.
    """

    def of(problem: str) -> str:
        join = " " if problem.startswith("has ") else ": " if problem[0].isdigit() else "/"
        # Messages quote untrusted file contents.
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
    """Yield one message per problem with loading the model, to be shown after the folder's name.

    `to_download`: whether engines download missing files, as for a Hub id; if so, only damaged files are reported.
    """
    file = folder / "config.json"
    if file.is_file():
        try:
            if not isinstance(read_config(file).get("model_type"), str):
                yield "config.json has no model_type: download the model again"
        except ValueError as error:
            yield f"{str(error).removeprefix(f'{folder}/')}: download the model again"
    elif not to_download:
        yield "has no config.json: not a model in Hugging Face format"
    if (problem := tokenizer_problem(folder)) and not (to_download and problem.startswith("has no")):
        yield problem
    weights = weight_files(folder)
    yield from weights.damaged if to_download else weights.problems


_WRITE_NOTHING = (
    "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    "ForNextSentencePrediction", "ForImageClassification", "RewardModel", "EncoderModel", "BertModel", "RobertaModel",
    "CLIPModel",
)  # fmt: skip
"""Suffixes of architectures that rate, classify or encode text, in all versions of the libraries."""


_HEADS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel")


def has_head(config: Mapping[str, Json]) -> bool:
    """Return True for a model with a value head or classifier, which rates texts."""
    return any(name.endswith(_HEADS) for name in architectures(config))


def writes_nothing(folder: Path) -> str | None:
    """Return the reason why the model in a folder cannot generate text, or None.

    Raises ValueError if config.json is invalid.
    """
    config = read_config(folder / "config.json")
    names = list(architectures(config))
    kind = ", ".join(names) or str(config.get("model_type"))
    if config.get("is_encoder_decoder") is True:
        return f"config.json: {kind} is an encoder-decoder model: use a causal language model"
    if names and all(name.endswith(_WRITE_NOTHING) for name in names):
        return f"config.json: {kind} does not generate text: use a causal language model"
    return None


def tokenizer_problem(folder: Path) -> str | None:
    """Return the problem with the tokenizer files in a folder, or None."""
    names = next((found for found in _VOCABULARIES if all((folder / name).is_file() for name in found)), None)
    if names is None:
        return "has no tokenizer.json: download the model again, including its tokenizer"
    damaged = (f"{name} {reason}: download it again" for name in names if (reason := defect(folder / name)))
    return next(damaged, None)


def weight_files(folder: Path) -> WeightFiles:
    """Return the expected weight files of a folder, and problems with them.

    Like engines, prefers *.safetensors to *.bin, and uses the index file if there is one.
    """
    safetensors = sorted(folder.glob("*.safetensors"))
    files = safetensors or [path for path in sorted(folder.glob("*.bin")) if path.name not in _OF_A_TRAINER]
    is_safe = bool(safetensors) or ((folder / _SAFETENSORS).exists() and not files)
    index = folder / (_SAFETENSORS if is_safe else _BIN)
    if index.exists():
        try:
            files = sorted(folder / name for name in _indexed(index))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            line = f"{index.name} is not a valid weight index ({problem!r}): download the model again"
            return WeightFiles(damaged=[line])
    else:
        files = [path for path in files if not path.name.startswith("consolidated")] or files
        files = sorted({*files, *(sibling for path in files for sibling in _siblings(path))})
    if not files and any(folder.glob("*.gguf")):
        return WeightFiles(missing="has only GGUF weights: download *.safetensors, or use a llama-server's address")
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
        raise ValueError("it lists no files, or files outside its folder")
    return names


def _siblings(path: Path) -> Iterator[Path]:
    """Yield all files of a numbered series such as model-00001-of-00004.safetensors."""
    if numbered := re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)", path.name):
        stem, _, count, ending = numbered.groups()
        yield from (path.with_name(f"{stem}-{i:05}-of-{count}{ending}") for i in range(1, int(count) + 1))


def defect(path: Path) -> str | None:
    """Return the problem with a model file, as far as its header and size show; None if it seems intact."""
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
