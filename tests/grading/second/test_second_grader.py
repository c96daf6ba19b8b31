"""The second grader decides what it can read, leaves the rest undecided, and survives hostile text."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import grading.second
from grading import grader_version
from grading.grade import LIBRARIES
from grading.second import second_grader_version
from grading.second.compare import compare
from harness import environment

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
