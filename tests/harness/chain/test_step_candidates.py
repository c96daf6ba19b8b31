"""Candidates share an option where their texts are equal, a verdict is asked about each text once, and similarity."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.chain.step_candidates import (
    as_candidates,
    cosine,
    mean_score,
    most_consistent,
    offered_texts,
)
from harness.engine import Completion
from harness.prompts import SCORE_LABELS
from harness.trace import Verdict


def completions(*texts: str) -> list[Completion]:
    return [Completion(tuple(text.encode()), text, "stop", len(text), -0.25) for text in texts]


def score_verdict(logprobs: list[float]) -> Verdict:
    return Verdict("score", "Score:", SCORE_LABELS, tuple(logprobs), 0, None, accepted=False)


@given(st.lists(st.sampled_from(["a", "b", " a ", "c\n"]), max_size=8))
def test_every_option_stands_for_one_text(texts: list[str]) -> None:
    candidates = as_candidates(completions(*texts))
    offered = offered_texts(candidates)
    assert len({text.strip() for text in offered}) == len(offered)
    for candidate in candidates:
        assert candidate.option is not None
        assert offered[candidate.option].strip() == candidate.text.strip()


def test_the_mean_score_weighs_each_digit_by_its_probability() -> None:
    halves = [-math.inf] * 10
    halves[4] = halves[9] = math.log(0.5)
    assert mean_score(score_verdict(halves)) == pytest.approx(6.5)
    for probability in (0.1, 0.025):  # the digits need not hold all of the model's probability
        assert mean_score(score_verdict([math.log(probability)] * 10)) == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("2 + 3 = 5", "2+3 =  5\n\n", 1.0),
        ("So it is FIVE.", "so it is five .", 1.0),
        ("a b", "c d", 0.0),
        ("a b c", "a b d", 2 / 3),
        ("a a b", "a b b", 4 / 5),
        ("x = 12", "x = 1 2", 2 / math.sqrt(3 * 4)),
        ("3.5", "3 5", 0.0),
        ("", " \n", 1.0),
        ("", "a", 0.0),
        ("Größe 3", "größe 3", 1.0),
    ],
)
def test_similarity_is_the_cosine_of_the_counts_of_words_numbers_and_signs(
    one: str, other: str, expected: float
) -> None:
    assert cosine(one, other) == pytest.approx(expected)
    assert cosine(other, one) == pytest.approx(expected)


def test_the_choice_is_that_of_the_least_weight_on_itself_under_a_softmax() -> None:
    texts = ["a b c d", "a b c x", "a b y z", "q r s t", "a b c d"]
    rows = [[cosine(one, other) for other in texts] for one in texts]
    own = [math.exp(row[i]) / sum(map(math.exp, row)) for i, row in enumerate(rows)]
    assert most_consistent(texts) == min(range(len(texts)), key=own.__getitem__)
