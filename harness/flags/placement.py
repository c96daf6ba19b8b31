"""Each engine's GPUs, and its share of their memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from harness.launch_flags import Flag, as_list_text, card_numbers

_CHOSEN = "chosen on the node (see python -m harness.sizing)"


class PlacementFlags(BaseModel):
    """Each engine's GPUs, and its share of their memory."""

    draft_tensor_parallel: Annotated[
        int | None, Flag("engine", "GPUs that the draft is split over.", default=_CHOSEN), Field(ge=1)
    ] = None
    target_tensor_parallel: Annotated[
        int | None, Flag("engine", "GPUs that the target is split over.", default=_CHOSEN), Field(ge=1)
    ] = None
    draft_gpus: Annotated[
        str | None,
        Flag(
            "engine",
            "The draft's GPUs, by their numbers among the worker's: 0 or 0,1 or 0-3.",
            metavar="NUMBERS",
            default="all, so that both engines share them",
        ),
        BeforeValidator(as_list_text),
        AfterValidator(card_numbers),
    ] = None
    target_gpus: Annotated[
        str | None,
        Flag("engine", "The target's GPUs, such as 1,2,3,4.", metavar="NUMBERS", default="all"),
        BeforeValidator(as_list_text),
        AfterValidator(card_numbers),
    ] = None
    draft_memory: Annotated[
        float | None,
        Flag("engine", "Share of the memory that the draft's engine may use.", default=_CHOSEN),
        Field(gt=0, le=1),
    ] = None
    target_memory: Annotated[
        float | None,
        Flag("engine", "Share of the memory that the target's engine may use.", default=_CHOSEN),
        Field(gt=0, le=1),
    ] = None
    reward_tensor_parallel: Annotated[
        int | None, Flag("engine", "GPUs that the reward model is split over.", default=_CHOSEN), Field(ge=1)
    ] = None
    reward_gpus: Annotated[
        str | None,
        Flag("engine", "The reward model's GPUs, such as 0.", metavar="NUMBERS", default="all"),
        BeforeValidator(as_list_text),
        AfterValidator(card_numbers),
    ] = None
    reward_memory: Annotated[
        float | None,
        Flag("engine", "Share of the memory that the reward model's engine may use.", default=_CHOSEN),
        Field(gt=0, le=1),
    ] = None
