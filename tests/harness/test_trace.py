"""A method may have words of its own for its steps and calls; what could not be read back is refused at once."""

from __future__ import annotations

import pytest

from harness.trace import Call, Step


def step(role: str) -> Step:
    return Step(author="target", role=role, text="a", num_tokens=1, token_ids=(1,), finish="stop")


@pytest.mark.parametrize("word", ["", "Second look", "x" * 41, "a\nb", "<b>"])
def test_a_word_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"role of a step: .* is invalid: use 1 to 40 of a-z"):
        step(word)
    with pytest.raises(ValueError, match=r"purpose of a call: .* is invalid: use 1 to 40 of a-z"):
        Call(word, "draft", 0, 1, 1, 0, 1, 1, 0.0, 0.0, 0.0, 0.0, 1)
