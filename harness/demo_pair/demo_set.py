"""The demo's 40 problems and those of demo-train: made of stories once, and never among what the pair is taught."""

from __future__ import annotations

import itertools
import json

from harness.demo_pair.config import Config
from harness.demo_pair.stories import Story, stories

_SEED = 40
_COUNT = 40
_TRAIN_SEED = 1000
_TRAIN_COUNT = 1000


def demo() -> list[Story]:
    """The stories behind harness/data/demo.jsonl, in its order."""
    return list(itertools.islice(stories(_SEED), _COUNT))


def lines() -> str:
    """The content of harness/data/demo.jsonl."""
    return _rows("demo", "test", demo())


def train_lines(config: Config) -> str:
    """The content of harness/data/demo-train.jsonl: what SCoT's trainings of the pair may use."""
    but = {story.text for story in (*demo(), *checked(config), *taught(config))}
    return _rows("demo-train", "train", list(itertools.islice(stories(_TRAIN_SEED, but), _TRAIN_COUNT)))


def _rows(dataset: str, split: str, told: list[Story]) -> str:
    rows = [
        {"id": f"{dataset}/{i}", "dataset": dataset, "split": split, "problem": story.text,
         "answer": str(story.answer), "level": story.level}
        for i, story in enumerate(told)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def checked(config: Config) -> list[Story]:
    """Problems that the results are measured on."""
    but = {story.text for story in demo()}
    return list(itertools.islice(stories(config.seed + 1, but), config.checked))


def taught(config: Config) -> list[Story]:
    """Problems that are taught; none of them is a held-out one."""
    but = {story.text for story in (*demo(), *checked(config))}
    return list(itertools.islice(stories(config.seed, but), config.stories))
