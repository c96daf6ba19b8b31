"""The models of a run and the adapters on them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator

from harness.launch_flags import Flag, as_pairs, pair_of
from harness.weights import templates


def _valid_tags(text: str | None) -> str | None:
    """Return what is valid for the flag. Raises ValueError."""
    if text is not None:
        templates.parsed_tags(text)
    return text


class ModelFlags(BaseModel):
    """The models of a run and the adapters on them."""

    draft: Annotated[
        str | None,
        Flag(
            "models",
            "Draft model: a known name (--list models), a Hugging Face id, a folder, or the address of a server "
            "(http://HOST:PORT/v1).",
        ),
    ] = None
    target: Annotated[
        str | None,
        Flag("models", "Target model: a known name, a Hugging Face id, a folder, or the address of a server."),
    ] = None
    draft_tokenizer: Annotated[
        str | None,
        Flag(
            "models",
            "Tokenizer of a draft on a server: a known name, a Hugging Face id, or a folder.",
            default="that of the model as the server calls it",
        ),
    ] = None
    target_tokenizer: Annotated[
        str | None, Flag("models", "Tokenizer of a target on a server.", default="as for the draft")
    ] = None
    draft_served_model: Annotated[
        str | None,
        Flag("models", "Model to ask the draft's server for, where it serves several.", default="the only one"),
    ] = None
    target_served_model: Annotated[
        str | None, Flag("models", "Model to ask the target's server for.", default="the only one")
    ] = None
    reward: Annotated[
        str | None,
        Flag(
            "models",
            "Reward model, for methods that rate steps with one: a causal language model that answers the reward "
            "question of the prompts with one of two tokens; named like the others, also by the address of a server.",
        ),
    ] = None
    reward_tokenizer: Annotated[
        str | None, Flag("models", "Tokenizer of a reward model on a server.", default="as for the draft")
    ] = None
    reward_served_model: Annotated[
        str | None, Flag("models", "Model to ask the reward model's server for.", default="the only one")
    ] = None
    draft_template: Annotated[
        tuple[Annotated[str, AfterValidator(pair_of)], ...],
        Flag(
            "models",
            "A variable of the draft's chat template, such as enable_thinking=false; may be repeated.",
            metavar="KEY=VALUE",
        ),
        BeforeValidator(as_pairs),
    ] = ()
    target_template: Annotated[
        tuple[Annotated[str, AfterValidator(pair_of)], ...],
        Flag("models", "The same for the target, such as reasoning_effort=low; may be repeated.", metavar="KEY=VALUE"),
        BeforeValidator(as_pairs),
    ] = ()
    draft_thinking_tags: Annotated[
        str | None,
        Flag(
            "models",
            "What opens and closes the draft's thoughts; none: a plain model.",
            metavar="OPEN,CLOSE",
            default="what its generation prompt opens",
        ),
        AfterValidator(_valid_tags),
    ] = None
    target_thinking_tags: Annotated[
        str | None,
        Flag("models", "The same for the target.", metavar="OPEN,CLOSE", default="what its generation prompt opens"),
        AfterValidator(_valid_tags),
    ] = None
    selection_adapter: Annotated[
        str | None, Flag("models", "scot: folder of the LoRA weights that select a draft (see harness.train).")
    ] = None
