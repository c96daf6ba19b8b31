"""Evaluation of the pair on held-out problems, for the figures of the model card."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from scipy.stats import mannwhitneyu
from transformers import LlamaForCausalLM

from harness import prompts
from harness.prompts import THINK_END
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import inference
from tools.demo_pair.mistakes import Mistakes, corrupted_step
from tools.demo_pair.stories import LEVELS, Story

TEMPERATURE = 0.6
_PASSING_DIGIT = 7
"""SpecReason's default threshold."""
_CANDIDATES = 3


@dataclass(frozen=True)
class Accuracy:
    """Share of solved problems."""

    greedy: float
    sampled: float
    """One sample per problem at temperature 0.6."""
    greedy_by_level: dict[str, float]
    sampled_by_level: dict[str, float]


@dataclass(frozen=True)
class VerdictQuality:
    """Quality of the target's verdicts on right, mistaken and corrupted steps, each after right steps."""

    auroc: float
    """AUROC of the mean score: right steps against the draft's own mistakes and as many corrupted steps."""
    auroc_of_drafts: float
    """AUROC of the mean score: right steps against the draft's own mistakes alone."""
    auroc_of_drafts_greedy: float
    """AUROC of the most probable digit: right steps against the draft's own mistakes alone."""
    auroc_of_wrong_results: float
    """AUROC of the mean score: right steps against the draft's own mistakes that give another number. Other mistakes,
    such as `buys` for `finds`, do no harm: their rollouts end right.
    """
    right_passed: float
    """Share of right steps with a digit of at least 7."""
    wrong_passed: float
    """Share of wrong steps with a digit of at least 7."""
    chosen_right: float
    """Share of correct choices if one candidate is correct."""
    rejected: float
    """Share of rejections if no candidate is correct."""
    chains_chosen_right: float
    """Share of correct choices if one chain is correct."""
    chains_rejected: float
    """Share of rejections if no chain is correct."""
    right_digits: dict[str, float]
    """Share of right steps by their most probable digit."""
    own_digits: dict[str, float]
    """Share of the draft's own mistakes by their most probable digit; of corrupted steps if the draft made no mistake.
    """


def accuracy(model: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], seed: int) -> Accuracy:
    """Return the accuracy of a model on its own, greedy and sampled."""
    sampled = inference.solve(model, tokenizer, problems, n=1, temperature=TEMPERATURE, seed=seed)
    greedy = inference.solve(model, tokenizer, problems, n=1, temperature=0.0, seed=0)
    totals = _solved_share(problems, greedy), _solved_share(problems, sampled)
    return Accuracy(*totals, _by_level(problems, greedy), _by_level(problems, sampled))


def greedy_accuracy(model: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story]) -> float:
    """Return the share of problems solved at temperature 0."""
    return _solved_share(problems, inference.solve(model, tokenizer, problems, n=1, temperature=0.0, seed=0))


