"""Hostile answers: none reaches a parser unbounded, each has a verdict in time, and neighbours keep their grades."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grading import Gold, Submission, grade_many, graded
from grading.bounds import why_not_parsed
from grading.equivalence import equivalent

ROWS = r"\\".join("&".join(f"a_{{{i}{j}}}" for j in range(9)) for i in range(9))
MATRIX = r"\\".join("&".join(str(i * j % 7) for j in range(200)) for i in range(200))


def boxed(answer: str) -> str:
    return rf"So \boxed{{{answer}}}"


def hostile_texts(target: str) -> dict[str, str]:
    """Return all texts by name; code in them would write the file `target`."""
    answers = {
        "tower of tens": "10^{10^{10}}", "tower in plain text": "10**10**10", "tower of nines": "9^{9^9}",
        "tower of fives": "5^{5^{5^{5^{5}}}}", "tower in brackets": "(10^{10})^{10^{10}}",
        "tower of twos": "2^{2^{2^{49}}}", "large power": "7^{99999999}",
        "power of a power": "((2^{9999})^{9999})^{9999}", "factorial": "10000000!",
        "factorial of a factorial": "((9!)!)!", "triple factorial": "100000!!!",
        "large binomial": r"\binom{10000000}{5000000}", "gamma": r"\Gamma(10^7)",
        "sum": r"\sum_{k=1}^{100000000} \frac{1}{k}", "nested sum": r"\sum_{k=1}^{9999}\sum_{j=1}^{9999}\sin(kj)",
        "product": r"\prod_{k=1}^{10000000} k", "integral": r"\int_0^{1} e^{e^{e^{x^x}}} dx",
        "large sine": r"\sin(10^{10^9})", "large multinomial": "(x+y+z+w+1)^{60}",
        "powers of sums": "(x+1)^{9999}-(x+2)^{9998}", "determinant": rf"\det\begin{{pmatrix}}{ROWS}\end{{pmatrix}}",
        "nested fractions": r"\frac{1}{" * 10_000 + "1" + "}" * 10_000,
        "fewer nested fractions": r"\frac{1}{1+" * 29 + "1" + "}" * 29,
        "nested roots": r"\sqrt{2+" * 200 + "1" + "}" * 200, "nested brackets": "(" * 10_000 + "1" + ")" * 10_000,
        "open braces": "{" * 1_000_000, "open boxes": r"\boxed{" * 100_000, "open text": r"\text{" * 20_000,
        "unclosed fraction": r"\frac{1}{2", "closing braces": "}" * 1_000, "one side of a bracket": r"\left(1,2",
        "hundred thousand digits": "9" * 100_000, "a million digits": "7" * 1_000_000,
        "long decimal": "0." + "3" * 100_000, "many powers": "x^" * 900 + "9", "many signs": "-" * 1_900 + "1",
        "many products": "x" * 1_999, "many sums": "1+" * 900 + "1", "many equalities": "x=" * 900 + "1",
        "many pluses or minuses": r"\pm" * 300 + "1", "large set": r"\{" + ",".join(map(str, range(100_000))) + r"\}",
        "set of hundreds": r"\{" + ",".join(map(str, range(400))) + r"\}",
        "tuple of hundreds": "(" + ",".join(map(str, range(500))) + ")",
        "large matrix": rf"\begin{{pmatrix}}{MATRIX}\end{{pmatrix}}",
        "union of hundreds": r"\cup".join(f"({2 * k},{2 * k + 1})" for k in range(180)),
        "all numbers": r"0,1,\ldots,99", "everything": r"\mathbb{R}", "nothing": r"\emptyset",
        "interval around it": "[41,43]", "a variable": "x", "zero by zero": r"\frac{0}{0}", "one by zero": "1/0",
        "infinity": r"\infty", "not a number": "nan", "import": f"__import__('os').system('touch {target}')",
        "exec": f"exec(open('{target}','w').write('x'))", "dunder": "().__class__.__bases__[0].__subclasses__()",
        "lambda": f"(lambda: open('{target}','w'))()",
        "code in text": rf"\text{{__import__('os').system('touch {target}')}}", "format": "{0.__class__}",
        "shell": f"$(touch {target})", "input": rf"\input{{{target}}}", "def": r"\def\x{\x\x}\x",
        "lone surrogate": "\ud800", "zero byte": "\x00", "right to left": "\u202e24\u202c", "arabic digits": "٤١",
        "other digits": "४१", "zero width": "4\u200b1", "combining": "4" + "\u0301" * 1_900, "emoji": "🧮" * 500,
    }  # fmt: skip
    texts = {name: boxed(answer) for name, answer in answers.items()}
    texts |= {
        "megabyte of babble": "so 5 and " * 120_000,
        "ten megabytes and a box": "x" * 10_000_000 + boxed("41"),
        "a thousand boxes": " ".join(boxed(str(k)) for k in range(41)) * 25 + boxed("43"),
        "dollars": "$" * 50_000,
        "answers": "the answer is " * 5_000,
        "stars": "**" * 25_000,
        "code unboxed": f"__import__('os').system('touch {target}')",
        "code as the answer": f"The answer is __import__('os').system('touch {target}')",
        "unclosed thought": "<think>" + boxed("42"),
    }
    return texts


TIME_LIMIT_SECONDS = 2
MEMORY_LIMIT_BYTES = 1024**3


def submission(text: str) -> Submission:
    return Submission(text, "answered", thinks=False)


def innocent(number: int) -> tuple[Submission, Gold]:
    """Return a correct answer in a text of its own, so that no grade is reused."""
    gold = Gold(str(number)) if number % 2 else Gold(rf"\frac{{{number}}}{{{number + 1}}}+\sqrt{{{number + 2}}}")
    answer = str(number) if number % 2 else rf"\sqrt{{{number + 2}}}+{number}/{number + 1}"
    return submission(f"case {number}: {boxed(answer)}"), gold


def test_hostile_answers_get_a_verdict_in_time_and_their_neighbours_stay_correct(tmp_path: Path) -> None:
    target = tmp_path / "written"
    texts = hostile_texts(str(target))
    items = []
    for number, text in enumerate(texts.values()):
        items += [(submission(text), Gold("42")), innocent(number)]
    started = time.monotonic()
    grades = graded(grade_many(items, 2, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES))
    assert time.monotonic() - started < 5 * TIME_LIMIT_SECONDS * len(texts)
    assert [grade.verdict for grade in grades[1::2]] == ["correct"] * len(texts)
    verdicts = dict(zip(texts, (grade.verdict for grade in grades[0::2]), strict=True))
    allowed = {"wrong", "unparsable", "no_answer", "grader_timeout"}
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in allowed} == {}
    assert not target.exists()


@pytest.mark.parametrize(
    "name", ["nested roots", "large matrix", "tower of tens", "set of hundreds", "union of hundreds"]
)
def test_a_hostile_gold_ends_in_time_too(name: str, tmp_path: Path) -> None:
    text = hostile_texts(str(tmp_path / "written"))[name]
    gold = Gold(text.removeprefix(r"So \boxed{").removesuffix("}"))
    results = graded(grade_many([(submission(text), gold), innocent(1)], 1, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES))
    assert results[0].verdict in {"correct", "bad_gold", "grader_timeout", "unparsable"}
    assert results[1].verdict == "correct"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("10^{10^{10}}", "a tower of exponents"), ("9^{9^9}", "a tower of exponents"),
        ("2^{2^{2^{49}}}", "a tower of exponents"), ("10**10**10", "a tower of exponents"),
        ("(10^{999})^{999}", "a tower of exponents"), ("((7^{99})^{99})^{99}", "a tower of exponents"),
        ("2^{(3^{9})^{9}}", "a tower of exponents"), ("10^{99999}", "an exponent above 10000"),
        ("10000000!", "a factorial above 3000"), ("5!!", "a factorial above 3000"),
        ("(999!)!", "a factorial above 3000"), ("9" * 401, "more than 400 digits in a row"),
        ("(" * 32 + ")" * 32, "nested deeper than 30"),
        (r"\binom{10000000}{5000000}", "a sum, product or special function of large numbers"),
        ("x" * 2001, "longer than 2000 characters"),
    ],
)  # fmt: skip
def test_unbounded_answers_never_reach_a_parser(answer: str, reason: str) -> None:
    assert why_not_parsed(answer) == reason
    assert equivalent("42", answer).is_equal is None


@pytest.mark.parametrize(
    "answer",
    [
        "2^{2023}", "e^{x^2}", "10!", "x^{10}", r"\binom{10}{3}", "n!", "2^{10}-2^{9}", "(n-1)!", "(10^{10})^{10}",
        "x^2+3^2", r"\frac{4x}{(x^2+1)^2}", "e^{-(x-2)^2/2}", "(x^2+1)^9(x^3+1)^9(x^4+1)^9(x^5+1)^9",
    ],
)  # fmt: skip
def test_ordinary_answers_reach_the_parser(answer: str) -> None:
    assert why_not_parsed(answer) is None
