"""The reward model of a launch: whether the method has use for one, and whether the model can answer its question."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.engine import Role
from harness.prompts import Prompts, equivalence_question, reward_question
from harness.settings.launch_settings import PartialLaunch
from harness.settings.roles import role_flag
from harness.weights.models import read_config
from harness.weights.templates import BadTemplate
from harness.weights.tokenizer import HFTokenizer
from jobs.run.spec import ModelSpec


def check_flags(launch: PartialLaunch, roles: Collection[Role]) -> None:
    """Raise ValueError where the method has no use for a flag of a reward model."""
    for name in launch.reward.given() if "reward" not in roles else ():
        raise ValueError(
            f"{role_flag('reward', name)}: {launch.method} does not rate steps with a reward model, as its parameters "
            f"are set (see --method {launch.method} --help)"
        )


def check_model(reward: ModelSpec | None, wording: Prompts, *, asks_equivalence: bool = False) -> None:
    """Raise ValueError where a reward model in a local folder cannot answer the question of the wording.

    `asks_equivalence`: it is asked whether two steps mean the same, in place of how good one is. Models that only the
    nodes have are met by the workers.
    """
    if reward is None or not (folder := Path(reward.path)).is_dir():
        return
    if reward.server is None:
        _check_architecture(reward, folder)
    _check_answers(reward, wording, asks_equivalence=asks_equivalence)


def _check_architecture(reward: ModelSpec, folder: Path) -> None:
    architectures = read_config(folder / "config.json").get("architectures")
    heads = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    if heads and not any(name.endswith("ForCausalLM") or "ConditionalGeneration" in name for name in heads):
        raise ValueError(
            f"--reward {reward.name}: {heads[0][:80]} is not supported; valid: a causal language model (…ForCausalLM), "
            "whose probabilities of two tokens are the reward"
        )


def _check_answers(reward: ModelSpec, wording: Prompts, *, asks_equivalence: bool) -> None:
    try:
        tokenizer = HFTokenizer(reward.path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"--reward {reward.name}: its tokenizer cannot be loaded: {reason}") from error
    try:
        if asks_equivalence:
            equivalence_question(tokenizer, "1", "2", wording)
        else:
            reward_question(tokenizer, wording)
    except BadTemplate as error:
        raise ValueError(f"--reward {reward.name}: {error}") from error
    except ValueError as error:
        keys = "equivalence.reply, .same and .different" if asks_equivalence else "reward.reply, .good and .bad"
        raise ValueError(f"--reward {reward.name}: {error} (keys {keys})") from error
