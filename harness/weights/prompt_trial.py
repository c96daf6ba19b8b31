"""A trial of what a run sends a model: with its own tokenizer and chat template, before any engine starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from harness import prompts
from harness.engine import Role
from harness.methods import build
from harness.problems.problem import Problem
from harness.prompt_file import Prompts
from harness.weights.templates import Conventions
from harness.weights.tokenizer import HFTokenizer

_PROBLEM = Problem("demo/0", "demo", "1 + 1?", "2")


def loaded(path: str, revision: str | None, asked: Conventions) -> HFTokenizer | None:
    """Return a model's tokenizer; None where it cannot be loaded, which the doctor and the engines explain."""
    with contextlib.suppress(Exception):  # the library raises bare Exceptions
        return HFTokenizer(path, revision, asked)
    return None


def check_prompts(
    tokenizer: HFTokenizer, role: Role, method: str | None, params: Mapping[str, Any], wording: Prompts
) -> list[str]:
    """Build what a method, or with None any method, sends a model, and return the options of its verdicts.

    Raises BadTemplate where that is not what the chat template means, and ValueError where an option is not a single
    token.
    """
    built = build(method, dict(params)) if method is not None else None
    if built is not None and role not in built.roles:  # it proposes tokens, and reads what the target does
        return []
    prompts.opening(tokenizer, _PROBLEM, wording)
    asks_equivalence = built is None or built.asks_equivalence
    judge = "reward" if params.get("judge") == "reward" else "target"
    questions = []
    if role == "reward" and not (built is not None and asks_equivalence):
        questions.append(prompts.reward_question(tokenizer, wording))
    if role == judge and asks_equivalence:
        questions.append(prompts.equivalence_question(tokenizer, "1", "2", wording))
    if role == "target":
        questions += _questions_about_candidates(tokenizer, method, params, wording)
    return sorted({label for question in questions for label in question.labels})


def _questions_about_candidates(
    tokenizer: HFTokenizer, method: str | None, params: Mapping[str, Any], wording: Prompts
) -> Iterator[prompts.Question]:
    candidates, form = [str(i) for i in range(int(params.get("drafts", 5)))], params.get("verdict", "joint")
    if method in {None, "specreason"}:
        yield prompts.score_question(tokenizer, wording)
    if method is None or (method == "speccot" and form == "joint"):
        yield prompts.step_choice_question(tokenizer, candidates, wording)
    if method is None or (method == "speccot" and form == "separate"):
        yield prompts.short_score_question(tokenizer, wording)
    if method in {None, "scot"}:
        reject = bool(params.get("error_correction", True))
        yield prompts.chain_choice_question(tokenizer, _PROBLEM, candidates, wording, may_reject=reject)