def _by_level(problems: Sequence[Story], replies: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the share of solved problems of each level that occurs."""
    shares: dict[str, float] = {}
    for level in LEVELS:
        at = [i for i, story in enumerate(problems) if story.level == level]
        if at:
            shares[level] = _solved_share([problems[i] for i in at], [replies[i] for i in at])
    return shares


def _solved_share(problems: Sequence[Story], replies: Sequence[Sequence[str]]) -> float:
    """Return the share of replies that end in the right answer; runs of the harness use the grader instead."""
    right = [text.endswith(story.conclusion) for story, texts in zip(problems, replies, strict=True) for text in texts]
    return sum(right) / len(right)


def verdict_quality(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], mistakes: Mistakes, seed: int
) -> VerdictQuality:
    """Evaluate verdicts on steps, step candidates and chains. `mistakes`: the draft's mistakes, in the order of
    `problems`.
    """
    rng = random.Random(seed)
    aurocs, passed, digits = _scores(rng, target, tokenizer, problems, mistakes)
    steps = _choices(rng, target, tokenizer, problems, mistakes)
    chains = _chain_choices(rng, target, tokenizer, problems, mistakes)
    names = ("auroc", "auroc_of_drafts", "auroc_of_drafts_greedy", "auroc_of_wrong_results")
    return VerdictQuality(
        **dict(zip(names, aurocs, strict=True)),
        right_passed=passed[0],
        wrong_passed=passed[1],
        chosen_right=steps[0],
        rejected=steps[1],
        chains_chosen_right=chains[0],
        chains_rejected=chains[1],
        right_digits=digits[0],
        own_digits=digits[1],
    )


def _scores(
    rng: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], mistakes: Mistakes
) -> tuple[tuple[float, ...], tuple[float, float], tuple[dict[str, float], dict[str, float]]]:
    """Return AUROCs, shares with a passing digit (right, wrong), and shares of each digit (right, own mistakes)."""
    question = prompts.score_question(tokenizer)
    texts: list[tuple[str, list[int]]] = []
    for at, story in enumerate(problems):
        for number in range(len(story.steps)):
            own = mistakes.steps(at).get(number)
            before = inference.prompt_before_step(tokenizer, story, number)
            steps = {"right": story.step(number), "corrupted": corrupted_step(rng, story, number)}
            if own:
                steps["own"] = rng.choice(own)
                if _result(steps["own"]) != _result(steps["right"]):
                    steps["wrong result"] = steps["own"]
            texts += [(kind, [*before, *tokenizer.encode(text), *question.ids]) for kind, text in steps.items()]
    probabilities = inference.verdict_probabilities(target, [(ids, question.option_ids) for _, ids in texts])
    means: dict[str, list[float]] = {"right": [], "corrupted": [], "own": [], "wrong result": []}
    digits: dict[str, list[int]] = {"right": [], "corrupted": [], "own": [], "wrong result": []}
    for (kind, _), by_digit in zip(texts, probabilities, strict=True):
        means[kind].append(sum(digit * probability for digit, probability in enumerate(by_digit)))
        digits[kind].append(max(range(10), key=by_digit.__getitem__))
    corrupted = means["corrupted"][: len(means["own"])] or means["corrupted"]
    own_digits = digits["own"] or digits["corrupted"]
    aurocs = (
        auroc(means["right"], means["own"] + corrupted),
        auroc(means["right"], means["own"] or corrupted),
        auroc(digits["right"], own_digits),
        auroc(means["right"], means["wrong result"] or corrupted),
    )
    wrong = digits["own"] + digits["corrupted"][: len(digits["own"])] or digits["corrupted"]
    passed = _passing_share(digits["right"]), _passing_share(wrong)
    return aurocs, passed, (_digit_shares(digits["right"]), _digit_shares(own_digits))


def _result(step: str) -> str | None:
    """Return the last number of a step."""
    numbers = re.findall(r"\d+", step)
    return numbers[-1] if numbers else None


def _digit_shares(digits: Sequence[int]) -> dict[str, float]:
    return {str(digit): digits.count(digit) / len(digits) for digit in range(10)}


def _passing_share(digits: Sequence[int]) -> float:
    return sum(digit >= _PASSING_DIGIT for digit in digits) / len(digits)


def auroc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """Return the probability that a right step scores higher than a wrong one; ties count one half."""
    return float(mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))


def _choices(
    rng: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], mistakes: Mistakes
) -> tuple[float, float]:
    questions, right_places = [], []
    for at, story in enumerate(problems):
        for number in range(len(story.steps)):
            corrupted = [corrupted_step(rng, story, number) for _ in range(2 * _CANDIDATES)]
            wrong = [*mistakes.steps(at).get(number, ()), *corrupted]
            for with_right in (True, False):
                texts, place = _candidates(rng, story.steps[number], wrong, with_right=with_right)
                question = prompts.step_choice_question(tokenizer, texts)
                prompt_ids = [*inference.prompt_before_step(tokenizer, story, number), *question.ids]
                questions.append((prompt_ids, question.option_ids))
                right_places.append(place)
    return _choice_accuracy(inference.verdict_probabilities(target, questions), right_places)


def _chain_choices(
    rng: random.Random, target: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], mistakes: Mistakes
) -> tuple[float, float]:
    questions, right_places = [], []
    for at, story in enumerate(problems):
        steps = [story.step(number) for number in range(len(story.steps))]
        own = [(n, text) for n, texts in mistakes.steps(at).items() for text in texts if n < len(steps)]
        rng.shuffle(own)
        numbers = rng.choices(range(len(steps)), k=2 * _CANDIDATES)
        corrupted = [(number, corrupted_step(rng, story, number)) for number in numbers]
        wrong = ["".join([*steps[:number], text, *steps[number + 1 :]]) for number, text in own + corrupted]
        for with_right in (True, False):
            texts, place = _candidates(rng, _visible_text("".join(steps)), wrong, with_right=with_right)
            question = prompts.chain_choice_question(tokenizer, story.problem, texts, may_reject=True)
            questions.append((list(question.ids), question.option_ids))
            right_places.append(place)
    return _choice_accuracy(inference.verdict_probabilities(target, questions), right_places)


def _visible_text(text: str) -> str:
    return text.replace(THINK_END, "").strip()


def _candidates(
    rng: random.Random, right: str, wrong: Sequence[str], *, with_right: bool
) -> tuple[list[str], int | None]:
    """Return three shuffled candidates, preferring the first wrong texts, and the index of the right one if any."""
    distinct = [text for text in dict.fromkeys(map(_visible_text, wrong)) if text and text != right]
    texts = distinct[: _CANDIDATES - with_right] + [right] * with_right
    rng.shuffle(texts)
    return texts, texts.index(right) if with_right else None


def _choice_accuracy(
    probabilities: Sequence[Sequence[float]], right_places: Sequence[int | None]
) -> tuple[float, float]:
    """Return how often the right candidate was chosen if there was one, and how often all were rejected if there was
    none.

    The last option of each question is the rejection.
    """
    hits, rejections = [], []
    for by_option, right_place in zip(probabilities, right_places, strict=True):
        choice = max(range(len(by_option)), key=by_option.__getitem__)
        if right_place is None:
            rejections.append(choice == len(by_option) - 1)
        else:
            hits.append(choice == right_place)
    return sum(hits) / len(hits), sum(rejections) / len(rejections)


def as_percentages(figures: VerdictQuality) -> dict[str, str]:
    """Return the figures as texts for the model card: percentages, and AUROCs with three decimals."""
    return {
        name: f"{value:.3f}" if "auroc" in name else f"{100 * value:.1f} %"
        for name, value in asdict(figures).items()
        if isinstance(value, float)
    }
