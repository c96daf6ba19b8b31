"""Golds that reject themselves, and golds that are only compared as text, are listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grading import Gold
from grading.check import Conclusion, check, conclusion, findings, main, to_grade
from harness.problems import benchmarks
from jobs.finished.grading import gold_of
from tests.shared import DATA_DIR, shared_file

GOLDS = {
    "aime24/0": Gold("42"),
    "aime24/1": Gold(r"\frac{3}{4}"),
    "aime24/2": Gold(r"x^2+\sqrt{y}"),
    "aime24/3": Gold(r"\text{Tuesday}"),
    "aime24/4": Gold("1,2,\\ldots,n"),
    "aime24/5": Gold(r"\frac{1}{2"),
    "aime24/6": Gold("3, 4", answers=("3", "4")),
    "aime24/7": Gold("5", alternatives=("5", r"\sqrt{25}")),
    "aime24/8": Gold("B", kind="choice", choices=("x", "y")),
    "aime24/9": Gold("C", kind="choice", choices=("x", "y")),
}


def test_golds_are_sorted_into_understood_words_strings_and_rejected() -> None:
    checked = {item.problem_id.removeprefix("aime24/"): item for item in check(list(GOLDS.items()), workers=1)}
    assert {name: item.kind for name, item in checked.items()} == {
        "0": "understood", "1": "understood", "2": "understood", "3": "words", "4": "only a string", "5": "rejected",
        "6": "understood", "7": "understood", "8": "understood", "9": "rejected",
    }  # fmt: skip
    assert checked["5"].grade.verdict == "bad_gold"
    assert checked["9"].grade.detail


def command(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(folder), "--workers", "1", *arguments])


def write(folder: Path, answers: list[str]) -> None:
    rows = [{"problem": "What?", "answer": answer} for answer in answers]
    (folder / "aime24.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def test_golds_of_a_file_with_other_columns_are_checked(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("question,final\nWhat is 1 + 1?,2\nWhat is 1 + 2?,3\n")
    result = command(tmp_path, "--dataset", str(tmp_path / "my.csv"), "--columns", "problem=question,answer=final")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].split()[-5:] == ["2", "2", "0", "0", "0"]


def test_a_rejected_gold_is_listed_and_exit_code_1(tmp_path: Path) -> None:
    write(tmp_path, [str(number) for number in range(28)] + ["\\frac{1}{2\x1b[2J[red]", "1,2,\\ldots,n"])
    result = command(tmp_path, "--dataset", "aime24", "--dataset", "demo")
    assert result.exit_code == 1, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert any(line.startswith(r"aime24 aime24/28 REJECTED: bad_gold \frac{1}{2\x1b[2J[red]") for line in lines)
    assert any(line.startswith("aime24 aime24/29 only a string") for line in lines)
    assert "aime24 30 29 1 0 1" in lines
    assert any(line.startswith("demo 40 40 0") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--dataset", "nothing"], "gsm8k"),
        (["--dataset", "aime24"], "29"),
        (["--nothing"], "--nothing"),
        (["--columns", "answer=final"], "--dataset"),
        (["--dataset", "demo", "--columns", "answer=final"], "--columns: not valid with the built-in demo"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    write(tmp_path, [str(number) for number in range(29)])
    result = command(tmp_path, *arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert named in result.stderr


@pytest.mark.parametrize("name", ["math500", "amc23", "aime24", "gaokao2023en", "demo"])
def test_every_gold_of_a_dataset_accepts_itself(name: str) -> None:
    """Check the smaller datasets; the command checks the larger ones."""
    folder = None if name == "demo" else shared_file(name, DATA_DIR).parent
    golds = [(problem.id, gold_of(problem)) for problem in benchmarks.load(name, folder)]
    assert [item for item in check(golds, workers=2) if item.kind == "rejected"] == []


SOLUTION = "Tom has 2*3=<<2*3=6>>6 eggs.\nHe eats 1, so 6-1=5 are left.\n#### 5"
MATRIX = "\\begin{pmatrix}\n1 & 2 \\\\\n3 & 4\n\\end{pmatrix}"


ANSWERS_ALONE = [
    "42", "-3.5", r"\frac{1}{2}", r"$\boxed{7}$", "1/2", "3 1/2", "50%", "$12", "5 cm", "½", "√2", r"x^2+1",
    "no solution", "(1, 2), (3, 4)", r"90\text{ square" + "\nunits}", MATRIX, "5\n", "####",
]  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (SOLUTION, Conclusion("5", "hashes")),
        ("So it is 5 #### 1,042", Conclusion("1,042", "hashes")),
        ("#### no solution", Conclusion("no solution", "hashes")),
        (r"We get $x=2$, so $\boxed{\frac{3}{4}}$.", Conclusion(r"\frac{3}{4}", "boxed")),
        ("The answer is 42 because 6 times 7 is that.", Conclusion("42", None)),
        ("答案是5", Conclusion("5", None)),
        ("x = 3\ny = 4", Conclusion("4", None)),
        ("blue\nred", Conclusion("blue\nred", None)),
        *((gold, None) for gold in ANSWERS_ALONE),
    ],
)
def test_a_gold_that_is_more_than_an_answer_has_a_conclusion_and_the_rule_that_reads_it(
    gold: str, expected: Conclusion | None
) -> None:
    assert conclusion(gold) == expected


def test_a_gold_is_met_if_what_it_concludes_with_is_graded_correct_against_it() -> None:
    golds = [
        Gold("42"),
        Gold("B", kind="choice", choices=("x", "y")),
        Gold(r"\frac{1}{2"),
        Gold(SOLUTION),
        Gold(r"So $x=2$, hence $\boxed{\frac{3}{4}}$."),
        Gold("The answer is 42 because 6 times 7 is that."),
        Gold("1, 2", answers=("1", "2")),
        Gold("5", alternatives=("5", SOLUTION)),
    ]
    assert to_grade(golds) == [2, 3, 4, 5, 6, 7]
    found = findings(golds, to_grade(golds), workers=1)
    assert {index: (bool(f.rejected), f.conclusion and f.conclusion.rule, f.is_met) for index, f in found.items()} == {
        2: (True, None, False),
        3: (False, "hashes", False),
        4: (False, "boxed", True),
        5: (False, None, False),
        7: (False, "hashes", False),
    }
