"""The second grader decides what it can read, leaves the rest undecided, and survives hostile text."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import grading.second
from grading import Gold, Submission, Verdict, grade_many, graded, grader_version
from grading.grade import LIBRARIES
from grading.second import second_grade, second_grader_version
from grading.second.compare import compare
from harness import environment
from harness.trace import StopReason

SAME = [
    ("5", " 5. "),
    ("1,234", "1234"),
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac{9}{7}", "9/7"),
    (r"1\frac{1}{2}", "3/2"),
    (r"3\sqrt{13}", r"\sqrt{117}"),
    ("x^2-1", "(x-1)(x+1)"),
    ("6+9i", "9i+6"),
    (r"\frac{\sqrt2}{2}", "0.7071068"),
    (r"\sin^2 x", r"1-\cos^2 x"),
    (r"\log_2 8", "3"),
    ("10!", "3628800"),
    (r"\{1,2\}", "2, 1"),
    ("1,2", "2 and 1"),
    (r"1\pm\sqrt2", r"1-\sqrt{2}, 1+\sqrt{2}"),
    ("(1,2)", r"\left(1, \frac{4}{2}\right)"),
    ("x<3", "3>x"),
    (r"[0,1)\cup(2,3]", r"(2,3]\cup[0,1)"),
    ("5", "x=5"),
    ("y=2x+3", "2x-y+3=0"),
    (r"5\text{ cm}", "5"),
    ("12", r"12\text{ apples}"),
    (r"90^\circ", "90"),
    (r"5\%", "0.05"),
    (r"\text{Evelyn}", "evelyn"),
    ("e^{i\\pi}", "-1"),
    (r"10^{30}+1", "1" + "0" * 29 + "1"),
    (r"\frac{1}{7}", "0.1428571"),
    ("1/7", "0.1428571"),
]
OTHER = [
    ("5", "6"),
    ("(1,2)", "[1,2]"),
    ("(1,2)", "(2,1)"),
    (r"\{1,2\}", "1,1,2"),
    ("p-q", "q-p"),
    ("stop", "post"),
    ("x<3", "x>3"),
    ("1-1/e", "1+1/e"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
    (".0000672", ".0000673"),
    (r"1\pm\sqrt2", r"1+\sqrt2"),
    ("x^2+121=0", "x^2+1=0"),
    ("10^{30}+1", "10^{30}"),
    (r"[0,1)\cup(2,3]", "[0,1)"),
    ("0.1", "0.1000001"),
    (r"\frac{1}{10}", "0.1000001"),
]
UNDECIDED = [
    ("52_8", "52"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    ("3", "10^{10^{10}}"),
    ("3", "2001!"),
    ("3", r"\int_0^1 x"),
    ("3", "((((" * 20 + "1"),
    ("3", "9" * 5000),
    ("3", "1/0"),
    ("x+1=0", "4"),
    ("3", "__import__('os').system('x')"),
]


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same_answer_is_accepted(gold: str, answer: str) -> None:
    assert compare(gold, answer).is_equal is True, compare(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), OTHER)
def test_another_answer_is_refused(gold: str, answer: str) -> None:
    assert compare(gold, answer).is_equal is False, compare(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), UNDECIDED)
def test_what_it_does_not_know_is_undecided(gold: str, answer: str) -> None:
    assert compare(gold, answer).is_equal is None, compare(gold, answer)


CASES: list[tuple[str, str | None, bool, Gold, Verdict]] = [
    (r"so \boxed{4} and then \boxed{\frac{84}{2}}", "answered", False, Gold("42"), "correct"),
    (r"\boxed{42}", "answered", True, Gold("42"), "no_answer"),
    (r"<think>\boxed{42}", "budget", False, Gold("42"), "truncated"),
    (r"\boxed{1}</think>The answer is 42.", "answered", True, Gold("42"), "correct"),
    ("I have 3 and 4, so 7", "answered", False, Gold("7"), "correct"),
    ("I have 3 and 4, so 7", "budget", False, Gold("7"), "truncated"),
    ("no idea", "answered", False, Gold("7"), "no_answer"),
    (r"\boxed{1} or \boxed{2}", "answered", False, Gold("1,2", answers=("2", "1")), "correct"),
    (r"\boxed{2}", "answered", False, Gold("1", alternatives=("1", "2")), "correct"),
    (r"\boxed{3.02}", "answered", False, Gold("3", tolerance=0.05), "correct"),
    (r"\boxed{3 feet}", "answered", False, Gold("3", unit="feet"), "correct"),
    ("Answer: (B)", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "correct"),
    (r"\boxed{\text{A. x}}", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "wrong"),
    (r"\boxed{y}", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "correct"),
    (r"\boxed{52_8}", "answered", False, Gold("52"), "unparsable"),
    (r"\boxed{42}", "answered", False, Gold(" $ "), "bad_gold"),
    ("", None, False, Gold("42"), "not_run"),
    ("", "error", False, Gold("42"), "error"),
]


@pytest.mark.parametrize(("text", "stop_reason", "thinks", "gold", "verdict"), CASES)
def test_verdicts(text: str, stop_reason: StopReason | None, thinks: bool, gold: Gold, verdict: Verdict) -> None:
    result = second_grade(Submission(text, stop_reason, thinks), gold)
    assert result.verdict == verdict, result


def test_hostile_text_gets_a_verdict_and_its_neighbours_stay_correct() -> None:
    hostile = [
        "10^{10^{10}}",
        "9" * 10**6,
        r"\frac{1}{" * 5000 + "1" + "}" * 5000,
        "{" * 10**5,
        r"\boxed{" * 10**4,
        "-" * 900,
        "(x+y+z+w+1)^{60}",
        "\ud800",
        "\x00\u202e",
        "x^" * 400 + "9",
        "0" + ",1" * 400,
        r"\text{" * 150,
        "2^{2^{2^{2^{49}}}}",
    ]
    items = [(Submission(rf"\boxed{{{text}}}", "answered", thinks=False), Gold("42")) for text in hostile]
    items.append((Submission("so 5 and " * 200_000, "answered", thinks=False), Gold("42")))
    innocent = [
        (Submission(rf"{n}: \boxed{{\frac{{84}}{{2}}}}", "answered", False), Gold("42")) for n in range(len(items))
    ]
    mixed = [item for pair in zip(items, innocent, strict=True) for item in pair]
    grades = graded(grade_many(mixed, workers=2, time_limit_seconds=5, grade_one=second_grade))
    assert [grade.verdict for grade in grades[1::2]] == ["correct"] * len(innocent)
    assert {grade.verdict for grade in grades[0::2]} <= {"wrong", "unparsable", "no_answer", "grader_timeout"}


def test_it_shares_nothing_with_the_first_grader_but_the_records() -> None:
    folder = Path(grading.second.__file__).parent
    imported = {
        node.module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("grading")
    }
    assert {name for name in imported if not name.startswith("grading.second")} == {"grading.grade"}
    assert second_grader_version() != grader_version()


def test_nothing_is_evaluated() -> None:
    names = {"eval", "exec", "sympify", "parse_expr", "S", "parse_latex"}
    for path in Path(grading.second.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            assert used not in names, path


def test_every_library_that_decides_grades_is_pinned_and_recorded_with_a_run() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    pins = [name.split("==") for name in pyproject["project"]["dependencies"] if "==" in name]
    assert {name for name, _ in pins} >= set(LIBRARIES)
    for name, version in pins:
        if name in LIBRARIES:
            assert f"{name}={version}" in grader_version().split()
            assert environment.versions()[name] == version
