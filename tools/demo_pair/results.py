"""The whole evaluation of the stored weights, in the form of results.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transformers import LlamaForCausalLM

from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import (
    count_evaluation,
    evaluation,
    method_evaluation,
    network,
    reward_evaluation,
    splits,
)
from tools.demo_pair.mistakes import Mistakes
from tools.demo_pair.stories import Story

_JUDGED_PROBLEMS = 100
"""Number of problems for the verdicts on every step."""
_COUNTED_PROBLEMS = 50
"""Number of problems for the verdicts by number of candidates; each problem needs a hundred questions."""


def evaluated(
    draft: LlamaForCausalLM,
    target: LlamaForCausalLM,
    reward: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    problems: Sequence[Story],
    mistakes: Mistakes,
    seed: int,
) -> dict[str, Any]:
    """Return the figures of draft, target, the target's verdicts, the methods, and the reward model.

    `mistakes`: the draft's mistakes, in the order of `problems`.
    """
    results: dict[str, Any] = {}
    for role, model in (("draft", draft), ("target", target)):
        results[role] = {
            "parameters": network.parameter_count(model),
            "layers": model.config.num_hidden_layers,
            "checked": asdict(evaluation.accuracy(model, tokenizer, problems, seed)),
            "demo": asdict(evaluation.accuracy(model, tokenizer, splits.demo_stories(), seed)),
        }
    judged = problems[:_JUDGED_PROBLEMS], mistakes.first(_JUDGED_PROBLEMS)
    results["verdicts"] = asdict(evaluation.verdict_quality(target, tokenizer, *judged, seed))
    results["judged"] = len(judged[0])
    counted = problems[:_COUNTED_PROBLEMS], mistakes.first(_COUNTED_PROBLEMS)
    by_count = count_evaluation.verdicts_by_count(target, tokenizer, *counted, seed)
    results["verdicts_by_count"] = [asdict(verdicts) for verdicts in by_count]
    results["counted"] = len(counted[0])
    outcomes = method_evaluation.outcomes(draft, target, tokenizer, problems, seed)
    results["methods"] = [asdict(outcome) for outcome in outcomes]
    rewarded = reward_evaluation.judged_steps(reward, draft, tokenizer, problems[: reward_evaluation.PROBLEMS], seed)
    results["reward"] = {
        "parameters": network.parameter_count(reward),
        "layers": reward.config.num_hidden_layers,
        **asdict(reward_evaluation.reward_quality(rewarded)),
    }
    return results
