"""How similar texts are by the pieces that they share, and which of several is most like the others."""

from __future__ import annotations

import math

import pytest

from harness.candidates import cosine, most_consistent


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


def test_the_text_that_is_most_like_the_others_is_chosen_and_the_first_of_a_tie() -> None:
    assert most_consistent(["we add 2 and 3", "no idea at all", "we add 2 to 3", "add 2 and 3"]) == 0
    assert most_consistent(["odd", "x is 5", "x is 5", "x is 6"]) == 1
    assert most_consistent(["a b", "c d"]) == 0
    assert most_consistent(["alone"]) == 0


def test_the_choice_is_that_of_the_least_weight_on_itself_under_a_softmax() -> None:
    texts = ["a b c d", "a b c x", "a b y z", "q r s t", "a b c d"]
    rows = [[cosine(one, other) for other in texts] for one in texts]
    own = [math.exp(row[i]) / sum(map(math.exp, row)) for i, row in enumerate(rows)]
    assert most_consistent(texts) == min(range(len(texts)), key=own.__getitem__)
