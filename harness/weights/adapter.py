"""LoRA weights for the target's verdicts: reading the folder, its fingerprint, and where it can be used.

Needs neither torch nor peft.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.engines import registry
from harness.weights.models import defect, read_config

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for `max_lora_rank`."""
MOST_RANK = _SERVED_RANKS[-1]
_UNRELATED_KEYS = frozenset({"base_model_name_or_path", "revision", "peft_version", "inference_mode"})
"""Keys of the configuration that say nothing about the weights: the base model's place and the file's writer."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """LoRA weights in peft's format."""

    path: str
    """Absolute folder."""
    rank: int


def served_rank(rank: int) -> int:
    """Return the smallest `max_lora_rank` of vLLM that is large enough for a rank."""
    return next(served for served in _SERVED_RANKS if served >= rank)


def read(name: str) -> Adapter:
    """Return the adapter in a folder. Raises ValueError with one line where it is missing, damaged or not servable."""
    folder = Path(name).expanduser()
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"--target.adapter {name}: the folder lacks {CONFIG} or {WEIGHTS}")
    if (problem := defect(folder / WEIGHTS)) is not None:
        raise ValueError(f"--target.adapter {name}: {WEIGHTS} {problem}: download it again")
    try:
        config = read_config(folder / CONFIG)
    except ValueError as wrong:
        raise ValueError(f"--target.adapter {name}: {wrong}") from wrong
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int):
        raise ValueError(f"--target.adapter {name}: the adapter's type is {config.get('peft_type')}, not LORA")
    if config.get("use_dora") or config.get("modules_to_save") or not 1 <= rank <= MOST_RANK:
        raise ValueError(f"--target.adapter {name}: DoRA, fully trained modules or rank {rank} are not supported")
    return Adapter(str(folder.resolve()), rank)


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits over the weights and the part of the configuration that they depend on."""
    config = {k: v for k, v in read_config(folder / CONFIG).items() if k not in _UNRELATED_KEYS}
    if isinstance(modules := config.get("target_modules"), list):
        config["target_modules"] = sorted(modules)  # peft writes this set in any order
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    with (folder / WEIGHTS).open("rb") as weights:
        digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:16]


def unsupported_reason(kind: str, method: str, *, speculates: bool, is_here: bool = True) -> str | None:
    """Return why an adapter cannot be used, as one line that says what is valid; None where it can.

    `is_here`: whether the workers run in this Python or one like it, so that packages are looked for.
    """
    if method != "scot":
        return f"--target.adapter is for scot's choice of a draft, not for {method}"
    if (packages := registry.capabilities(kind).adapter_packages) is None:
        return f"--target.adapter needs --engine vllm or transformers, not {kind}"
    if is_here and None in map(find_spec, packages):
        return f"--target.adapter with --engine {kind} needs peft: pip install 'peft>=0.13'"
    if speculates:
        return "--target.adapter and --spec-decode exclude each other: verdicts and proposals share one engine"
    return None
