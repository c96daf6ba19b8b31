"""Every submission has exactly one verdict, that which a person gives (`cases/`), in every notation of an answer."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sympy

from grading import VERDICTS, Gold, Submission, Verdict, grader_version
from grading.bounds import why_not_parsed
from grading.equivalence import compare_special_forms, equivalent
from grading.grade import grade
from grading.reading import Match, Pair
from grading.reading.notation import clean, split_list
from grading.reading.quantities import read_number
from grading.records import LIBRARIES
from harness import environment
from harness.trace import StopReason
from tests.grading import timed

CASES: list[tuple[str, str | None, bool, Gold, Verdict]] = [
    (r"\boxed{42}", "answered", False, Gold("42"), "correct"),
    (r"\boxed{41}", "answered", False, Gold("42"), "wrong"),
    (r"x</think>\boxed{42}", "answered", True, Gold("42"), "correct"),
    (r"\boxed{42}", "answered", True, Gold("42"), "no_answer"),
    (r"\boxed{42}", "budget", True, Gold("42"), "truncated"),
    (r"\boxed{42}", "context", True, Gold("42"), "truncated"),
    (r"\boxed{42}", "repeated", True, Gold("42"), "truncated"),
    (r"x</think>\boxed{42} and", "budget", True, Gold("42"), "correct"),
    (r"x</think>so 42 and", "budget", True, Gold("42"), "truncated"),
    ("I do not know", "answered", False, Gold("42"), "no_answer"),
    (r"\boxed{\frac{1}{}+}", "answered", False, Gold("42"), "unparsable"),
    (r"\boxed{42}", "error", False, Gold("42"), "error"),
    ("", None, False, Gold("42"), "not_run"),
    (r"\boxed{42}", "answered", False, Gold(" $ . "), "bad_gold"),
    (r"\boxed{42}", "answered", False, Gold(r"\frac{1}{2"), "bad_gold"),
    (r"\boxed{42}", "answered", False, Gold("1,2", answers=("1", "")), "bad_gold"),
    ("Answer: B", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "correct"),
    ("Answer: A", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "wrong"),
    ("Answer: neither", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "unparsable"),
    ("Answer: A", "answered", False, Gold("C", kind="choice", choices=("x", "y")), "bad_gold"),
]


@pytest.mark.parametrize(("text", "stop_reason", "thinks", "gold", "verdict"), CASES)
def test_the_verdict_follows_from_text_stop_reason_and_gold(
    text: str, stop_reason: StopReason | None, thinks: bool, gold: Gold, verdict: Verdict
) -> None:
    result = grade(Submission(text, stop_reason, thinks), gold)
    assert result.verdict == verdict, result


def test_every_verdict_but_the_pools_has_a_case() -> None:
    assert {case[-1] for case in CASES} == set(VERDICTS) - {"grader_timeout"}


def test_every_library_that_decides_grades_is_pinned_and_recorded_with_a_run() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    pins = [name.split("==") for name in pyproject["project"]["dependencies"] if "==" in name]
    assert {name for name, _ in pins} >= set(LIBRARIES)
    for name, version in pins:
        if name in LIBRARIES:
            assert f"{name}={version}" in grader_version().split()
            assert environment.versions()[name] == version


def test_all_parts_of_an_answer_share_one_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["grading.grade"], "ANSWER_SECONDS", 0.1)
    gold, answer = (", ".join(rf"\int_0^{{{k}}} e^{{x^{n}}} dx" for k in range(1, 9)) for n in (2, 3))
    result = grade(Submission(rf"\boxed{{{answer}}}", "answered", thinks=False), Gold(gold))
    assert result.verdict == "wrong"
    assert "0.1 s" in result.detail
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_parts_may_stand_in_a_box_each() -> None:
    text = r"so $x=\boxed{1}$ or $x=\boxed{2}$, that is \boxed{1}, \boxed{2}"
    result = grade(Submission(text, "answered", thinks=False), Gold("1,2", answers=("1", "2")))
    assert result.verdict == "correct"


ROWS: dict[str, dict[str, Any]] = {
    f"{path.stem}:{number}": json.loads(line)
    for path in sorted((Path(__file__).parent / "cases").glob("*.jsonl"))
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    if line
}


def gold_of(row: dict[str, Any]) -> Gold:
    return Gold(
        row["gold"],
        kind=row.get("kind", "math"),
        answers=tuple(row.get("answers", ())),
        alternatives=tuple(row.get("alternatives", ())),
        choices=tuple(row.get("choices", ())),
        unit=row.get("unit"),
        tolerance=row.get("tolerance"),
    )


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_verdict_is_the_one_a_person_gives(row: dict[str, Any]) -> None:
    submission = Submission(row["text"], row.get("stop_reason", "answered"), row.get("thinks", False))
    result = grade(submission, gold_of(row))
    assert result.verdict == row["verdict"], result


@pytest.mark.parametrize(
    "piece", ["{", "a_", "_a", "x^", "1,", "1 ", "sqrt(", r"\text{", "a ", "=", "a=", "!", "5!", "-"]
)
def test_reading_before_the_parser_is_linear_in_repeated_pieces(piece: str) -> None:
    def read(text: str) -> None:
        cleaned = clean(text)
        why_not_parsed(cleaned)
        compare_special_forms(Pair("a=9", cleaned), lambda pair: equivalent(*pair.texts))
        read_number(cleaned)
        split_list(cleaned)

    assert timed(lambda: read((piece * 2000)[:1990] + "9"))[1] < 0.5


def test_importing_the_package_does_not_import_the_symbolic_libraries() -> None:
    program = "import sys, grading; assert not {'sympy', 'math_verify', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sum_{n=0}^{\infty}\frac{x^n}{n!}", r"\sum_{n=0}^{\infty}\frac{x^{2n}}{n+3}"),
        ("4", "e^{\\pi^{e^{\\pi}}}"),
        ("x_1", "a" + "_{b" * 25 + "}" * 25),
        (r"\int_0^1 e^{x^2}dx", r"\int_0^3 e^{-x^3}\cos(x^2)dx"),
    ],
)
def test_what_the_symbolic_libraries_cannot_settle_costs_little(gold: str, answer: str) -> None:
    submission = Submission(rf"\boxed{{{answer}}}", "answered", thinks=False)
    found, seconds = timed(lambda: grade(submission, Gold(gold)))
    assert found.verdict in ("wrong", "unparsable")
    assert seconds < 3


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("52_8", "52_{\\text{eight}}", Match(True, "digits and base")),
        ("52_8", "52", Match(False, "digits and base")), ("52_8", "x", None), ("4:30", "04:30", Match(True, "times")),
        (r"4:30 \text{ pm}", "4:30 am", Match(False, "times")), (r"4:30 \text{ pm}", "5", Match(False, "a time")),
        ("3:4", "6:8", Match(True, "ratios")), ("1:2:3", "2:4", Match(False, "ratios")),
        ("1:2:3", "5", Match(False, "ratios")), ("1:0", "2:3", None),
        ("A, C", "(A) and (C)", Match(True, "option letters")), ("A", "(B) 12", Match(False, "option letters")),
        ("7", "seven", Match(True, "a number in words")), ("even", "odd", Match(False, "words")),
        (r"\mathbb{R}", r"\text{all real numbers}", Match(True, "words")), (r"\mathbb{R}", "R", None),
        (r"1,2,\ldots,n", "1,2,...,n", Match(True, "only compared as a string")),
        (r"1,2,\ldots,n", "1,2", Match(False, "only compared as a string")),
        ("1,2", r"1,2,\ldots,n", Match(None, "only compared as a string")),
        ("5, 6", r"\text{5 apples}, \text{6 pears}", None), ("5", r"\text{number of apples} = 5", None),
        ("x", "y", None),
    ],
)  # fmt: skip
def test_special_forms(gold: str, prediction: str, expected: Match | None) -> None:
    def compare(pair: Pair) -> Match:
        return equivalent(*pair.texts)

    assert compare_special_forms(Pair(gold, prediction), compare) == expected


SEEDS = range(60)
x, y, n = sympy.symbols("x y n", positive=True)


def expression(seed: int) -> Any:
    """Return a small expression in up to two variables, of a family that is common among answers."""
    rng = random.Random(seed)
    a, b, c = (rng.choice([-1, 1]) * rng.randint(2, 9) for _ in range(3))
    families = [
        sympy.Rational(a, abs(b) + 7),
        a + b * sympy.sqrt(abs(c) + 10),
        sympy.Rational(a, 3) * sympy.pi + b,
        (x + a) * (b * x + c),
        (x + a) * (x + b) / (x + 13),
        a / (x + 1) + b / (x + 2),
        a * x**2 * y + b * x * y**2,
        sympy.sqrt(x + abs(a)) * b + c,
        a * sympy.exp(b * x) + c,
        sympy.log(x + abs(a)) + b * x,
        a * sympy.sin(x) + b * sympy.cos(y) + c,
        2**n * a + b,
        a + b * sympy.I,
        (x**2 + abs(a)) / (abs(b) * x),
    ]
    return families[seed % len(families)]


def rewritings(value: Any) -> list[str]:
    forms = [value, sympy.expand(value), sympy.factor(value), sympy.together(value), sympy.nsimplify(value)]
    if value.free_symbols == {x} and value.is_rational_function(x):
        forms.append(sympy.apart(value, x))
    texts = [sympy.latex(form) for form in forms] + [str(form).replace("I", "i") for form in forms]
    first = sympy.latex(value)
    texts += [first.replace(r"\frac", r"\dfrac"), first.replace(r"\left", "").replace(r"\right", ""), f"${first}$"]
    return list(dict.fromkeys(texts))


def perturbed(value: Any) -> list[Any]:
    """Return other expressions that are close to this one."""
    near = [value - sympy.Rational(1, 1000), value * (1 + sympy.Rational(1, 10**9))]
    others = [value + 1, -value, value * 2, value + x, *near]
    return [other for other in others if sympy.expand(other - value) != 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expression_equals_itself_and_its_rewritings(seed: int) -> None:
    gold = sympy.latex(expression(seed))
    unequal = [text for text in rewritings(expression(seed)) if not equivalent(gold, text).is_equal]
    assert unequal == []


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expression_differs_from_perturbed_ones(seed: int) -> None:
    gold = sympy.latex(expression(seed))
    others = map(sympy.latex, perturbed(expression(seed)))
    assert [other for other in others if equivalent(gold, other).is_equal] == []
