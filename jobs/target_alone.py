"""The target alone with everything else as another launch has it: the run that others are compared with."""

from __future__ import annotations

from typing import Any

from harness.launch_options import Launch
from jobs.preparation import PreparedLaunch

_METHOD = "vanilla"
_OF_OTHER_MODELS = ("draft_", "reward_")
"""How flags of models begin that the target alone does not have."""
_OF_THE_PAIR = (
    "draft", "reward", "selection_adapter", "take_turns", "spec_decode", "spec_model", "spec_sampling", "spec_tokens",
)  # fmt: skip


def target_alone(own: PreparedLaunch) -> Launch:
    """Return the launch of the target alone that another launch is compared with."""
    launch, target = own.launch, own.plan.spec.target
    values: dict[str, Any] = {
        name: getattr(launch, name)
        for name in launch.model_fields_set
        if name not in _OF_THE_PAIR and not name.startswith(_OF_OTHER_MODELS)
    }
    if target is not None and launch.engine != "scripted" and launch.target is None:
        values["target"] = target.name  # each method has a default of its own
    return Launch.model_validate({**values, "method": _METHOD, "parameters": {}})
