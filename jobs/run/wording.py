"""Refuse to continue a run whose prompts are not those that this code would send: one run never mixes two wordings."""

from __future__ import annotations

from collections.abc import Mapping

from harness.methods import build
from harness.methods.method import Parameter
from harness.prompt_file import BUILT_IN, Prompts
from harness.prompts import prompt_hash
from jobs.run.spec import RunSpec


class OtherPrompts(ValueError):
    """The run was begun with other prompts than this code has; the message says which and what to do."""


def current_prompt_hash(method: str, params: Mapping[str, Parameter], wording: Prompts = BUILT_IN) -> str:
    """Return the hash of the prompts that this code sends for a method with these hyper-parameters."""
    built = build(method, dict(params))
    return prompt_hash(
        wording,
        shows_step_candidates=built.shows_step_candidates,
        asks_equivalence=built.asks_equivalence,
        asks_reward="reward" in built.roles,
    )


def check_prompts(spec: RunSpec) -> None:
    """Raise OtherPrompts where this code would send other prompts than the run's finished samples were sent."""
    current = current_prompt_hash(spec.method, spec.params, spec.wording)
    if current != spec.prompt_hash:
        raise OtherPrompts(
            f"{spec.run_id} was begun with other prompts ({spec.prompt_hash}; this code sends {current}), so it cannot "
            "be resumed. Its finished samples remain valid; launch it again for a new run, or resume it with the code "
            "that began it"
        )
