"""The bundled weights: made for today's prompts, and with verdicts that mean something."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from harness import models
from harness.demo_pair import config, evaluation, splits, vocabulary
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import Story
from harness.tokenizer import HFTokenizer

DRAFT, TARGET = map(models.pair_folder, models.PAIR)


@pytest.fixture(scope="module")
def asked() -> list[Story]:
    return splits.held_out_stories(config.read(config.DEFAULT))[:20]


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()


@pytest.mark.parametrize("folder", [DRAFT, TARGET])
def test_the_tokenizer_is_the_one_that_todays_prompts_make(folder: Path, tmp_path: Path) -> None:
    vocabulary.build(tmp_path)
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes(), "make train-demo"


def test_scores_tell_right_steps_from_wrong_ones_and_candidates_are_told_apart(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: list[Story]
) -> None:
    said = evaluation.verdict_quality(target, tokenizer, asked, Mistakes(), seed=1)
    assert said.auroc >= 0.9
    assert said.right_passed > said.wrong_passed + 0.5
    assert said.chosen_right >= 0.7
    assert said.rejected >= 0.7


def test_the_target_solves_more_than_its_draft(
    target: LlamaForCausalLM, tokenizer: HFTokenizer, asked: list[Story]
) -> None:
    draft = LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32).eval()
    solved = {model: evaluation.greedy_accuracy(model, tokenizer, asked) for model in (draft, target)}
    assert 0.3 <= solved[draft] <= 0.75
    assert solved[target] >= solved[draft] + 0.05


def test_the_target_is_deep(target: LlamaForCausalLM) -> None:
    draft = LlamaForCausalLM.from_pretrained(DRAFT)
    assert target.config.num_hidden_layers >= 6 * draft.config.num_hidden_layers


def test_the_card_says_how_they_were_made() -> None:
    card, read = (DRAFT.parent / "MODEL_CARD.md").read_text("utf-8"), config.read(config.DEFAULT)
    assert "Toy models" in card
    assert "$" not in card, "every figure is filled in"
    assert f"(seed {read.seed})" in card
    assert f"| tokens seen in training | {read.target.solve.tokens / 1e6:g} + " in card
