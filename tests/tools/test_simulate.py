"""The simulations' tables in small; their whole ones are in warehouse/statistics/README.md."""

from __future__ import annotations

from tools.simulate import accuracy, intervals


def test_the_tables_have_a_line_for_everything_counted() -> None:
    lines = list(intervals.table(4, [(5, 2)]))
    assert len(lines) == 2 + len(intervals.SHARES) + 2
    assert {line.count("|") for line in lines} == {3}
    assert len(list(accuracy.table(2, [5], [1, 2]))) == 2 + 4 * 2
