"""Every prompt, and how the options of a verdict are read; pure functions over a tokenizer and a wording.

The question of a verdict follows the target's own chain: the ids of the chain do not change, so the prefix cache holds
them, and only the candidate (or candidates) and a short question are new (SpecReason, section 4.1: "templated to reuse
most of the CoT prefix"). The texts are data (`harness.prompt_file`): the built-in ones are this project's own, and
`--prompts FILE` gives others. SCoT's template is its Figure 3, and SCoT's and SpecReason's programs are public; SpecCoT
published neither. The wording is hashed into every run.

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
from harness.prompt_file import BUILT_IN, ChainChoice, Prompts, StepChoice, render
from harness.weights.templates import CLOSE, EMPTY_THOUGHT
from harness.weights.tokenizer import verdict_options

STEP_END = BUILT_IN.step_separator
"""Steps of a chain end at a blank line (SpecReason's code; the other papers do not say)."""
THINK_END = CLOSE
SCORE_LABELS = tuple("0123456789")

ANSWER_BRIDGE = BUILT_IN.answer_bridge
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


_ASKED = "asked-"


def prompt_hash(
    wording: Prompts = BUILT_IN,
    *,
    shows_step_candidates: bool = False,
    asks_reward: bool = False,
    asks_equivalence: bool = False,
) -> str:
    """Return 16 hex digits over a wording: results under different ones are not comparable.

    Wordings of the same texts have the same hash, whatever their files look like. Where a method shows the candidates
    for a step side by side, how they are shown follows after a hyphen. So does a hash of the built-in question that
    only some methods ask: for a reward model (`asks_reward`) or about two versions of a step (`asks_equivalence`).
    """
    steps, chains = BUILT_IN.step_choice, BUILT_IN.chain_choice
    parts: list[object] = [dict(BUILT_IN.instruction.thinking), dict(BUILT_IN.instruction.plain)]
    parts += [BUILT_IN.score.question, BUILT_IN.separate_score.rubric, steps.question, chains.question]
    parts += [chains.rejection, steps.item, steps.blank, BUILT_IN.score.reply, steps.reply]
    parts += [ANSWER_BRIDGE, THINK_BRIDGE, STEP_END]
    parts += [wording.changes] if wording.changes else []
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    asked = BUILT_IN.equivalence if asks_equivalence else BUILT_IN.reward if asks_reward else None
    if asked is not None:
        return f"{digest}-{_ASKED}{hashlib.sha256(repr(asked.model_dump()).encode()).hexdigest()[:8]}"
    return f"{digest}-{_STEPS_SHOWN}" if shows_step_candidates else digest


def problem_text(problem: Problem, wording: Prompts = BUILT_IN) -> str:
    """Return the problem as shown to a model; a multiple-choice problem with its options."""
    return f"{problem.text}\n\n{_options_text(problem, wording)}" if problem.choices else problem.text


def opening(
    tokenizer: Tokenizer, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> tuple[list[int], str]:
    """Return ids and text of the prompt that a chain continues; it ends where the model's first step starts.

    With `rubric` it also explains what a score is, so that each verdict's question is short (`short_score_question`).
    Raises ValueError where the wording has a system prompt and the chat template has no place for it.
    """
    instructions = wording.instruction.thinking if tokenizer.thinks else wording.instruction.plain
    instruction = instructions.math if problem.kind == "math" else instructions.choice
    if "{problem}" in instruction and problem.choices and "{options}" in instruction:
        text = render(instruction, problem=problem.text, options=_options_text(problem, wording))
    elif "{problem}" in instruction:
        text = render(instruction, problem=problem_text(problem, wording), options="")
    else:
        text = "\n\n".join(part for part in (problem_text(problem, wording), instruction) if part)
    return _opened(tokenizer, f"{text}\n\n{wording.separate_score.rubric}" if rubric else text, wording.system)


@lru_cache(maxsize=8)
def score_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question of SpecReason's verdict on the last step of the chain: one digit, 0 to 9 (section 4.1)."""
    score = wording.score
    return _question(tokenizer, _followup(tokenizer, score.question, score.thought), score.question, score.reply)


@lru_cache(maxsize=8)
def short_score_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question for a score of the step right before it, inside the target's own reply.

    Its meaning is explained by the rubric in the target's prompt.
    """
    return _question(tokenizer, [], wording.separate_score.reply, wording.separate_score.reply)


@lru_cache(maxsize=8)
def reward_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question of a reward model about the step right before it: the good answer, then the bad one.

    Raises ValueError where the two answers are not one token each.
    """
    reward = wording.reward
    ids = _followup(tokenizer, reward.question, reward.thought) if reward.question else []
    return _question(tokenizer, ids, reward.question, reward.reply, (reward.good, reward.bad))


def step_choice_question(tokenizer: Tokenizer, candidates: Sequence[str], wording: Prompts = BUILT_IN) -> Question:
    """Return the question of SpecCoT's verdict: one of the candidates, or the last label to reject all (equation 4).

    A candidate that closes the thought is marked where another says the same and does not, so that no two options look
    equal; a mark on every last step would make judges reject it that do not expect one. A wording with
    `step_choice.closing` marks every candidate that holds `</think>`. Raises ValueError for more than 25 candidates.
    """
    choice, labels = wording.step_choice, option_labels(len(candidates) + 1)
    visible = [text.replace(THINK_END, "").strip() for text in candidates]
    if choice.closing is None:
        marked = [
            f"{shown}\n{choice.blank}" if THINK_END in text and visible.count(shown) > 1 else text
            for text, shown in zip(candidates, visible, strict=True)
        ]
    else:
        marked = [marked_candidate(text, choice.closing) for text in candidates]
    listed = _listed(marked, labels, choice)
    text = render(choice.question, candidates=listed, label=_label_noun(labels), reject=labels[-1])
    return _question(tokenizer, _followup(tokenizer, text, choice.thought), text, choice.reply, labels)


def marked_candidate(text: str, closing: str) -> str:
    """Return a candidate, if it holds `</think>` and other text with `closing` in place of the former."""
    shown = text.replace(THINK_END, "").strip()
    return f"{shown}\n{closing}" if THINK_END in text and shown else text


def chain_choice_question(
    tokenizer: Tokenizer, problem: Problem, chains: Sequence[str], wording: Prompts = BUILT_IN, *, may_reject: bool
) -> Question:
    """Return the question of SCoT's verdict: one of the whole chains, or the last label if all are wrong (section 3.4).

    It is a prompt of its own and does not follow a chain. Raises ValueError for more than 25 chains, and where the
    wording has a system prompt and the chat template has no place for it.
    """
    choice, labels = wording.chain_choice, option_labels(len(chains) + may_reject)
    shown, listed = problem_text(problem, wording), _listed(chains, labels, choice)
    text = render(choice.question, problem=shown, candidates=listed, label=_label_noun(labels))
    if may_reject:
        text += render(choice.rejection, reject=labels[-1])
    if choice.before is not None and choice.after is not None:
        framed = tokenizer.encode_template(choice.before) + tokenizer.encode(text)
        ids = [*tokenizer.opening, *framed, *tokenizer.encode_template(choice.after)]
    else:
        ids = _opened_plainly(tokenizer, text, wording.system)
    return _question(tokenizer, ids, text, choice.reply, labels)


def equivalence_question(tokenizer: Tokenizer, first: str, second: str, wording: Prompts = BUILT_IN) -> Question:
    """Return the question whether two versions of a step mean the same: the answer that they do, then the other one.

    It is a prompt of its own and does not follow a chain. Raises ValueError where the two answers are not one token
    each, and where the wording has a system prompt and the chat template has no place for it.
    """
    asked = wording.equivalence
    shown = [
        (text.replace(THINK_END, "").strip() or asked.blank) + (f"\n{asked.closing}" if THINK_END in text else "")
        for text in (first, second)
    ]
    text = render(asked.question, first=shown[0], second=shown[1])
    ids = _opened_plainly(tokenizer, text, wording.system)
    return _question(tokenizer, ids, text, asked.reply, (asked.same, asked.different))


def option_labels(n: int) -> tuple[str, ...]:
    """Return `n` labels that are single tokens: the digits from 1, or letters where `n` is above 9."""
    if n > 26:
        raise ValueError(f"at most 26 options can be distinguished by one token, not {n}")
    return tuple(str(i + 1) for i in range(n)) if n <= 9 else tuple(chr(65 + i) for i in range(n))


def _label_noun(labels: Sequence[str]) -> str:
    return "number" if labels[0].isdigit() else "letter"


def _options_text(problem: Problem, wording: Prompts) -> str:
    items = (render(wording.options.item, label=chr(65 + i), text=text) for i, text in enumerate(problem.choices))
    return wording.options.separator.join(items)


def _listed(candidates: Sequence[str], labels: Sequence[str], choice: StepChoice | ChainChoice) -> str:
    shown = (text.replace(THINK_END, "").strip() or choice.blank for text in candidates)
    items = (render(choice.item, label=label, text=text) for label, text in zip(labels, shown, strict=False))
    return choice.separator.join(items)


def _question(
    tokenizer: Tokenizer, ids: list[int], text: str, reply: str, labels: Sequence[str] = SCORE_LABELS
) -> Question:
    reply_ids, option_ids = _options(tokenizer, reply, tuple(labels))
    return Question(text, (*ids, *reply_ids), tuple(labels), option_ids)


@lru_cache(maxsize=64)
def _options(tokenizer: Tokenizer, reply: str, labels: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reply_ids, option_ids = verdict_options(tokenizer, reply, labels)
    return tuple(reply_ids), tuple(option_ids)


_PLACEHOLDER, _SYSTEM = "QUESTION-GOES-HERE", "SYSTEM-PROMPT-GOES-HERE"


@lru_cache(maxsize=16)
def _opening_frame(tokenizer: Tokenizer, system: str) -> tuple[str, str, str]:
    """Return the chat template of an opening: before the system prompt, between that and the question, and after.

    Raises ValueError where the chat template does more with the system prompt than to insert it.
    """
    whole = tokenizer.open_reply(_PLACEHOLDER, _SYSTEM if system else "")
    if system and tokenizer.open_reply(_PLACEHOLDER, system) not in {
        whole.replace(_SYSTEM, text) for text in (system, system.strip())
    }:
        raise ValueError("its chat template does not send the system prompt of the wording as it is")
    before, _, after = whole.partition(_PLACEHOLDER)
    begun, _, between = before.partition(_SYSTEM) if system else ("", "", before)
    return begun, between, after


@lru_cache(maxsize=8)
def _followup_frame(tokenizer: Tokenizer) -> tuple[str, str]:
    """Return the chat template around a question that follows a reply."""
    before, _, after = tokenizer.ask_again(_PLACEHOLDER).partition(_PLACEHOLDER)
    return before, after


@lru_cache(maxsize=16)
def _trims(tokenizer: Tokenizer) -> bool:
    """Return whether the chat template sends a question without the white space around it."""
    return tokenizer.open_reply(f" \n{_PLACEHOLDER}\n ") == tokenizer.open_reply(_PLACEHOLDER)


def _opened(tokenizer: Tokenizer, question: str, system: str) -> tuple[list[int], str]:
    before, between, after = _opening_frame(tokenizer, system)
    question = question.strip() if _trims(tokenizer) else question
    ids = [*tokenizer.encode_template(before), *tokenizer.encode(system)] if system else []
    ids += tokenizer.encode_template(between) + tokenizer.encode(question) + tokenizer.encode_template(after)
    return ids, before + system + between + question + after


def _opened_plainly(tokenizer: Tokenizer, question: str, system: str) -> list[int]:
    """Return the ids of a prompt of its own up to a reply that holds no thought."""
    ids, _ = _opened(tokenizer, question, system)
    thought = tokenizer.thought
    if not tokenizer.thinks:
        return ids
    if thought.empty.startswith(thought.opening):
        return ids + tokenizer.encode(thought.closing)
    after = _opening_frame(tokenizer, system)[2]
    header = after.removesuffix(thought.opening)
    return ids[: len(ids) - len(tokenizer.encode_template(after))] + tokenizer.encode_template(header + thought.empty)


def _followup(tokenizer: Tokenizer, question: str, thought: str) -> list[int]:
    """Return the ids of a question that follows a reply, up to the next one.

    `thought` opens a reasoning model's: the wording's, or the chat template's own where that is the built-in one.
    """
    before, after = _followup_frame(tokenizer)
    if tokenizer.thinks and thought != EMPTY_THOUGHT:
        after = after.removesuffix(tokenizer.thought.empty) + thought
    return tokenizer.encode_template(before) + tokenizer.encode(question) + tokenizer.encode_template(after)
