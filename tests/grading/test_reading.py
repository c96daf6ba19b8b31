"""Each form of answer is read and compared: notation, numbers, expressions, equations, sets and lists."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from grading.equivalence import equivalent
from grading.reading import Match, Pair
from grading.reading.equations import is_same_relation, value_of_equation
from grading.reading.evaluate import (
    UndefinedError,
    constant_value,
    evaluate,
    is_same_expression,
    is_same_value,
)
from grading.reading.formula import (
    Node,
    read_formula,
    symbols,
    with_symbol_renamed,
)
from grading.reading.lists import (
    MAX_PARTS,
    compare_unnamed,
    compare_unordered,
    shape_of,
)
from grading.reading.notation import (
    Relation,
    clean,
    is_enclosed,
    read_relation,
    split_list,
    without_name,
)
from grading.reading.phrases import is_text
from grading.reading.quantities import (
    MAX_DIGITS,
    compare_numbers,
    is_same_number,
    known_unit,
    read_number,
)
from grading.reading.sets import compare_sets, is_same_set, read_set
from grading.reading.symbolic import compare_symbols
from tests.shared import known


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$5$.", "5"), (r"\dfrac12", r"\frac{1}{2}"), (r"\left( 1 \right)", "( 1 )"), ("٤٢", "42"), ("x²", "x^{2}"),
        ("x₁", "x_{1}"), ("½", r"\frac{1}{2}"), ("√2", r"\sqrt{2}"), ("π", r"\pi"), (r"\$1{,}000", "1000"),
        ("2**3", "2^3"), ("**5**", "5"), (r"\mathbf{42}", "42"), (r"\text{x=5}", "x=5"), (r"\[5\]", "5"),
        ("4\u200b1", "41"), ("α", r"\alpha"), ("5\x00", "5"), (r"90^{\circ}", r"90^\circ"),
        (r"\\frac12", r"\frac{1}{2}"), ("0.33...", r"0.33\ldots"), (r"5~\text{cm}", r"5 \text{cm}"),
        (r"\sqrt3", r"\sqrt{3}"), ("`7`", "7"), (r"\lbrace 1 \rbrace", r"\{ 1 \}"),
    ],
)  # fmt: skip
def test_one_notation_for_one_thing(answer: str, expected: str) -> None:
    assert clean(answer) == expected


@pytest.mark.parametrize(
    ("text", "operands", "signs"),
    [
        ("5", ("5",), ()), ("x = 5", ("x", "5"), ("=",)), (r"1 \le x<3", ("1", "x", "3"), ("<=", "<")),
        (r"x \not= 2", ("x", "2"), ("!=",)), (r"x \in \{a=b\}", ("x", r"\{a=b\}"), ("in",)),
        (r"f(a=b) \geqslant 2", ("f(a=b)", "2"), (">=",)), (r"\left", (r"\left",), ()),
        ("x =< 2", ("x", "2"), ("<=",)),
    ],
)  # fmt: skip
def test_a_chain_is_split_at_its_signs(text: str, operands: tuple[str, ...], signs: tuple[str, ...]) -> None:
    assert read_relation(text) == Relation(operands, signs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", "5"), ("f(x) = 2x", "2x"), ("a_1 = 7", "7"), (r"x \in [1,2]", "[1,2]"), ("x = y = 5", "5"),
        ("2x = 5", "2x = 5"), ("x < 5", "x < 5"), ("x =", "x ="), ("5", "5"),
    ],
)  # fmt: skip
def test_only_a_name_is_dropped(text: str, expected: str) -> None:
    assert without_name(text) == expected


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (is_text, "even", True), (is_text, "abc", False), (is_text, "infinity", False), (is_text, "xy", False),
        (is_enclosed, "()", True), (is_enclosed, "x", False), (is_enclosed, "(1)+(2)", False),
        (split_list, "1,234, 5", ["1,234", "5"]), (split_list, "1, 2 and 3", ["1", "2", "3"]), (split_list, "", []),
        (shape_of, "1,234", None), (shape_of, "(5)", None), (known_unit, r"\text{ cm}^2", "cm^2"),
        (known_unit, "m cubed", "m^3"), (known_unit, "cm^1", "cm"), (known_unit, "apples", None),
    ],
)  # fmt: skip
def test_words_brackets_lists_and_units_are_told_apart(
    read: Callable[[str], object], text: str, expected: object
) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42), ("-42", -42), ("+7", 7), ("1,234", 1234), ("1 234", 1234), (".5", Fraction(1, 2)), ("5.", 5),
        ("1e3", 1000), (r"1.5 \times 10^{-3}", Fraction(3, 2000)), ("3/4", Fraction(3, 4)), ("1 3/4", Fraction(7, 4)),
        (r"1\frac{3}{4}", Fraction(7, 4)), (r"\frac34", Fraction(3, 4)), (r"0.333\ldots", Fraction(1, 3)),
        ("5 cm", 5), ("2 million", 2_000_000), (r"3.14\ldots", Fraction(157, 50)), (r"-\frac{1}{2}", Fraction(-1, 2)),
    ],
)  # fmt: skip
def test_exact_numbers(text: str, value: Fraction | int) -> None:
    assert known(read_number(text)).value == value


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("5", "5%", True), ("5%", "5", True), ("0.35", "35%", True), ("5", "500%", False), ("50%", "0.5", True),
        ("1/3", "0.333333", True), ("1/3", "0.333", False), ("1/3", "0.333334", True), ("0.1", "0.1000001", False),
        ("0.333333", "1/3", True), ("1/8", "0.125001", False), ("1/3", "33.333333%", False),
    ],
)  # fmt: skip
def test_percent_signs_and_rounding(gold: str, prediction: str, expected: bool) -> None:
    assert is_same_number(known(read_number(gold)), known(read_number(prediction))) is expected


VALUES = [
    ("1+2*3", 7), ("2^3^2", 512), ("-2^2", -4), ("2^{-1}", Fraction(1, 2)), (r"\frac{1}{2}+\frac12", 1),
    ("6/2(3)", 9), (r"\sqrt{16}", 4), (r"\sqrt[3]{27}", 3), ("cbrt(8)", 2), ("|3-5|", 2), ("||1-3|-5|", 3),
    ("5!", 120), ("50%", Fraction(1, 2)), (r"\lfloor 2.7 \rfloor", 2), (r"\lceil 2.2 \rceil", 3),
    (r"\lvert -3 \rvert", 3), (r"\binom{5}{2}", 10), (r"\log_2 8", 3), (r"\log_{10}{1000}", 3), ("sin(0)", 0),
    (r"\cos \pi", -1), (r"\sin^2 0", 0), (r"\sin^{-1} 0", 0), (r"180^\circ/\pi", 1), (r"6 \div 2", 3),
    ("1 3/4", Fraction(7, 4)), (r"1\frac34", Fraction(7, 4)), (r"0.\overline{3}", Fraction(1, 3)), ("1.5e2", 150),
    (r"\exp{0}", 1), (r"\operatorname{ln} 1", 0), ("[1+2]3", 9), ("{}4", 4), (r"\tan 0/5", 0), (r"\sin 2\pi/4", 1),
    ("2--3", 5), (r"i^2", -1), (r"\imath^2", -1), (r"\sin[0]", 0), (r"\sin|0|", 0), (r"\sin -0", 0),
    (r"3 \times -2", -6), ("2/3+1/3", 1), ("4^{1/2}", 2), ("(-8)^{1/3}", -2), ("8^{2/3}", 4), ("0^0", 1),
    ("(-1)^{1001}", -1), ("1^{99999}", 1), (r"\binom{6}{3}", 20), (r"\lg 1000", 3), ("(-2)^{1/3}(-2)^{2/3}", -2),
    (r"\sqrt[3]{-27}", -3), ("0.5!", Fraction(0.886226925452758)),
]  # fmt: skip


def node_of(text: str) -> Node:
    return known(read_formula(text))


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values_of_expressions(text: str, value: Fraction | int) -> None:
    assert is_same_value(constant_value(node_of(text)), Fraction(value), 1e-12)


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
    assert symbols(node_of(text)) == expected


def test_a_variable_is_renamed_everywhere_and_nothing_else() -> None:
    renamed = with_symbol_renamed(node_of("2x+y"), "x", "t")
    assert symbols(renamed) == {"t", "y"}
    assert with_symbol_renamed(renamed, "t", "x") == node_of("2x+y")


@pytest.mark.parametrize(
    "text",
    [
        "1/0", "0^{-1}", "9999!", "(9999.5)!", r"\ln 0", r"\sin(10^{10})", r"\sqrt[0]{2}", r"\binom{9999}{2}",
        "((2^{9999})^{99})^{99}", r"\pi^{10000000}",
    ],
)  # fmt: skip
def test_undefined_and_huge_values_are_refused(text: str) -> None:
    assert constant_value(node_of(text)) is None
    with pytest.raises(UndefinedError):
        evaluate(node_of(text), {})


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("(x+1)^2", "x^2+2x+1", True), ("x", "y", False), (r"\log x", r"\frac{\ln x}{\ln 10}", True),
        ("1/0", "1/0", None), (r"\sqrt{x^2}", "x", True), ("x^2", "|x|^2", True), ("0.3333333x", "x/3", True),
        ("i x", "-i x", False), (r"\log 100", "2", True), ("x/(y-y)", "x", None), ("i x", "x i", True),
    ],
)  # fmt: skip
def test_expressions_are_compared_by_their_values(gold: str, prediction: str, expected: bool | None) -> None:
    assert is_same_expression(node_of(gold), node_of(prediction)) is expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 5", "5"), ("m+n = 5", "5"), ("P(A) = 5", "5"), ("2+3 = 5", "5"), ("AB = 5", "5"), ("5 = x", "5"),
        ("2x+3y = 6 = 6", "6"), ("3x+4y = 0", None), ("5 = 5", None), ("x =", None), ("3x = 4", None),
        ("a*b) = 5", None),
    ],
)  # fmt: skip
def test_the_value_that_an_equation_answers(text: str, value: str | None) -> None:
    assert value_of_equation(text) == value


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("x+y=2", "2x+2y=4", True), ("x+y=2", "x+y=3", False), ("x+y=2", "x+z=2", False), ("x<2", "2>x", True),
        ("x<2", "-x<-2", False), ("x<2", "x>2", False), ("x<2", r"x \le 2", False), ("1=2", "2=3", None),
        ("x=?", "x=2", None), ("1<x<y", "y>x>1", True), ("1<x<y", "1<x<z", None), ("1<x<y", r"1 \le x<y", False),
    ],
)  # fmt: skip
def test_relations_with_proportional_sides_are_equal(gold: str, prediction: str, expected: bool | None) -> None:
    assert is_same_relation(gold, prediction) is expected


COLUMN = r"\begin{pmatrix}1\\2\end{pmatrix}"
ROW = r"\begin{pmatrix}1&2\end{pmatrix}"
SQUARE = r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"


@pytest.mark.parametrize(
    ("gold", "prediction", "is_equal", "reason"),
    [
        ("f(x)=2x+1", "f(t)=2t+1", True, "the same definition"), ("y=2x+1", "y=2x+2", False, "equations"),
        ("5", "x<6", False, "the answer has a relation sign, but the gold has none"),
        ("5", "x^2+1=0", False, "the answer is an equation, but the gold is not"),
        ("x^2<y", "5", False, "the gold is a relation"), ("x^2+y^2=1", "5", False, "the gold is an equation"),
        ("x=5", "5", True, "same string"), ("5", "x = 5.0", True, "exact numbers"),
        ("(x+1)^2", "x^2+2x+1", True, "values"), ("(x+1)^2", "x^2+1", False, "values"),
        (r"\frac{\pi}{2}", r"90^\circ", True, "values"), (r"5\sqrt{2}\text{ cm}", r"\sqrt{50}", True, "values"),
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ m}", False, "different units"),
        (r"\sqrt{2}", "1.414214", True, "values"), ("1.414214", r"\sqrt{2}", True, "values"),
        (r"\sqrt{2}", "1.41", False, "values"), ("3x", r"\frac{3x}{", None, "unbalanced braces"),
        ("5", r"\approx", None, "only punctuation"), ("5", r"\frac{35}{7} \approx 5.2", True, "exact numbers"),
        ("5", r"x^2+C_1", False, "values"), (r"\{1,2\}", "[1,2]", False, "a pair or matrix is not a set"),
        (COLUMN, ROW, False, "different matrix size"), (SQUARE, "(1,2,3,4)", False, "a matrix is not a tuple"),
        (r"\{1,2\}", COLUMN, False, "a pair or matrix is not a set"), ("(1,2)", ROW, False, "a matrix is not a tuple"),
        ("(1,2)", "[1,2]", False, "different brackets"), ("1, 2", "[1,2)", False, "different brackets"),
        ("(1,2)", "(1,2,3)", False, "3 parts, expected 2"), ("(1,2)", "(2,1)", False, "a part differs"),
        ("5", "(5,6)", False, "one value vs. several"), ("(5,6)", "5", False, "one value vs. several"),
    ],
)  # fmt: skip
def test_equations_values_and_shapes_decide(gold: str, prediction: str, is_equal: bool | None, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (is_equal, reason)


SAME = [
    ("(1,2)", "1<x<2"), ("[1,2)", r"1 \le x<2"), (r"(-\infty,1)\cup(2,\infty)", r"x<1 \text{ or } x>2"),
    (r"\mathbb{R}\setminus\{2\}", r"x \ne 2"), (r"x \in [0,1]", "[0,1]"), (r"\{x \mid x>3\}", r"(3,\infty)"),
    (r"\{x \in \mathbb{R} \mid x>3\}", "x>3"), ("x>1, x<2", "(1,2)"), ("x<1, x>2", r"(-\infty,1)\cup(2,\infty)"),
    (r"x \ne 1, 2", r"x \ne 1 \text{ and } x \ne 2"), (r"x \notin [1,2]", r"(-\infty,1)\cup(2,\infty)"),
    (r"\{1,2\}", r"\{2,1\}"), (r"[0,2]\cap[1,3]", "[1,2]"), (r"(0,\pi)", r"0<x<\pi"),
    (r"\mathbb{R}", r"(-\infty,\infty)"), (r"\{x \mid 1<x, x<2\}", "(1,2)"),
]  # fmt: skip
OTHER = [("(1,2)", "[1,2)"), ("x>1", "y>1"), ("x>1", r"x \ge 1"), (r"\{1,2\}", r"\{1,3\}"), (r"\emptyset", "(1,2)")]


@pytest.mark.parametrize(
    ("text", "other", "is_same"), [*((*pair, True) for pair in SAME), *((*pair, False) for pair in OTHER)]
)
def test_one_set_has_many_notations(text: str, other: str, is_same: bool) -> None:
    assert is_same_set(known(read_set(text)), known(read_set(other))) is is_same


REFUSED: dict[Callable[[str], object], list[str]] = {
    read_number: [
        "x", "", "1/0", r"\frac{1}{0}", "1,23", "9" * (MAX_DIGITS + 1), "2^3", "1 -3/4", r"\frac{1,2}{x}", "1e9999",
    ],
    read_formula: [
        "", "1 +", "(1", "1 2", r"\int x", "a &", r"\frac{1}", "|1", "2^*", r"\text{abc}", r"\left(", "é", r"\vec",
        "1)", ".",
    ],
    read_set: [
        "(1,2,3)", "(2,1)", "(a,b)", "x", "x+y<1", r"\{a,b\}", "5", "1<x<2<3", r"\{x \in A \mid x>3\}", r"x \in A, B",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("read", "text"), [(read, text) for read, texts in REFUSED.items() for text in texts])
def test_what_has_another_form_is_refused(read: Callable[[str], object], text: str) -> None:
    assert read(text) is None


def test_a_comparison_needs_a_visible_set_and_no_equation() -> None:
    assert compare_sets(Pair("(1,2)", "(1,2)")) is None
    assert compare_sets(Pair("1<x<2", "x=1")) is None
    assert compare_sets(Pair("1<x<2", "five")) is None
    assert known(compare_sets(Pair("1<x<2", "(1,2)"))).is_equal


PAIR = Pair("", "", tolerance=0.5)


def compare(pair: Pair) -> Match:
    """Compare whole numbers; anything else cannot be read."""
    if not (pair.gold.isdigit() and pair.prediction.isdigit()):
        return Match(None, "not a number")
    return Match(int(pair.gold) == int(pair.prediction), f"tolerance {pair.tolerance}")


def test_long_lists_are_only_compared_as_strings() -> None:
    numbers = [str(number) for number in range(MAX_PARTS + 1)]
    assert compare_unordered(numbers, numbers[::-1], PAIR, compare).is_equal
    other = [f"0{number}" for number in numbers]
    assert compare_unordered(numbers, other, PAIR, compare).is_equal is None


def test_values_are_compared_by_their_names_where_each_has_its_own() -> None:
    assert compare_unnamed(["1", "2"], ["x = 2", "y = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["y = 02", "x = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["x = 2", "y = 1"], PAIR, compare).is_equal is False
    assert compare_unnamed(["x = y = 1", "z = 2"], ["x = 1", "z = 2", "y = 1"], PAIR, compare).is_equal


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        ("1, 2", r"\{2,1\}"), (r"\{2,1\}", "1, 2"), (r"\{1,2,3\}", "[3,2,1]"), ("[1,2,3]", r"\{3,2,1\}"),
        ("1, 2", "(1,2)"), ("(1,2)", "1, 2"), ("(1,2)", "x=1, y=2"), (COLUMN, "(1,2)"), ("(1,2)", COLUMN),
        (ROW, "(1,2)"), ("1, 2", COLUMN), (SQUARE, r"\begin{pmatrix}1&2\\3&\frac{8}{2}\end{pmatrix}"),
        (r"\{5\}", "5"), ("5", r"\{5\}"), ("P=(1,2)", "(1,2)"), (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2"),
        (r"\{-2,2\}", r"\pm 2"), ("(x,y)=(1,2)", "(1,2)"),
    ],
)  # fmt: skip
def test_shapes_that_can_be_equal(gold: str, prediction: str) -> None:
    assert equivalent(gold, prediction).is_equal is True


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("5", "x", None), ("x", "5", None), ("5 cm", "5 m", Match(False, "different units")),
        ("5 cm", "5", Match(True, "exact numbers")), ("5 ± 0.5", "5.4", Match(True, "exact numbers")),
        ("5 ± 0.5", "5.6", Match(False, "exact numbers")),
    ],
)  # fmt: skip
def test_two_numbers_are_compared_and_anything_else_is_left(gold: str, prediction: str, expected: Match | None) -> None:
    assert compare_numbers(within(gold, prediction)) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        (r"\int_0^1 x dx", r"\frac{1}{2}", Match(True, "symbols")), ("x^2+1", "x^2+2", Match(False, "symbols")),
        ("1+2i", "2i+1", Match(True, "complex numbers")), ("x^2+121=0", "x^2+1=0", Match(False, "symbols")),
        ("x+y=2", "2x+2y=4", Match(True, "symbols")), ("5", "x=5", Match(False, "symbols")),
        (r"\frac{1}{", "3", Match(False, "the gold is only compared as a string")),
        ("3", r"\frac{1}{", Match(None, "unbalanced braces")), ("3", r"\frac{1}{}+", Match(None, "does not parse")),
        (r"\#", "3", Match(False, "the gold is only compared as a string")),
        ("3.14 ± 0.02", "3.15", Match(True, "within the tolerance")),
        ("3.14 ± 0.02", "3.18", Match(False, "within the tolerance")),
    ],
)  # fmt: skip
def test_symbols(gold: str, prediction: str, expected: Match) -> None:
    assert compare_symbols(within(gold, prediction)) == expected


def within(gold: str, prediction: str) -> Pair:
    """A pair of which the gold may have a tolerance behind ±."""
    gold, _, tolerance = gold.partition(" ± ")
    return Pair(gold, prediction, tolerance=float(tolerance) if tolerance else None)
