"""One answer cannot delay, crash or change the grade of another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from grading import Gold, Grade, Submission, grade_many, pool

GOLD = Gold("42")
ROWS = r"\\".join("&".join(f"a_{{{i}{j}}}" for j in range(9)) for i in range(9))
MATRIX = rf"\det\begin{{pmatrix}}{ROWS}\end{{pmatrix}}"
SLOW = "(x+y+z+w+1)^{60}"


def boxed(answer: str, number: int = 0) -> Submission:
    return Submission(rf"case {number}: \boxed{{{answer}}}", "answered", thinks=False)


def test_hostile_answers_get_a_verdict_in_time_and_their_neighbours_stay_correct(tmp_path: Path) -> None:
    target = tmp_path / "written"
    hostile = [
        "10^{10^{10}}", "9" * 10**6, r"\frac{1}{" * 5000 + "1" + "}" * 5000, "{" * 10**5, "42}}}}", r"\left(1,2",
        f"__import__('os').system('touch {target}')", rf"\text{{().__class__}}+open('{target}','w')", SLOW,
        "\u202e24\u202c", "\ud800", "\x00", r"\sqrt{2+" * 29 + "1" + "}" * 29, "x^" * 900 + "9", MATRIX,
        r"\sum_{k=1}^{9999}\sum_{j=1}^{9999}\sin(kj)",
    ]  # fmt: skip
    items = [(boxed(text, n), GOLD) for n, text in enumerate(hostile)]
    items.append((Submission("so 5 and " * 120_000 + r"\boxed{7}", "answered", thinks=False), GOLD))
    innocent = [(boxed("42", 1000 + n), GOLD) for n in range(len(items))]
    mixed = [item for pair in zip(items, innocent, strict=True) for item in pair]
    started = time.monotonic()
    grades = list(grade_many(mixed, workers=2, time_limit_seconds=1))
    assert time.monotonic() - started < 45
    assert [grade.verdict for grade in grades[1::2]] == ["correct"] * len(innocent)
    assert {g.verdict for g in grades[0::2]} <= {"wrong", "unparsable", "no_answer", "grader_timeout", "correct"}
    assert [n for n, grade in enumerate(grades[0::2]) if grade.verdict == "correct"] == [4]  # `42}}}}` is 42
    assert grades[2 * hostile.index(MATRIX)].verdict in ("wrong", "grader_timeout")
    assert not target.exists()


def test_grades_come_in_the_order_of_the_items_and_equal_items_are_graded_once() -> None:
    items = [(boxed(str(n % 3)), Gold("1")) for n in range(200)]
    grades = list(grade_many(items, workers=2))
    assert [grade.verdict for grade in grades] == [("correct" if n % 3 == 1 else "wrong") for n in range(200)]
    assert len({id(grade) for grade in grades}) == 3


def test_items_are_taken_as_grades_are_asked_for() -> None:
    taken = 0

    def endless() -> Iterator[tuple[Submission, Gold]]:
        nonlocal taken
        while True:
            taken += 1
            yield boxed("42", taken), GOLD

    grades = grade_many(endless(), workers=1)
    assert [next(grades).verdict for _ in range(3)] == ["correct"] * 3
    assert taken <= pool.WINDOW_PER_WORKER + 3
    assert isinstance(grades, Generator)
    grades.close()


def crash(submission: Submission, gold: Gold) -> Grade:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def use_memory(submission: Submission, gold: Gold) -> Grade:
    return Grade("wrong", str(len(bytearray(4 * 1024**3))), None, "", 0.0)


def crash_once(submission: Submission, gold: Gold) -> Grade:
    marker = Path(submission.text)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Grade("correct", None, None, "", 0.0)


def fail(submission: Submission, gold: Gold) -> Grade:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("grade_one", "verdict", "detail"),
    [
        (crash, "grader_timeout", "crashed 2 times"),
        (use_memory, "grader_timeout", "memory limit"),
        (crash_once, "correct", ""),
        (fail, "grader_timeout", "RuntimeError: broken"),
    ],
)
def test_failed_machinery_is_no_verdict_on_the_model_and_a_crash_is_retried_once(
    grade_one: pool.GradeOne, verdict: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # workers import the functions above by name
    item = (Submission(str(tmp_path / "crashed"), "answered", thinks=False), GOLD)
    (result,) = grade_many([item], workers=1, time_limit_seconds=5, grade_one=grade_one)
    assert result.verdict == verdict
    assert detail in result.detail


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
    time.sleep(0.5)  # the pool waits three seconds before it kills a worker

if __name__ == "__main__":
    from grading import Gold, Submission, grade_many

    grades = grade_many([(Submission("42", "answered", thinks=False), Gold("42"))] * 2, workers=2)
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
