"""LoRA weights for the target's verdicts: what is served beside the base model, and what says that it is the same.

Light: no torch, no peft.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""vLLM's choice of `max_lora_rank`."""
_ELSEWHERE = frozenset({"base_model_name_or_path", "revision", "peft_version", "inference_mode"})
"""Of the configuration: where the base lay and what wrote the file, no property of the weights."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """LoRA weights in peft's format."""

    path: str
    """Absolute folder."""
    rank: int

    @property
    def served_rank(self) -> int:
        """The least `max_lora_rank` of vLLM that holds it."""
        return next(rank for rank in _SERVED_RANKS if rank >= self.rank)


def read(name: str) -> Adapter:
    """The adapter in a folder. Raises ValueError with one line where it is none that can be served."""
    folder = Path(name).expanduser()
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"--selection-adapter {name}: the folder holds no {CONFIG} with {WEIGHTS}")
    config = _config(folder, name)
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int):
        raise ValueError(f"--selection-adapter {name}: {config.get('peft_type')} and not LORA")
    if config.get("use_dora") or config.get("modules_to_save") or not 1 <= rank <= _SERVED_RANKS[-1]:
        raise ValueError(f"--selection-adapter {name}: DoRA, further modules or rank {rank} cannot be served")
    return Adapter(str(folder.resolve()), rank)


def fingerprint(folder: Path) -> str:
    """16 hex digits over the weights, whole, and what of the configuration they depend on."""
    config = {k: v for k, v in _config(folder, str(folder)).items() if k not in _ELSEWHERE}
    if isinstance(modules := config.get("target_modules"), list):
        config["target_modules"] = sorted(modules)  # a set, which peft writes in any order
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    with (folder / WEIGHTS).open("rb") as weights:
        digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:16]


def unsupported_reason(kind: str, method: str, *, speculates: bool) -> str | None:
    """Why an adapter cannot be used, as one line that says what would be right; None where it can."""
    if method != "scot":
        return f"--selection-adapter is for scot's choice of a draft, not for {method}"
    if kind not in ("vllm", "transformers"):
        return f"--selection-adapter needs --engine vllm or transformers, not {kind}"
    if kind == "transformers" and find_spec("peft") is None:
        return "--selection-adapter with --engine transformers needs peft: pip install 'peft>=0.13'"
    if speculates:
        return "--selection-adapter and --spec-decode exclude each other: verdicts and proposals share one engine"
    return None


def _config(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as wrong:
        raise ValueError(f"--selection-adapter {name}: {CONFIG} cannot be read ({wrong})") from wrong
    if not isinstance(found, dict):
        raise ValueError(f"--selection-adapter {name}: {CONFIG} is no JSON object")
    return found
