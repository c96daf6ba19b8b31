"""A number with its noun in the singular or the plural."""

from __future__ import annotations

import pytest

from harness.plural import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 samples"), (1, "1 sample"), (2, "2 samples")])
def test_only_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "sample") == text


def test_an_irregular_plural_is_given() -> None:
    assert counted(1, "sample is", "samples are") == "1 sample is"
    assert counted(3, "sample is", "samples are") == "3 samples are"
