"""The bundled weights: made for today's prompts, and with verdicts that mean something."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from harness.demo_pair import config, evaluation, reward_evaluation, splits, vocabulary
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import Story
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer

DRAFT, TARGET = map(models.pair_folder, models.PAIR)
REWARD = models.pair_folder(models.REWARD)


@pytest.fixture(scope="module")
def held_out_stories() -> list[Story]:
    return splits.held_out_stories(config.read(config.DEFAULT))[:20]


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()


@pytest.mark.parametrize("folder", [DRAFT, TARGET, REWARD])
def test_the_tokenizer_is_the_one_that_todays_prompts_make(folder: Path, tmp_path: Path) -> None:
    vocabulary.build(tmp_path)
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes(), "make train-demo"


def test_verdicts_separate_right_steps_and_candidates_from_wrong_ones(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, held_out_stories: list[Story]
) -> None:
    quality = evaluation.verdict_quality(target, tokenizer, held_out_stories, Mistakes(), seed=1)
    assert quality.auroc >= 0.9
    assert quality.right_passed > quality.wrong_passed + 0.5
    assert quality.chosen_right >= 0.7
    assert quality.rejected >= 0.7


def test_rewards_separate_right_steps_of_the_draft_from_wrong_ones(
    tokenizer: HFTokenizer, held_out_stories: list[Story]
) -> None:
    reward, draft = (LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in (REWARD, DRAFT))
    quality = reward_evaluation.reward_quality(
        reward_evaluation.judged_steps(reward, draft, tokenizer, held_out_stories, seed=1)
    )
    assert quality.auroc is not None
    assert quality.auroc >= 0.85
    assert quality.right_accepted is not None
    assert quality.right_accepted >= 0.9
    assert quality.wrong_accepted is not None
    assert quality.wrong_accepted <= 0.6
    assert quality.calibration_error <= 0.15


def test_the_target_solves_more_than_its_draft(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, held_out_stories: list[Story]
) -> None:
    draft = LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32).eval()
    solved = {model: evaluation.greedy_accuracy(model, tokenizer, held_out_stories) for model in (draft, target)}
    assert 0.3 <= solved[draft] <= 0.75
    assert solved[target] >= solved[draft] + 0.05


def test_the_target_is_deep(target: LlamaForCausalLM) -> None:
    draft = LlamaForCausalLM.from_pretrained(DRAFT)
    assert target.config.num_hidden_layers >= 6 * draft.config.num_hidden_layers


def test_the_model_card_describes_the_training() -> None:
    card, read = (DRAFT.parent / "MODEL_CARD.md").read_text("utf-8"), config.read(config.DEFAULT)
    assert "Toy models" in card
    assert "$" not in card, "every figure is filled in"
    assert f"(seed {read.seed})" in card
    assert f"| tokens seen in training | {read.target.solve.tokens / 1e6:g} + " in card
