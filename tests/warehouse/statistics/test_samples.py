"""pass@k and maj@k against the mean over every set of k samples; change points against every split."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.statistics.samples import maj_at_k, pass_at_k


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_sets_with_a_right_sample(answers: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    expected = np.mean([any(chosen) for chosen in itertools.combinations(answers, k)])
    assert pass_at_k(np.array([sum(answers)]), np.array([len(answers)]), k) == pytest.approx([expected])


def majority(chosen: tuple[str, ...]) -> float:
    """Share of the leading answers that are right; `R` is right, a blank is no answer."""
    counted = Counter(answer for answer in chosen if answer != " ").most_common()
    leaders = [answer for answer, number in counted if number == counted[0][1]]
    return leaders.count("R") / len(leaders) if leaders else 0.0


@given(st.text("RRWXY ", min_size=1, max_size=8), st.data())
@settings(max_examples=150)
def test_maj_at_k_is_the_mean_over_all_sets_and_ties(answers: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    expected = np.mean([majority(chosen) for chosen in itertools.combinations(answers, k)])
    counts = Counter(answers.replace(" ", ""))
    chance = maj_at_k(list(counts.values()), [name == "R" for name in counts], answers.count(" "), k)
    assert chance == pytest.approx(expected)


@pytest.mark.parametrize("k", [0, 5])
def test_k_above_the_number_of_samples_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k} requires 1 ≤ k"):
        pass_at_k(np.array([1, 2]), np.array([4, 8]), k)
    with pytest.raises(ValueError, match=f"maj@{k} requires 1 ≤ k"):
        maj_at_k([2, 1], [True, False], 1, k)
