"""The generated problems, in four splits: the demo's 40 problems, demo-train, held-out problems, and training problems.
No problem is in two splits.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from tools.demo_pair.config import Config
from tools.demo_pair.stories import Story, stories

_DEMO_SEED = 40
_DEMO_COUNT = 40
_DEMO_TRAIN_SEED = 1000
_DEMO_TRAIN_COUNT = 1000


def demo_stories() -> list[Story]:
    """Return the stories of harness/data/demo.jsonl, in file order."""
    return list(itertools.islice(stories(_DEMO_SEED), _DEMO_COUNT))


def held_out_stories(config: Config) -> list[Story]:
    """Return the problems that the pair is evaluated on."""
    excluded = {story.text for story in demo_stories()}
    return list(itertools.islice(stories(config.seed + 1, excluded), config.checked))


def training_stories(config: Config) -> list[Story]:
    """Return the problems that the pair is trained on."""
    excluded = {story.text for story in (*demo_stories(), *held_out_stories(config))}
    return list(itertools.islice(stories(config.seed, excluded), config.stories))


def demo_lines() -> str:
    """Return the content of harness/data/demo.jsonl."""
    return _json_lines("demo", "test", demo_stories())


def demo_train_lines(config: Config) -> str:
    """Return the content of harness/data/demo-train.jsonl, which SCoT's trainings of the pair may use."""
    others = (*demo_stories(), *held_out_stories(config), *training_stories(config))
    excluded = {story.text for story in others}
    rows = list(itertools.islice(stories(_DEMO_TRAIN_SEED, excluded), _DEMO_TRAIN_COUNT))
    return _json_lines("demo-train", "train", rows)


def _json_lines(dataset: str, split: str, rows: Sequence[Story]) -> str:
    records = [
        {"id": f"{dataset}/{i}", "dataset": dataset, "split": split, "problem": story.text,
         "answer": str(story.answer), "level": story.level}
        for i, story in enumerate(rows)
    ]  # fmt: skip
    return "".join(json.dumps(record) + "\n" for record in records)
