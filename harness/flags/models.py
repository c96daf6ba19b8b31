"""The models of a run and the adapters on them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from harness.launch_flags import Flag


class ModelFlags(BaseModel):
    """The models of a run and the adapters on them."""

    draft: Annotated[
        str | None, Flag("models", "Draft model: a known name (--list models), a Hugging Face id, or a folder.")
    ] = None
    target: Annotated[
        str | None, Flag("models", "Target model: a known name (--list models), a Hugging Face id, or a folder.")
    ] = None
    selection_adapter: Annotated[
        str | None, Flag("models", "scot: folder of the LoRA weights that select a draft (see harness.train).")
    ] = None
