"""One expression is read as a whole or not at all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grading.reading.evaluate import constant_value, evaluate, is_same_value
from grading.reading.formula import (
    Node,
    NotAFormulaError,
    Reader,
    contains,
    number,
    read_formula,
    symbols,
    with_symbol_renamed,
)

VALUES = [
    ("1+2*3", 7), ("2^3^2", 512), ("-2^2", -4), ("2^{-1}", Fraction(1, 2)), (r"\frac{1}{2}+\frac12", 1),
    ("6/2(3)", 9), (r"\sqrt{16}", 4), (r"\sqrt[3]{27}", 3), ("cbrt(8)", 2), ("|3-5|", 2), ("||1-3|-5|", 3),
    ("5!", 120), ("50%", Fraction(1, 2)), (r"\lfloor 2.7 \rfloor", 2), (r"\lceil 2.2 \rceil", 3),
    (r"\lvert -3 \rvert", 3), (r"\binom{5}{2}", 10), (r"\log_2 8", 3), (r"\log_{10}{1000}", 3), ("sin(0)", 0),
    (r"\cos \pi", -1), (r"\sin^2 0", 0), (r"\sin^{-1} 0", 0), (r"180^\circ/\pi", 1), (r"6 \div 2", 3),
    ("1 3/4", Fraction(7, 4)), (r"1\frac34", Fraction(7, 4)), (r"0.\overline{3}", Fraction(1, 3)), ("1.5e2", 150),
    (r"\exp{0}", 1), (r"\operatorname{ln} 1", 0), ("[1+2]3", 9), ("{}4", 4), (r"\tan 0/5", 0), (r"\sin 2\pi/4", 1),
    ("2--3", 5), (r"i^2", -1), (r"\imath^2", -1), (r"\sin[0]", 0), (r"\sin|0|", 0), (r"\sin -0", 0),
    (r"3 \times -2", -6),
]  # fmt: skip
REFUSED = [
    "", "1 +", "(1", "1 2", r"\int x", "a &", r"\frac{1}", "|1", "2^*", r"\text{abc}", r"\left(", "é", r"\vec", "1)",
    ".",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_notations_of_numbers(text: str, value: Fraction | int) -> None:
    node = read_formula(text)
    assert node is not None
    number = constant_value(node)
    assert number is not None
    assert is_same_value(number, Fraction(value))


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    assert read_formula(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("xy", {"x", "y"}), (r"\alpha_1", {"alpha_1"}), ("x'", {"x'"}), (r"\vec{a}", {"vec:a"}),
        (r"\hat a", {"vec:a"}), (r"\bar{a}", {"bar:a"}), (r"\mathrm{x}", {"x"}), ("infinity", {"oo"}),
        (r"\infty", {"oo"}), (r"\varphi", {"phi"}), (r"\jmath", {"j"}), ("sinx", {"x"}), ("pix", {"x"}),
        ("a_{n+1}", {"a_n+1"}), ("theta", {"theta"}),
    ],
)  # fmt: skip
def test_names_of_variables(text: str, expected: set[str]) -> None:
    node = read_formula(text)
    assert node is not None
    assert symbols(node) == expected


def test_juxtaposition_is_a_product_of_quotients() -> None:
    node = read_formula("a/bc")
    assert node is not None
    assert evaluate(node, {"a": Fraction(6), "b": Fraction(2), "c": Fraction(5)}) == 15


@pytest.mark.parametrize(
    ("text", "value", "digits", "rest"),
    [
        ("1,234+1", Fraction(1234), None, "+1"), ("0.50", Fraction(1, 2), 2, ""),
        ("0.1(6)", Fraction(1, 6), None, ""), ("2 1/2x", Fraction(5, 2), None, "x"),
        (r"3\frac{1}{2}", Fraction(7, 2), None, ""), (r"3\frac{3}{2}", Fraction(3), None, r"\frac{3}{2}"),
        ("2e3", Fraction(2000), None, ""),
    ],
)  # fmt: skip
def test_numbers(text: str, value: Fraction, digits: int | None, rest: str) -> None:
    scanner = Reader(text)
    node = scanner.number()
    assert (node.value, node.digits, text[scanner.at :]) == (value, digits, rest)


def test_a_position_without_a_number_is_an_error() -> None:
    with pytest.raises(NotAFormulaError):
        Reader("x").number()


def test_commands_are_read_without_moving_and_spaces_are_skipped() -> None:
    scanner = Reader(r"  {} \frac{1}")
    assert scanner.command() == "frac"
    scanner.skip_command("frac")
    assert scanner.skip("{")
    assert not scanner.skip("}")
    with pytest.raises(NotAFormulaError):
        scanner.need("}")


@pytest.mark.parametrize(("rest", "name"), [("_1", "x_1"), ("_{ab}", "x_ab"), ("''", "x''"), ("", "x")])
def test_subscripts_and_primes_belong_to_a_name(rest: str, name: str) -> None:
    assert Reader(rest).name("x").name == name


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
