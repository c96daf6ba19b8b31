"""One answer cannot delay, crash or change the grade of another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path

import pytest

from grading import Gold, Grade, GraderFailed, Submission, grade_many, graded, grader_pool

GOLD = Gold("42")


def boxed(answer: str, number: int = 0) -> Submission:
    return Submission(rf"case {number}: \boxed{{{answer}}}", "answered", thinks=False)


def test_grades_come_in_the_order_of_the_items_and_equal_items_are_graded_once() -> None:
    items = [(boxed(str(n % 3)), Gold("1")) for n in range(200)]
    grades = graded(grade_many(items, workers=2))
    assert [grade.verdict for grade in grades] == [("correct" if n % 3 == 1 else "wrong") for n in range(200)]
    assert len({id(grade) for grade in grades}) == 3


@pytest.mark.usefixtures("importable")
def test_remembered_grades_do_not_keep_the_texts_of_their_items() -> None:
    padding = 100_000
    tracemalloc.start()
    try:
        items = ((Submission(f"{n} {'x' * padding}", "answered", thinks=False), GOLD) for n in range(400))
        assert sum(1 for _ in grade_many(items, workers=1, grade_one=fine)) == 400
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * grader_pool.WINDOW_PER_WORKER * padding


def test_items_are_taken_as_grades_are_asked_for() -> None:
    taken = 0

    def endless() -> Iterator[tuple[Submission, Gold]]:
        nonlocal taken
        while True:
            taken += 1
            yield boxed("42", taken), GOLD

    grades = grade_many(endless(), workers=1)
    assert [grade.verdict for grade in graded(islice(grades, 3))] == ["correct"] * 3
    assert taken <= grader_pool.WINDOW_PER_WORKER + 3
    assert isinstance(grades, Generator)
    grades.close()


def fine(submission: Submission, gold: Gold) -> Grade:
    return Grade("correct", None, None, "", 0.0)


def boom(submission: Submission, gold: Gold) -> Grade:
    """Do to its own process, or raise, what the text says; the control answer says nothing."""
    text = submission.text
    if text.startswith("once "):
        marker = Path(text.split()[-1])
        if marker.exists():
            return Grade("correct", None, None, "", 0.0)
        marker.touch()
        text = text.removeprefix("once ")
    if text.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, text.split()[0]))
        time.sleep(60)
    elif text.startswith("exit"):
        os._exit(3)
    elif text.startswith("memory"):
        bytearray(4 * 1024**3)
    elif text.startswith("work"):
        while True:
            pass
    elif text.startswith("raise"):
        raise {"RecursionError": RecursionError, "OSError": OSError}[text.split()[1]]
    return Grade("correct", None, None, "", 0.0)


def crash_always(submission: Submission, gold: Gold) -> Grade:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def said(text: str) -> tuple[Submission, Gold]:
    return Submission(text, "answered", thinks=False), GOLD


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # processes import the functions above by name


@pytest.mark.usefixtures("importable")
def test_what_an_answer_does_to_its_own_process_twice_is_its_verdict() -> None:
    """Its neighbors are graded, and so is an answer whose process others or the machine end: later."""
    by_answer = {
        "work": "more than 0.25 s of processor time", "memory": "more memory than", "SIGSEGV": "SIGSEGV",
        "exit": "exited with status 3",
    }  # fmt: skip
    by_others = ["SIGKILL", "SIGSTOP", "raise OSError"]
    texts = [word for text in [*by_answer, "raise RecursionError", *by_others] for word in (text, f"fine, not {text}")]
    pool = grade_many(map(said, texts), workers=2, time_limit_seconds=0.25, grade_one=boom)
    found = dict(zip(texts, pool, strict=True))
    grades = {text: one for text, one in found.items() if isinstance(one, Grade)}
    assert {text: one.verdict for text, one in grades.items() if one.verdict != "correct"} == {
        **dict.fromkeys(by_answer, "grader_timeout"),
        "raise RecursionError": "unparsable",
    }
    assert [text for text, detail in by_answer.items() if detail not in grades[text].detail] == []
    assert [text for text, one in found.items() if isinstance(one, grader_pool.Ungraded)] == by_others
    with pytest.raises(GraderFailed, match=r"^3 answers"):
        graded(found.values())


@pytest.mark.usefixtures("importable")
def test_neighbors_that_are_left_ungraded_do_not_keep_others_from_their_grades() -> None:
    killed = [said(f"SIGKILL {number}") for number in range(grader_pool.MOST_FAILURES + 1)]
    results = list(grade_many([*killed, *(said(f"fine {n}") for n in range(40))], workers=1, grade_one=boom))
    assert [type(one) for one in results] == [grader_pool.Ungraded] * len(killed) + [Grade] * 40


@pytest.mark.usefixtures("importable")
def test_an_answer_whose_process_ends_once_is_graded(tmp_path: Path) -> None:
    once = [said(f"once {ending} {tmp_path / ending}") for ending in ("SIGKILL", "SIGSEGV", "exit")]
    assert [one.verdict for one in graded(grade_many(once, workers=1, grade_one=boom))] == ["correct"] * 3


@pytest.mark.usefixtures("importable")
def test_a_grader_that_fails_on_every_answer_gives_no_verdict() -> None:
    results = list(grade_many([said(str(number)) for number in range(5)], workers=2, grade_one=crash_always))
    assert [type(one) for one in results] == [grader_pool.Ungraded] * 5


@pytest.mark.usefixtures("importable")
def test_a_limit_of_memory_of_the_shell_below_the_grader_s_gives_no_verdict() -> None:
    script = (
        "import resource; from grading import Ungraded, grade_many\n"
        "from tests.grading.test_grader_pool import boom, said\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "(one,) = grade_many([said('memory')], workers=1, time_limit_seconds=2, grade_one=boom)\n"
        "print(isinstance(one, Ungraded), one.reason)"
    )
    program = [sys.executable, "-c", script]
    ended = subprocess.run(program, check=True, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert ended.stdout.startswith("True")


NO_FORKS = """
import errno, os, sys

def fork():
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

if any("forkserver" in argument for argument in sys.orig_argv):
    os.fork = fork
"""
GRADE_40 = """
from grading import Gold, Submission, Ungraded, grade_many
for one in grade_many([(Submission(str(n), "answered", thinks=False), Gold("42")) for n in range(40)], workers=2):
    assert isinstance(one, Ungraded), one
print(one.reason)
"""


def test_where_no_process_can_be_started_nothing_is_graded_and_one_reason_is_given(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_FORKS)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    program = [sys.executable, "-c", GRADE_40]
    ended = subprocess.run(program, check=True, env=environment, capture_output=True, text=True)
    assert (len(ended.stdout.splitlines()), ended.stderr) == (1, "")
