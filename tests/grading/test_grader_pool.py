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
        raise {"RecursionError": RecursionError, "OSError": OSError}[text.split()[1]]("broken")
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
@pytest.mark.parametrize(
    ("text", "verdict", "detail"),
    [
        ("work", "grader_timeout", "more than 1 s of processor time"),
        ("memory", "grader_timeout", "more memory than"), ("SIGSEGV", "grader_timeout", "SIGSEGV"),
        ("SIGABRT", "grader_timeout", "SIGABRT"), ("exit", "grader_timeout", "exit status 3"),
        ("raise RecursionError", "unparsable", "RecursionError: broken"),
    ],
)  # fmt: skip
def test_what_an_answer_does_to_its_own_process_twice_is_its_verdict(text: str, verdict: str, detail: str) -> None:
    neighbors = [said("fine"), said(text), said("fine too")]
    first, result, last = graded(grade_many(neighbors, workers=1, time_limit_seconds=1, grade_one=boom))
    assert (result.verdict, first.verdict, last.verdict) == (verdict, "correct", "correct")
    assert detail in result.detail


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("text", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP", "raise OSError"])
def test_what_others_do_to_a_process_is_no_verdict(text: str) -> None:
    neighbors = [said("fine"), said(text), said("fine too")]
    first, result, last = grade_many(neighbors, workers=1, time_limit_seconds=0.25, grade_one=boom)
    assert isinstance(result, grader_pool.Ungraded)
    assert [one.verdict for one in (first, last) if isinstance(one, Grade)] == ["correct", "correct"]
    with pytest.raises(GraderFailed, match="1 answer was not graded"):
        graded([first, result, last])


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("workers", [1, 2])
def test_neighbors_that_are_left_ungraded_do_not_keep_others_from_their_grades(workers: int) -> None:
    killed = [said(f"SIGKILL {number}") for number in range(2 * grader_pool.MOST_FAILURES)]
    results = list(grade_many([*killed, *(said(f"fine {n}") for n in range(40))], workers=workers, grade_one=boom))
    assert [type(one) for one in results] == [grader_pool.Ungraded] * len(killed) + [Grade] * 40


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGSEGV", "exit", "raise OSError"])
def test_an_answer_whose_process_ends_once_is_graded(ending: str, tmp_path: Path) -> None:
    (result,) = graded(grade_many([said(f"once {ending} {tmp_path / 'marker'}")], workers=1, grade_one=boom))
    assert result.verdict == "correct"


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
    assert "no grader process can be started" in ended.stdout
    assert ended.stderr == ""


STOPPED_WHILE_STARTING = """
import os, signal, sys, time
from pathlib import Path

folder = Path(sys.argv[1])

def is_first():
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

if __name__ == "__mp_main__" and not is_first():  # a worker that is still at its imports when the pool is stopped
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "late").touch()
    while not (folder / "stopping").exists():
        time.sleep(0.01)
    time.sleep(0.5)

if __name__ == "__main__":
    from grading import Gold, Submission, grade_many

    answers = [Submission(text, "answered", thinks=False) for text in (r"\\boxed{42}", r"is \\boxed{42}")]
    grades = grade_many([(answer, Gold("42")) for answer in answers], workers=2)
    print(next(grades).verdict)
    while not (folder / "late").exists():
        time.sleep(0.01)
    (folder / "stopping").touch()
    grades.close()
"""


def test_a_worker_that_still_starts_when_the_grading_ends_prints_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(STOPPED_WHILE_STARTING)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(script), str(tmp_path)]
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "correct\n", "")


def test_importing_the_module_loads_the_libraries() -> None:
    program = "import sys, grading.warm; assert {'sympy', 'math_verify'} <= set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
