"""The demo's 40 problems: made of stories once, held out of everything that is taught."""

from __future__ import annotations

import itertools
import json

from harness.training.config import Config
from harness.training.stories import Story, stories

_SEED = 40
_COUNT = 40


def demo() -> list[Story]:
    """The stories behind harness/data/demo.jsonl, in its order."""
    return list(itertools.islice(stories(_SEED), _COUNT))


def lines() -> str:
    """The content of harness/data/demo.jsonl."""
    rows = [
        {"id": f"demo/{i}", "dataset": "demo", "split": "test", "problem": story.text, "answer": str(story.answer),
         "level": story.level}
        for i, story in enumerate(demo())
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
