"""Trees of expressions: what `grading.reading.formula` builds and `grading.reading.evaluate` computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: its kind, its operands, and a number's value or a symbol's or function's name."""

    kind: str
    """`number`, `symbol`, `+`, `*`, `/`, `^`, `-` (of one operand), `!`, `function`, or `constant` (e, i, pi)."""
    operands: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""
    digits: int | None = None
    """Significant digits of a decimal."""


def number(value: Fraction, digits: int | None = None) -> Node:
    """Return a number's node."""
    return Node("number", value=value, digits=digits)


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the variables."""
    own = frozenset((node.name,)) if node.kind == "symbol" else frozenset()
    return own.union(*(symbols(operand) for operand in node.operands))


def contains(node: Node, test: Callable[[Node], bool]) -> bool:
    """Return whether any part of the expression passes the test."""
    return test(node) or any(contains(operand, test) for operand in node.operands)


def with_symbol_renamed(node: Node, old: str, new: str) -> Node:
    """Return the expression with one variable renamed."""
    if node.kind == "symbol" and node.name == old:
        return Node("symbol", name=new)
    if not node.operands:
        return node
    operands = tuple(with_symbol_renamed(operand, old, new) for operand in node.operands)
    return Node(node.kind, operands, node.value, node.name, node.digits)
