"""Read LoRA adapters for the target's verdicts, compute fingerprints, and check whether an engine supports them.

Imports neither torch nor peft.
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
"""Valid values of vLLM's `max_lora_rank`."""
MOST_RANK = _SERVED_RANKS[-1]
_UNRELATED_KEYS = frozenset({"base_model_name_or_path", "revision", "peft_version", "inference_mode"})
"""Configuration keys that do not describe the weights, such as the base model's path."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter in peft's format."""

    path: str
    """Absolute path of the folder."""
    rank: int


def served_rank(rank: int) -> int:
    """Return the smallest `max_lora_rank` of vLLM that fits a rank."""
    return next(served for served in _SERVED_RANKS if served >= rank)


def read(name: str) -> Adapter:
    """Return the adapter in a folder. Raises ValueError if it is missing, damaged or not supported."""
    folder = Path(name).expanduser()
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"--target.adapter {name}: the folder must contain both {CONFIG} and {WEIGHTS}")
    if (problem := defect(folder / WEIGHTS)) is not None:
        raise ValueError(f"--target.adapter {name}: {WEIGHTS} {problem}: download it again")
    try:
        config = read_config(folder / CONFIG)
    except ValueError as wrong:
        raise ValueError(f"--target.adapter {name}: {wrong}") from wrong
    rank, kind = config.get("r"), config.get("peft_type")
    if kind != "LORA":
        raise ValueError(f"--target.adapter {name}: expected an adapter of type LORA, not {kind}")
    if not isinstance(rank, int) or not 1 <= rank <= MOST_RANK:
        raise ValueError(f"--target.adapter {name}: unsupported rank {rank}; valid: rank 1 to {MOST_RANK}")
    if config.get("use_dora") or config.get("modules_to_save"):
        what = "uses DoRA" if config.get("use_dora") else "has fully trained modules (modules_to_save)"
        raise ValueError(f"--target.adapter {name}: not supported: the adapter {what}")
    return Adapter(str(folder.resolve()), rank)


def fingerprint(folder: Path) -> str:
    """Return a hash (16 hex digits) of the weights and the relevant configuration keys."""
    config = {k: v for k, v in read_config(folder / CONFIG).items() if k not in _UNRELATED_KEYS}
    if isinstance(modules := config.get("target_modules"), list):
        config["target_modules"] = sorted(modules)  # peft writes this set in random order
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    with (folder / WEIGHTS).open("rb") as weights:
        digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:16]


def unsupported_reason(kind: str, method: str, *, speculates: bool, is_here: bool = True) -> str | None:
    """Return a one-line reason why an adapter cannot be used; None if it can be used.

    `is_here`: whether workers use this Python environment; only then are its packages checked.
    """
    if method != "scot":
        return f"--target.adapter only applies to draft selection in scot, not to {method}"
    if (packages := registry.capabilities(kind).adapter_packages) is None:
        return f"--target.adapter requires --engine vllm or transformers, not {kind}"
    if is_here and None in map(find_spec, packages):
        return f"--target.adapter with --engine {kind} requires peft: pip install 'peft>=0.13'"
    if speculates:
        return "--target.adapter and --spec-decode are mutually exclusive: both use the target's engine"
    return None
