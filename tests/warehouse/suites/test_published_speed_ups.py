"""The published speed-ups under the latency model, and the page with the results."""

from __future__ import annotations

import pytest

from harness.papers.__main__ import README, generated, renewed
from warehouse.suites.published_speed_ups import Explained, explained


@pytest.mark.parametrize(
    ("published", "verdict"),
    [(2.0, "yes"), (3.1, "yes"), (3.2, "faster than the model"), (0.9, "slower than its tokens")],
)
def test_a_value_outside_the_models_range_is_not_explained(published: float, verdict: str) -> None:
    assert verdict in Explained("x", "y", published, low=1.0, high=3.0, tolerance=0.05).verdict


def test_scots_stated_draft_speed_is_too_fast_for_its_own_latencies() -> None:
    """265 + 45 tokens at 5 times the speed would be 2.7 times as fast; the table has 2.26."""
    [stated, shares] = [e for e in explained() if e.name == "SCoT, GSM8K"]
    assert "slower" in stated.verdict
    assert shares.verdict == "yes"


def test_specreason_on_aime_is_above_what_a_free_draft_gives() -> None:
    [aime] = [e for e in explained() if e.name == "SpecReason, QwQ-32B, AIME"]
    assert aime.high < 1 / (1 - 0.408)
    assert "faster" in aime.verdict


def test_the_page_is_what_the_command_generates() -> None:
    page = README.read_text(encoding="utf-8")
    assert generated() in page
    assert renewed(page) == page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the markers"):
        renewed("# nothing\n")
