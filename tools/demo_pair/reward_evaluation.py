"""Evaluation of the reward model on held-out steps that the draft wrote itself: its figures in the model card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from transformers import LlamaForCausalLM

from harness import prompts
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import inference
from tools.demo_pair.evaluation import TEMPERATURE, auroc
from tools.demo_pair.stories import Story

THRESHOLD = 0.7
"""RSD's default threshold."""
PROBLEMS = 60
"""Held-out problems for the figures of the model card."""
SAMPLES = 4
"""Steps that the draft writes at each place."""
_BINS = 10


@dataclass(frozen=True)
class JudgedStep:
    """A step as the draft wrote it, with its reward."""

    reward: float
    is_right: bool


@dataclass(frozen=True)
class RewardQuality:
    """How good the rewards of the draft's own steps are, given right steps before them."""

    steps: int
    """Number of steps, final answers included."""
    right: float
    """Share of right steps."""
    auroc: float | None
    """Probability that a right step has a higher reward than a wrong one; None where all are right, or all wrong."""
    accuracy: float
    """Share of steps whose reward is at least the threshold where they are right, and below it where they are wrong."""
    right_accepted: float | None
    """Share of right steps with a reward of at least the threshold; None where no step is right."""
    wrong_accepted: float | None
    """Share of wrong steps with a reward of at least the threshold; None where no step is wrong."""
    mean_reward: float
    """Mean reward; a calibrated model's is the share of right steps."""
    calibration_error: float
    """Expected calibration error: mean distance between mean reward and share of right steps, over ten bins of equal
    width, weighted by their steps."""
    brier: float
    """Brier score: mean squared distance between the reward and 1 for a right step, 0 for a wrong one."""


def judged_steps(
    reward: LlamaForCausalLM, draft: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], seed: int
) -> list[JudgedStep]:
    """Return the rewards of steps that the draft writes at every place of these problems, final answers included."""
    written = drafted_steps(draft, tokenizer, problems, seed)
    question = prompts.reward_question(tokenizer)
    asked = [
        ([*inference.prompt_before_step(tokenizer, story, number), *tokenizer.encode(text), *question.ids],
         question.option_ids)
        for story, number, text in written
    ]  # fmt: skip
    rewards = [good for good, _ in inference.verdict_probabilities(reward, asked)]
    return [
        JudgedStep(value, story.is_right(number, text))
        for value, (story, number, text) in zip(rewards, written, strict=True)
    ]


def drafted_steps(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, problems: Sequence[Story], seed: int
) -> list[tuple[Story, int, str]]:
    """Return steps by the draft: the story, the step's number, and the text."""
    places = [(story, number) for story in problems for number in range(len(story.steps) + 1)]
    proposals = inference.propose(draft, tokenizer, places, n=SAMPLES, temperature=TEMPERATURE, seed=seed)
    pairs = zip(places, proposals, strict=True)
    return [(story, number, text) for (story, number), texts in pairs for text in texts if text]


def reward_quality(steps: Sequence[JudgedStep]) -> RewardQuality:
    """Return the figures of judged steps, of which there is at least one."""
    right = [step.reward for step in steps if step.is_right]
    wrong = [step.reward for step in steps if not step.is_right]
    right_accepted = sum(value >= THRESHOLD for value in right)
    wrong_accepted = sum(value >= THRESHOLD for value in wrong)
    return RewardQuality(
        steps=len(steps),
        right=len(right) / len(steps),
        auroc=auroc(right, wrong) if right and wrong else None,
        accuracy=(right_accepted + len(wrong) - wrong_accepted) / len(steps),
        right_accepted=right_accepted / len(right) if right else None,
        wrong_accepted=wrong_accepted / len(wrong) if wrong else None,
        mean_reward=sum(step.reward for step in steps) / len(steps),
        calibration_error=_calibration_error(steps),
        brier=sum((step.reward - step.is_right) ** 2 for step in steps) / len(steps),
    )


def _calibration_error(steps: Sequence[JudgedStep]) -> float:
    bins: dict[int, list[JudgedStep]] = {}
    for step in steps:
        bins.setdefault(min(int(step.reward * _BINS), _BINS - 1), []).append(step)
    return sum(abs(sum(step.reward - step.is_right for step in inside)) for inside in bins.values()) / len(steps)


def as_texts(quality: RewardQuality) -> dict[str, str]:
    """Return the figures as texts for the model card."""
    shares = {"right", "accuracy", "right_accepted", "wrong_accepted"}
    return {
        name: "–" if value is None else f"{100 * value:.1f} %" if name in shares else f"{value:g}"
        for name, value in ((name, value and round(value, 3)) for name, value in asdict(quality).items())
    }
