"""Numbers, Markdown and LaTeX as tables print them, and the band of a line chart."""

from __future__ import annotations

import pytest

from warehouse.display import aligned, latex, markdown
from warehouse.formatting import NOTHING, fixed, number, p_value, percent, signed, span
from warehouse.report.charts import Line, Lines, Place
from warehouse.report.facts import Estimate


def test_missing_values_are_a_dash() -> None:
    assert {percent(None), number(None), fixed(None, 2), span(None, 1.0, 1), span(0.0, None, 1)} == {NOTHING}


def test_numbers_have_a_fixed_form_with_a_typographic_minus() -> None:
    assert (percent(0.1234), number(1234.5), number(0.01234)) == ("12.3 %", "1,234", "0.0123")
    assert (fixed(-0.5, 1), signed(0.5, 2), span(-0.125, 0.5, 1, 100)) == ("−0.5", "+0.50", "−12.5 to 50.0")


@pytest.mark.parametrize(("p", "text"), [(0.00001, "<0.0001"), (0.0095, "0.0095"), (0.0295, "0.029"), (1.0, "1.000")])
def test_small_p_values_have_more_decimals(p: float, text: str) -> None:
    assert p_value(p) == text


def test_text_is_escaped_and_columns_of_numbers_are_aligned_right() -> None:
    assert markdown("a_b <i> $x$") == r"a\_b &lt;i&gt; \$x\$"
    assert latex("−5 % of a_b <i>") == r"\(-\)5 \% of a\_b \textless{}i\textgreater{}"
    table = aligned(("run", "%"), [("a_b", "75.00"), ("c", "–")], "markdown")
    assert table.splitlines()[1] == "|:------|------:|"


def test_an_interval_is_limited_to_possible_values() -> None:
    assert Estimate(0.75, 5, 0.25, 1.25).clipped(1.0) == (0.25, 1.0)
    assert Estimate(0.25, 5, -0.25, 0.75).clipped() == (0.0, 0.75)
    assert Estimate(0.5, 1, None, None).clipped() is None


@pytest.mark.parametrize(("low", "num_bands"), [(40.0, 1), (None, 0)])
def test_a_band_is_drawn_where_positions_have_intervals(low: float | None, num_bands: int) -> None:
    places = [Place(x, 50.0, low, None if low is None else 60.0, "50 %") for x in (1, 2)]
    chart = Lines([Line("run", 0, places)], "step", "%", "Acceptance")
    assert chart.draw(is_narrow=False).count("<polygon") == num_bands
