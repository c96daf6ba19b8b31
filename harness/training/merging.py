"""Merging of LoRA weights into the draft: the result is an ordinary model folder (section 3.3)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from harness.training.tuning import Base

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
)  # fmt: skip
"""Files that are copied unchanged, so that the draft keeps its base's token ids and chat template."""


def merge(base: Base, adapter: Path, output: Path) -> None:
    """Write the merged model into `output`, config.json last, so that the folder is a model only once it is complete.

    Weights are added in float32 and stored in the base's own dtype.
    """
    with tempfile.TemporaryDirectory(prefix=".merging-", dir=output) as work:
        _save(base, adapter, Path(work))
        source = _folder(base)
        for name in TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, Path(work) / name)
        for path in sorted(Path(work).iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(output / path.name)


def _save(base: Base, adapter: Path, folder: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(base.path, revision=base.revision, trust_remote_code=False)
    stored = config.dtype or torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(
        base.path, revision=base.revision, dtype=torch.float32, trust_remote_code=False
    )
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload(safe_merge=True)
    merged.to(stored).save_pretrained(folder)


def _folder(base: Base) -> Path:
    """Return the folder of the base's tokenizer."""
    if Path(base.path).is_dir():
        return Path(base.path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(base.path, revision=base.revision, allow_patterns=list(TOKENIZER_FILES)))
