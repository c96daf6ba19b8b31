"""A tokenizer of the pair's own, built once."""

from __future__ import annotations

import itertools

import pytest

from harness.demo_pair import vocabulary
from harness.demo_pair.stories import Story, stories
from harness.weights.tokenizer import HFTokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return vocabulary.build(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def taught() -> list[Story]:
    return list(itertools.islice(stories(3), 60))
