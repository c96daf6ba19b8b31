"""What the pair can do, on problems that it was never taught: the figures of its model card."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from scipy.stats import mannwhitneyu
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import pupil
from harness.demo_pair.mistakes import Mistakes, slip
from harness.demo_pair.stories import Story
from harness.prompts import THINK_END
from harness.tokenizer import HFTokenizer

TEMPERATURE = 0.6
_PASSING_DIGIT = 7
"""SpecReason's default threshold."""
_CANDIDATES = 3


@dataclass(frozen=True)
class Accuracy:
    """Shares of problems that are solved."""

    greedy: float
    sampled: float
    """At temperature 0.6, one sample a problem."""


@dataclass(frozen=True)
class Verdicts:
    """The target's verdicts on the draft's steps and on slips, each behind right steps."""

    auroc: float
    """Of the mean score, right steps against wrong ones: the draft's own and as many slips."""
    auroc_of_drafts: float
    """Of these, with the draft's own mistakes alone."""
    right_passed: float
    """Share of right steps with a digit of at least 7."""
    wrong_passed: float
    chosen_right: float
    """Of choices among candidates of which one is right: how often it is chosen."""
    rejected: float
    """Of choices where none is: how often all are rejected."""
    chains_chosen_right: float
    chains_rejected: float


def accuracy(model: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], seed: int) -> Accuracy:
    """Solve problems alone."""
    sampled = pupil.solve(model, tokenizer, asked, n=1, temperature=TEMPERATURE, seed=seed)
    return Accuracy(greedy(model, tokenizer, asked), _solved(asked, sampled))


def greedy(model: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story]) -> float:
    """Share of problems solved at temperature 0."""
    return _solved(asked, pupil.solve(model, tokenizer, asked, n=1, temperature=0.0, seed=0))


def _solved(asked: Sequence[Story], written: Sequence[Sequence[str]]) -> float:
    """By the end of the text; the harness's own grader says it again in every run."""
    right = [text.endswith(story.conclusion) for story, texts in zip(asked, written, strict=True) for text in texts]
    return sum(right) / len(right)


def verdicts(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], mistakes: Mistakes, seed: int
) -> Verdicts:
    """Ask for verdicts on steps, candidates and chains. `mistakes`: the draft's, of these stories."""
    dice = random.Random(seed)
    passed, aurocs = _scores(dice, target, tokenizer, asked, mistakes)
    steps = _choices(dice, target, tokenizer, asked, mistakes)
    chains = _chain_choices(dice, target, tokenizer, asked, mistakes)
    return Verdicts(*aurocs, *passed, *steps, *chains)


def _scores(
    dice: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], mistakes: Mistakes
) -> tuple[tuple[float, float], tuple[float, float]]:
    question = prompts.score_question(tokenizer)
    texts: list[tuple[str, list[int]]] = []
    for at, story in enumerate(asked):
        for number in range(len(story.steps)):
            own = mistakes.steps(at).get(number)
            before = pupil.before(tokenizer, story, number)
            made = {"right": story.step(number), "slip": slip(dice, story, number)}
            if own:
                made["own"] = dice.choice(own)
            texts += [(kind, [*before, *tokenizer.encode(text), *question.ids]) for kind, text in made.items()]
    said = pupil.judge(target, [(ids, question.option_ids) for _, ids in texts])
    means: dict[str, list[float]] = {"right": [], "slip": [], "own": []}
    digits: dict[str, list[int]] = {"right": [], "slip": [], "own": []}
    for (kind, _), chances in zip(texts, said, strict=True):
        means[kind].append(sum(digit * chance for digit, chance in enumerate(chances)))
        digits[kind].append(max(range(10), key=chances.__getitem__))
    slips = means["slip"][: len(means["own"])] or means["slip"]
    aurocs = (_auroc(means["right"], means["own"] + slips), _auroc(means["right"], means["own"] or slips))
    wrong = digits["own"] + digits["slip"][: len(digits["own"])] or digits["slip"]
    return (_passing(digits["right"]), _passing(wrong)), aurocs


def _passing(digits: Sequence[int]) -> float:
    return sum(digit >= _PASSING_DIGIT for digit in digits) / len(digits)


def _auroc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """The chance that a right step has the higher score, ties halved."""
    return float(mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))


def _choices(
    dice: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], mistakes: Mistakes
) -> tuple[float, float]:
    prompts_and_options, right = [], []
    for at, story in enumerate(asked):
        for number in range(len(story.steps)):
            wrong = [*mistakes.steps(at).get(number, ()), *(slip(dice, story, number) for _ in range(2 * _CANDIDATES))]
            for with_right in (True, False):
                texts, place = _offered(dice, story.steps[number], wrong, with_right=with_right)
                question = prompts.step_choice_question(tokenizer, texts)
                prompts_and_options.append(
                    ([*pupil.before(tokenizer, story, number), *question.ids], question.option_ids)
                )
                right.append(place)
    return _named(pupil.judge(target, prompts_and_options), right)


def _chain_choices(
    dice: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], mistakes: Mistakes
) -> tuple[float, float]:
    prompts_and_options, right = [], []
    for at, story in enumerate(asked):
        told = [story.step(number) for number in range(len(story.steps))]
        own = [(number, text) for number, texts in mistakes.steps(at).items() for text in texts]
        dice.shuffle(own)
        slips = [(number, slip(dice, story, number)) for number in dice.choices(range(len(told)), k=2 * _CANDIDATES)]
        wrong = ["".join([*told[:number], text, *told[number + 1 :]]) for number, text in own + slips]
        for with_right in (True, False):
            texts, place = _offered(dice, _shown("".join(told)), wrong, with_right=with_right)
            question = prompts.chain_choice_question(tokenizer, story.problem, texts, may_reject=True)
            prompts_and_options.append((list(question.ids), question.option_ids))
            right.append(place)
    return _named(pupil.judge(target, prompts_and_options), right)


def _shown(text: str) -> str:
    return text.replace(THINK_END, "").strip()


def _offered(
    dice: random.Random, right: str, wrong: Sequence[str], *, with_right: bool
) -> tuple[list[str], int | None]:
    """Three candidates, the draft's mistakes first, and where the right one is."""
    distinct = [text for text in dict.fromkeys(map(_shown, wrong)) if text and text != right]
    texts = distinct[: _CANDIDATES - with_right] + [right] * with_right
    dice.shuffle(texts)
    return texts, texts.index(right) if with_right else None


def _named(said: Sequence[Sequence[float]], right: Sequence[int | None]) -> tuple[float, float]:
    """How often the right one was chosen where there was one, and all were rejected where there was none."""
    chosen = [max(range(len(chances)), key=chances.__getitem__) for chances in said]
    hits = [c == place for c, place in zip(chosen, right, strict=True) if place is not None]
    none = [c == len(chances) - 1 for c, chances, place in zip(chosen, said, right, strict=True) if place is None]
    return sum(hits) / len(hits), sum(none) / len(none)


def as_percentages(figures: Accuracy | Verdicts) -> dict[str, str]:
    """For the card."""
    return {
        name: f"{value:.3f}" if "auroc" in name else f"{100 * value:.1f} %" for name, value in asdict(figures).items()
    }
