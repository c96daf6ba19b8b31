"""The bundled problems and weights: made by today's generator for today's prompts; verdicts mean something."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from harness.problems import benchmarks
from harness.weights import models
from tools.demo_pair import config, evaluation, splits, vocabulary
from tools.demo_pair.mistakes import Mistakes

DRAFT, TARGET = map(models.pair_folder, models.PAIR)
REWARD = models.pair_folder(models.REWARD)


@pytest.mark.parametrize("folder", [DRAFT, TARGET, REWARD])
def test_the_tokenizer_is_the_one_that_todays_prompts_make(folder: Path, tmp_path: Path) -> None:
    vocabulary.build(tmp_path)
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes(), "make train-demo"


def test_verdicts_separate_right_steps_and_candidates_from_wrong_ones(tmp_path: Path) -> None:
    target = LlamaForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    stories = splits.held_out_stories(config.read(config.DEFAULT))[:4]
    quality = evaluation.verdict_quality(target, vocabulary.build(tmp_path), stories, Mistakes(), seed=1)
    assert quality.auroc >= 0.99
    # Right steps far from the end of a hard problem have scores from 4 on, so most, but not all, have a 7.
    assert quality.right_passed > quality.wrong_passed + 0.4
    assert sum(share for digit, share in quality.right_digits.items() if int(digit) >= 4) >= 0.97
    # Of some fifteen places each, two at most may be judged wrongly.
    assert quality.chosen_right >= 0.85
    assert quality.rejected >= 0.85


def test_the_demos_problems_are_what_the_generator_makes() -> None:
    assert (benchmarks.BUNDLED / "demo.jsonl").read_text(encoding="utf-8") == splits.demo_lines()
    assert len(benchmarks.load("demo")) == 40


def test_the_training_set_is_what_the_generator_makes_and_shares_nothing_with_the_demo_or_with_what_is_taught() -> None:
    read = config.read(config.DEFAULT)
    assert (benchmarks.BUNDLED / "demo-train.jsonl").read_text(encoding="utf-8") == splits.demo_train_lines(read)
    texts = {problem.text for problem in benchmarks.load("demo-train")}
    assert len(texts) == 1000
    assert texts.isdisjoint(story.text for story in (*splits.demo_stories(), *splits.held_out_stories(read)))
    assert texts.isdisjoint(story.text for story in splits.training_stories(read))
    assert benchmarks.DATASETS["demo-train"].training
