"""The benchmark makes ordinary answers, prints its tables and writes its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from grading import Gold, grade
from grading.bench import main
from grading.measurements import answers, rewritten

GOLDS = [Gold("42"), Gold(r"\frac{3}{4}"), Gold("(1,2)"), Gold("x^2+1"), Gold("2, 3", answers=("2", "3"))]


def test_three_of_four_answers_are_right_and_no_two_texts_are_alike() -> None:
    items = list(answers(GOLDS, 8))
    assert len({submission.text for submission, _ in items}) == len(items) == 40
    verdicts = [grade(*item).verdict for item in items]
    assert [verdict == "correct" for verdict in verdicts] == [sample % 4 != 3 for sample in range(8) for _ in GOLDS]


@pytest.mark.parametrize(
    ("gold", "expected"),
    [("42", "42.0"), (r"\frac12", r"\dfrac12"), ("(1,2)", r"\left(1,2\right)"), ("x^2+1", "x^2 + 1"), ("-3", "-3.0")],
)
def test_rewritings(gold: str, expected: str) -> None:
    assert rewritten(gold) == expected


def test_a_small_benchmark_prints_both_tables(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    arguments = ["--dataset", "demo", "--problems", "4", "--samples", "4", "--ratio-samples", "2", "--repeats", "1"]
    result = CliRunner().invoke(main, [*arguments, "--workers", "1", "--output", str(output)])
    assert result.exit_code == 0, result.output
    ratio, scaling = json.loads(output.read_text())["tables"]
    assert next(row["of bare"] for row in ratio["rows"]) == 1
    assert all(row["answers per processor second"] > 0 for row in ratio["rows"])
    assert "4 problems × 4 = 16 answers" in scaling["title"]
    [row] = scaling["rows"]
    counts = [int(part.split()[-1]) for part in row["verdicts"].split(", ")]
    assert sum(counts) == 16
    assert float(row["peak memory, all processes, MB"]) > float(row["largest worker, MB"]) > 0
    assert "| workers |" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--workers", "0"], "expected numbers from 1 up"), (["--dataset", "nothing"], "unknown dataset 'nothing'")],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr
