"""Candidates share an option where their texts are equal, and a verdict is asked about each text once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.candidates import as_candidates, mark_accepted, mean_score, offered_texts
from harness.engine import Completion
from harness.prompts import SCORE_LABELS
from harness.trace import Verdict


def completions(*texts: str) -> list[Completion]:
    return [Completion(tuple(text.encode()), text, "stop", len(text), -0.25) for text in texts]


def score_verdict(logprobs: list[float]) -> Verdict:
    return Verdict("score", "Score:", SCORE_LABELS, tuple(logprobs), 0, None, accepted=False)


def test_a_candidate_records_its_completion() -> None:
    [candidate] = as_candidates(completions("2 + 3 = 5\n\n"))
    assert (candidate.text, candidate.num_tokens, candidate.finish) == ("2 + 3 = 5\n\n", 11, "stop")
    assert candidate.mean_logprob == -0.25
    assert not candidate.accepted
    assert candidate.verdict_score is None


def test_texts_that_differ_in_surrounding_whitespace_only_share_an_option() -> None:
    candidates = as_candidates(completions("a\n\n", "b\n\n", " a", "c", "b"))
    assert [c.option for c in candidates] == [0, 1, 0, 2, 1]
    assert offered_texts(candidates) == ["a\n\n", "b\n\n", "c"]


def test_the_first_candidate_of_the_chosen_option_is_accepted() -> None:
    candidates = as_candidates(completions("a", "b", "b"))
    assert mark_accepted(candidates, 1) == 1
    assert [c.accepted for c in candidates] == [False, True, False]


def test_an_option_that_no_candidate_has_is_an_error() -> None:
    with pytest.raises(StopIteration):
        mark_accepted(as_candidates(completions("a")), 1)


def test_withdrawn_candidates_are_not_offered() -> None:
    candidates = as_candidates(completions("a", "b", "c"))
    candidates[0].option = None
    candidates[1].option, candidates[2].option = 1, 0
    assert offered_texts(candidates) == ["c", "b"], "in the order of the options, not of the candidates"
    assert mark_accepted(candidates, 0) == 2


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
    assert mean_score(score_verdict([math.log(0.1)] * 10)) == pytest.approx(4.5)


def test_the_mean_score_is_normalized_over_the_digits() -> None:
    """The digits need not hold all of the model's probability."""
    quarter = [math.log(0.025)] * 10
    assert mean_score(score_verdict(quarter)) == pytest.approx(4.5)
