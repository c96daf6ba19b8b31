"""Accuracy of SpecCoT's joint and separate verdicts by number of candidates, without guidance and after it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import LlamaForCausalLM

from harness import prompts
from harness.methods.speccot import SpecCoT
from harness.prompts import THINK_END
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import inference
from tools.demo_pair.mistakes import Mistakes, corrupted_step
from tools.demo_pair.stories import Story

COUNTS = (1, 2, 3, 4, 5)
GUIDANCE_TOKENS = 4


@dataclass(frozen=True)
class VerdictsByCount:
    """Accuracy of verdicts for a number of step candidates, given correct previous steps."""

    count: int
    """Number of candidates."""
    is_guided: bool
    """Whether all candidates begin with the first four tokens of the right first step, as after guidance."""
    chosen: float
    """Joint verdicts: share of correct choices if one candidate is correct."""
    rejected: float
    """Joint verdicts: share of rejections if no candidate is correct."""
    separately_chosen: float
    """Separate verdicts: share of questions with a right candidate in which it has the highest score and is accepted.
    """
    separately_rejected: float
    """Separate verdicts: share of rejections if no candidate is correct."""


def verdicts_by_count(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], mistakes: Mistakes, seed: int
) -> list[VerdictsByCount]:
    """Evaluate one step of each problem with every number of candidates. `mistakes`: in the order of `problems`."""
    return [
        _evaluated(target, tokenizer, problems, mistakes, seed, count, is_guided=is_guided)
        for is_guided in (False, True)
        for count in COUNTS
    ]


@dataclass(frozen=True)
class _Asked:
    """A question about a step: story and step number, the candidates' texts, and the index of the right one if any."""

    story: Story
    number: int
    texts: list[str]
    right: int | None


def _evaluated(
    target: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    problems: Sequence[Story],
    mistakes: Mistakes,
    seed: int,
    count: int,
    *,
    is_guided: bool,
) -> VerdictsByCount:
    rng = random.Random(f"{seed}/{count}/{is_guided}")
    asked = []
    for at, story in enumerate(problems):
        number = 0 if is_guided else rng.randrange(len(story.steps))
        wrong = _wrong_texts(rng, tokenizer, story, number, mistakes.steps(at).get(number, []), is_guided=is_guided)
        for has_right in (True, False):
            texts = wrong[: count - has_right] + [story.step(number)] * has_right
            rng.shuffle(texts)
            if len(texts) == count:
                asked.append(_Asked(story, number, texts, texts.index(story.step(number)) if has_right else None))
    joint = [_joint_choice(target, tokenizer, asked), _separate_choice(target, tokenizer, asked)]
    shares = []
    for choices in joint:
        pairs = list(zip(asked, choices, strict=True))
        hits = [choice == one.right for one, choice in pairs if one.right is not None]
        rejections = [choice is None for one, choice in pairs if one.right is None]
        shares += [sum(hits) / max(1, len(hits)), sum(rejections) / max(1, len(rejections))]
    return VerdictsByCount(count, is_guided, *shares)


def _wrong_texts(
    rng: random.Random, tokenizer: HFTokenizer, story: Story, number: int, own: Sequence[str], *, is_guided: bool
) -> list[str]:
    """Return distinct wrong texts, the draft's mistakes first; if guided, only texts that start with the guidance."""
    begin = tokenizer.decode(tokenizer.encode(story.step(number))[:GUIDANCE_TOKENS]) if is_guided else ""
    texts = {_shown(story.step(number)): ""}
    for text in [*own, *(corrupted_step(rng, story, number) for _ in range(12 * max(COUNTS)))]:
        if text.startswith(begin) and _shown(text):
            texts.setdefault(_shown(text), text)
    return list(texts.values())[1:]


def _shown(text: str) -> str:
    return text.replace(THINK_END, "").strip()


def _joint_choice(target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[_Asked]) -> list[int | None]:
    """Return the index of the chosen candidate for each question; None if all are rejected."""
    questions = []
    for one in asked:
        question = prompts.step_choice_question(tokenizer, one.texts)
        ids = [*inference.prompt_before_step(tokenizer, one.story, one.number), *question.ids]
        questions.append((ids, question.option_ids))
    choices: list[int | None] = []
    for one, row in zip(asked, inference.verdict_probabilities(target, questions), strict=True):
        best = max(range(len(row)), key=row.__getitem__)
        choices.append(best if best < len(one.texts) else None)
    return choices


def _separate_choice(target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[_Asked]) -> list[int | None]:
    """Return the index of each question's candidate with the highest mean score; None if it is below SpecCoT's
    threshold.
    """
    question = prompts.short_score_question(tokenizer)
    ids = [
        (
            [
                *inference.prompt_before_step(tokenizer, one.story, one.number, rubric=True),
                *tokenizer.encode(text),
                *question.ids,
            ],
            question.option_ids,
        )
        for one in asked
        for text in one.texts
    ]
    rows = iter(inference.verdict_probabilities(target, ids))
    choices: list[int | None] = []
    for one in asked:
        scores = [sum(digit * p for digit, p in enumerate(next(rows))) for _ in one.texts]
        best = max(range(len(scores)), key=scores.__getitem__)
        choices.append(best if scores[best] >= SpecCoT.threshold else None)
    return choices
