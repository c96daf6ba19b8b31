"""A function of a user's own grades: its verdicts, and what it does wrong told apart from what an answer does to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grading import Grade, Submission, Ungraded, grade_many
from grading.own_grader import OwnGold, OwnGrader

ROOT = Path(__file__).parents[2]
GRADER = """
import os, subprocess, sys, time

def grade(text, gold, problem):
    if text == "write":
        print("this is no output of the command")
        open("left behind", "w").close()
    if text == "look":
        return not os.listdir(".")
    if text == "key":
        return "HF_TOKEN" not in os.environ, os.environ["OTHER_TOKEN"]
    if text == "loop":
        while True: pass
    if text == "memory":
        return len(bytearray(2**30)) > 0
    if text == "wait":
        subprocess.run([sys.executable, "-c", f"import time; time.sleep(300) # {gold}"])
    if text == "crash":
        os.abort()
    if text == "exit":
        sys.exit(3)
    return {"level": problem.get("level"), "True": True, "False": False}.get(text, eval(text) if "(" in text else text)
"""


@pytest.fixture
def grader(tmp_path: Path) -> OwnGrader:
    path = tmp_path / "mine.py"
    path.write_text(GRADER)
    return OwnGrader(str(path), "grade", 1.0, 2**28)


def graded(grader: OwnGrader, *texts: str, stop_reason: str = "answered", gold: str = "a\nb") -> list[Grade | Ungraded]:
    problem = OwnGold(gold, problem='{"level": "correct"}')
    items = [(Submission(text, stop_reason, thinks=False), problem) for text in texts]  # type: ignore[arg-type]
    return list(grade_many(items, workers=1, grade_one=grader))


def test_what_the_function_returns_is_the_verdict(grader: OwnGrader) -> None:
    returned = {
        "True": ("correct", None), "False": ("wrong", None), "no_answer": ("no_answer", None),
        "unparsable": ("unparsable", None), "level": ("correct", None), "('wrong', None)": ("wrong", None),
        "(False, 'x' * 9999)": ("wrong", "x" * 2_000), "(True, '\\ud800')": ("correct", "?"),
    }  # fmt: skip
    found = graded(grader, *returned)
    assert [(one.verdict, one.extracted) for one in found if isinstance(one, Grade)] == list(returned.values())


def test_each_answer_has_an_empty_folder_and_no_key_of_the_harness(grader: OwnGrader) -> None:
    script = (
        "from grading.own_grader import OwnGrader; from tests.grading.test_own_grader import graded\n"
        f"print([(one.verdict, one.extracted) for one in graded({grader}, 'write', 'look', 'key')[-2:]])"
    )
    environment = {**os.environ, "HF_TOKEN": "secret", "OTHER_TOKEN": "theirs"}  # of all grader processes
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.stdout == "[('correct', None), ('correct', 'theirs')]\n"


def test_what_the_function_does_wrong_is_no_verdict_and_keeps_no_other_from_its_grade(grader: OwnGrader) -> None:
    reasons = {
        "(1 / 0)": "ZeroDivisionError: division by zero (mine.py:22)", "exit": "SystemExit: 3 (mine.py:21)",
        "(True, 1)": "grade returned (True, 1); valid:", "dict()": "grade returned {}; valid:",
    }  # fmt: skip
    before, *failed, after = graded(grader, "True", *reasons, "False")
    for one, reason in zip(failed, reasons.values(), strict=True):
        assert isinstance(one, Ungraded)
        assert one.reason.startswith(reason)
    assert [one.verdict for one in (before, after) if isinstance(one, Grade)] == ["correct", "wrong"]


def test_what_an_answer_does_to_the_function_twice_is_its_verdict(grader: OwnGrader) -> None:
    mark, details = f"mark-{time.time_ns()}", {
        "loop": "more than 0.5 s of processor time, 2 times", "memory": "more memory than 268435456 bytes, 2 times",
        "crash": "grader process was terminated by SIGABRT, 2 times", "wait": "got no processor time for 2 s, 2 times",
    }  # fmt: skip
    before, *found = graded(replace(grader, seconds=0.5), "True", *details, gold=mark)
    assert isinstance(before, Grade)
    for one, detail in zip(found, details.values(), strict=True):
        assert isinstance(one, Grade)
        assert (one.verdict, detail in one.detail) == ("grader_timeout", True)
    commands = (Path(entry, "cmdline") for entry in Path("/proc").iterdir() if entry.name.isdigit())
    assert not [one for one in commands if mark.encode() in _content(one)], "what it started has ended with it"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_what_was_cut_off_is_truncated_unless_it_is_right_or_called_wrong(grader: OwnGrader) -> None:
    found = graded(grader, "True", "False", "no_answer", "wrong", stop_reason="budget")
    assert [one.verdict for one in found if isinstance(one, Grade)] == ["correct", "truncated", "truncated", "wrong"]
    [failed] = graded(grader, "True", stop_reason="error")
    assert isinstance(failed, Grade)
    assert failed.verdict == "error"


def test_a_file_that_cannot_be_imported_there_is_named_with_its_line(grader: OwnGrader) -> None:
    Path(grader.module).write_text("import os\n\nKEY = os.environ['HF_TOKEN']\n")
    [found] = graded(grader, "True")
    assert isinstance(found, Ungraded)
    assert found.reason.endswith("KeyError: 'HF_TOKEN' (mine.py:3)")
