"""Trees of expressions list and rename their variables."""

from __future__ import annotations

from fractions import Fraction

from grading.reading.formula import Node, contains, number, symbols, with_symbol_renamed

TREE = Node("+", (Node("*", (number(Fraction(2)), Node("symbol", name="x"))), Node("symbol", name="y")))


def test_variables_of_all_parts_are_listed() -> None:
    assert symbols(TREE) == {"x", "y"}


def test_a_test_looks_at_all_parts() -> None:
    assert contains(TREE, lambda node: node.kind == "number")
    assert not contains(TREE, lambda node: node.kind == "function")


def test_a_variable_is_renamed_everywhere_and_nothing_else() -> None:
    renamed = with_symbol_renamed(TREE, "x", "t")
    assert symbols(renamed) == {"t", "y"}
    assert with_symbol_renamed(renamed, "t", "x") == TREE
