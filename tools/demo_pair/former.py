"""The optional pair from which a training starts, as set in its configuration."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import torch
from transformers import LlamaForCausalLM

from tools.demo_pair.config import Former

_Role = Literal["draft", "target"]


class WrongFormerPair(ValueError):
    """The pair is not the expected one, or was not passed; the message is one line."""


class FormerPair:
    """A folder with the draft/ and target/ that a configuration requires."""

    def __init__(self, expected: Former, folder: Path | None) -> None:
        """Raises WrongFormerPair."""
        source = f"git archive {expected.commit} harness/data/models | tar -x -C FOLDER"
        if folder is None:
            raise WrongFormerPair(
                f"this training starts from former weights: run {source}, then use --former FOLDER/harness/data/models"
            )
        for role, digest in (("draft", expected.draft), ("target", expected.target)):
            weights = folder / role / "model.safetensors"
            if not weights.is_file() or hashlib.sha256(weights.read_bytes()).hexdigest() != digest:
                raise WrongFormerPair(
                    f"{folder}: the {role} is not the one in the configuration; to get it, run {source}"
                )
        self._folder = folder

    def load(self, role: _Role) -> LlamaForCausalLM:
        """Return a model of the pair, in float32."""
        return LlamaForCausalLM.from_pretrained(self._folder / role, dtype=torch.float32)
