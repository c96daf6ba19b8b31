"""Every prompt, and how the options of a verdict are read; pure functions over a tokenizer.

The question of a verdict follows the target's own chain: the ids of the chain do not change, so the prefix cache holds
them, and only the candidate (or candidates) and a short question are new (SpecReason, section 4.1: "templated to reuse
most of the CoT prefix"). None of the papers prints its prompts in full; the wordings here are this project's own and
are hashed into every run.

Text by a model or a benchmark goes through `Tokenizer.encode`, where control tokens are plain text; only the chat
template's own text is encoded with control tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from harness.engine import Tokenizer
from harness.problems.problem import Problem
from harness.weights.tokenizer import verdict_options

STEP_END = "\n\n"
"""Steps of a chain end at a blank line (SpecReason's code; the other papers do not say)."""
THINK_END = "</think>"
SCORE_LABELS = tuple("0123456789")

_THINKING = {
    "math": "Please reason step by step, and put your final answer within \\boxed{}.",
    "choice": "Please reason step by step, and put the letter of the right option within \\boxed{}.",
}
_PLAIN = {
    "math": "Solve the problem step by step in words and formulas, without code, with a blank line after each step. "
    "End with the final answer within \\boxed{}.",
    "choice": "Work it out step by step, without code, with a blank line after each step. "
    "End with the letter of the right option within \\boxed{}.",
}
_SCORE = (
    "Judge only the last step of the reasoning above: is it factually correct, logically valid and useful for "
    "solving the problem? Reply with a single digit from 0 (wrong) to 9 (certainly right)."
)
_RUBRIC = (
    "Whenever a line begins with «Score:», judge the step right before it: is it factually correct, logically valid "
    "and useful for solving the problem? Write a single digit from 0 (wrong) to 9 (certainly right) there."
)
_CHOOSE_STEP = (
    "Here are proposals for how the reasoning above goes on.\n\n{candidates}\n\nWhich proposal is correct and takes "
    "the solution furthest? Reply with its {label} only. If every proposal contains a mistake, reply with {reject}."
)
_CHOOSE_CHAIN = (
    "{problem}\n\nHere are attempts at a solution.\n\n{candidates}\n\nWhich attempt is correct? "
    "Reply with its {label} only."
)
_ALL_WRONG = " If all attempts are wrong, reply with {reject}."
_CANDIDATE = "[{label}]\n{text}"
_ENDS = "(the solution ends here)"
_SCORE_REPLY, _CHOICE_REPLY = "Score:", "Answer:"
ANSWER_BRIDGE = "\n\nFinal answer: \\boxed{"
"""Opens the target's final answer after a chosen chain where no `</think>` does so (plain models under SCoT)."""
THINK_BRIDGE = "\n" + THINK_END + "\n\n"
"""Closes a chain that its author ended without `</think>`."""


@dataclass(frozen=True)
class Question:
    """A verdict's question in token ids, to be appended to a context."""

    text: str
    """The question without the chat template."""
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    option_ids: tuple[int, ...]
    """One token id per label."""


_STEPS_SHOWN = "whole-steps"
"""How the candidates for a step are shown to its judge. Runs whose hash does not name it were made before it existed:
each candidate was shown as a paragraph of its own, also where it completes a step that the chain has begun."""


def prompt_hash(*, shows_step_candidates: bool = False) -> str:
    """Return 16 hex digits over every wording here: results under different wordings are not comparable.

    Where a method shows the candidates for a step side by side, how they are shown follows after a hyphen.
    """
    parts = [_THINKING, _PLAIN, _SCORE, _RUBRIC, _CHOOSE_STEP, _CHOOSE_CHAIN, _ALL_WRONG, _CANDIDATE, _ENDS]
    parts += [_SCORE_REPLY, _CHOICE_REPLY, ANSWER_BRIDGE, THINK_BRIDGE, STEP_END]
    wording = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return f"{wording}-{_STEPS_SHOWN}" if shows_step_candidates else wording


def problem_text(problem: Problem) -> str:
    """Return the problem as shown to a model; a multiple-choice problem with its options."""
    if not problem.choices:
        return problem.text
    options = "\n".join(f"{chr(65 + i)}. {choice}" for i, choice in enumerate(problem.choices))
    return f"{problem.text}\n\n{options}"


def opening(tokenizer: Tokenizer, problem: Problem, *, rubric: bool = False) -> tuple[list[int], str]:
    """Return ids and text of the prompt that a chain continues; it ends where the model's first step starts.

    With `rubric` it also explains what a score is, so that each verdict's question is short (`short_score_question`).
    """
    instruction = (_THINKING if tokenizer.thinks else _PLAIN)[problem.kind]
    parts = (problem_text(problem), instruction, *([_RUBRIC] if rubric else []))
    return _opened(tokenizer, "\n\n".join(parts))


@lru_cache(maxsize=8)
def score_question(tokenizer: Tokenizer) -> Question:
    """Return the question of SpecReason's verdict on the last step of the chain: one digit, 0 to 9 (section 4.1)."""
    return _question(tokenizer, _followup(tokenizer, _SCORE), _SCORE, _SCORE_REPLY, SCORE_LABELS)


@lru_cache(maxsize=8)
def short_score_question(tokenizer: Tokenizer) -> Question:
    """Return the question for a score of the step right before it, inside the target's own reply.

    Its meaning is explained by the rubric in the target's prompt.
    """
    return _question(tokenizer, [], _SCORE_REPLY, _SCORE_REPLY, SCORE_LABELS)


def step_choice_question(tokenizer: Tokenizer, candidates: Sequence[str]) -> Question:
    """Return the question of SpecCoT's verdict: one of the candidates, or the last label to reject all (equation 4).

    A candidate that closes the thought is marked, so that it differs from one that says the same and does not. Raises
    ValueError for more than 25 candidates.
    """
    labels = option_labels(len(candidates) + 1)
    steps = [f"{text.replace(THINK_END, '').rstrip()}\n{_ENDS}" if THINK_END in text else text for text in candidates]
    text = _CHOOSE_STEP.format(candidates=_listed(steps, labels), label=_label_noun(labels), reject=labels[-1])
    return _question(tokenizer, _followup(tokenizer, text), text, _CHOICE_REPLY, labels)


def chain_choice_question(
    tokenizer: Tokenizer, problem: Problem, chains: Sequence[str], *, may_reject: bool
) -> Question:
    """Return the question of SCoT's verdict: one of the whole chains, or the last label if all are wrong (section 3.4).

    It is a prompt of its own and does not follow a chain. Raises ValueError for more than 25 chains.
    """
    labels = option_labels(len(chains) + may_reject)
    text = _CHOOSE_CHAIN.format(
        problem=problem_text(problem), candidates=_listed(chains, labels), label=_label_noun(labels)
    )
    if may_reject:
        text += _ALL_WRONG.format(reject=labels[-1])
    ids, _ = _opened(tokenizer, text)
    if tokenizer.thinks:
        ids += tokenizer.encode(THINK_BRIDGE)
    return _question(tokenizer, ids, text, _CHOICE_REPLY, labels)


def option_labels(n: int) -> tuple[str, ...]:
    """Return `n` labels that are single tokens: the digits from 1, or letters where `n` is above 9."""
    if n > 26:
        raise ValueError(f"at most 26 options can be distinguished by one token, not {n}")
    return tuple(str(i + 1) for i in range(n)) if n <= 9 else tuple(chr(65 + i) for i in range(n))


def _label_noun(labels: Sequence[str]) -> str:
    return "number" if labels[0].isdigit() else "letter"


def _listed(candidates: Sequence[str], labels: Sequence[str]) -> str:
    shown = (text.replace(THINK_END, "").strip() or _ENDS for text in candidates)
    return "\n\n".join(_CANDIDATE.format(label=label, text=text) for label, text in zip(labels, shown, strict=False))


def _question(tokenizer: Tokenizer, ids: list[int], text: str, reply: str, labels: Sequence[str]) -> Question:
    reply_ids, option_ids = _options(tokenizer, reply, tuple(labels))
    return Question(text, (*ids, *reply_ids), tuple(labels), option_ids)


@lru_cache(maxsize=64)
def _options(tokenizer: Tokenizer, reply: str, labels: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reply_ids, option_ids = verdict_options(tokenizer, reply, labels)
    return tuple(reply_ids), tuple(option_ids)


_PLACEHOLDER = "QUESTION-GOES-HERE"


@lru_cache(maxsize=8)
def _frames(tokenizer: Tokenizer) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the chat template around a question, as (before, after): of an opening, and of a follow-up question."""
    first, again = tokenizer.open_reply(_PLACEHOLDER), tokenizer.ask_again(_PLACEHOLDER)
    before, _, after = first.partition(_PLACEHOLDER)
    before_again, _, after_again = again.partition(_PLACEHOLDER)
    return (before, after), (before_again, after_again)


def _opened(tokenizer: Tokenizer, question: str) -> tuple[list[int], str]:
    before, after = _frames(tokenizer)[0]
    ids = tokenizer.encode_template(before) + tokenizer.encode(question) + tokenizer.encode_template(after)
    return ids, before + question + after


def _followup(tokenizer: Tokenizer, question: str) -> list[int]:
    before, after = _frames(tokenizer)[1]
    return tokenizer.encode_template(before) + tokenizer.encode(question) + tokenizer.encode_template(after)
