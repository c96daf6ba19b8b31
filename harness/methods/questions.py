"""Whether a model can be asked what a method asks: its questions are built once, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from harness import prompts
from harness.engine import Role
from harness.methods import build
from harness.problems.problem import Problem
from harness.prompts import Prompts
from harness.settings.declaration import Parameter
from harness.weights.tokenizer import HFTokenizer

_TRIED = Problem("demo/0", "demo", "1 + 1?", "2")


def check_prompts(
    tokenizer: HFTokenizer, role: Role, method: str, params: Mapping[str, Parameter], wording: Prompts
) -> None:
    """Build what a method sends a model.

    Raises BadTemplate where that is not what the chat template means, and ValueError where an option of a verdict is
    not a single token.
    """
    built = build(method, dict(params))
    if role not in built.roles:  # it proposes tokens, and reads what the target does
        return
    prompts.opening(tokenizer, _TRIED, wording)
    judge = "reward" if params.get("judge") == "reward" else "target"
    candidates = [str(i) for i in range(int(params.get("drafts", 5)))]
    if role == judge and built.asks_equivalence:
        prompts.equivalence_question(tokenizer, "1", "2", wording)
    elif role == "reward":
        prompts.reward_question(tokenizer, wording)
    elif role == "target" and method == "specreason":
        prompts.score_question(tokenizer, wording)
    elif role == "target" and method == "speccot" and params.get("verdict") == "separate":
        prompts.short_score_question(tokenizer, wording)
    elif role == "target" and method == "speccot":
        prompts.step_choice_question(tokenizer, candidates, wording)
    elif role == "target" and method == "scot":
        reject = bool(params.get("error_correction", True))
        prompts.chain_choice_question(tokenizer, _TRIED, candidates, wording, may_reject=reject)
