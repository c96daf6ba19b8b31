"""Custom graders: a user's function that maps text, gold and problem to a verdict, called in a grader process.

    def grade(text, gold, problem):
        return text.strip() == gold

`text` is the model's output after its chain of thought, `gold` the problem's answer from its dataset, and `problem` a
dict of all its fields. The function returns True, False or one of `WORDS`, or a pair of one of these and the extracted
answer. It is called in an empty folder, without the harness's keys in its environment.

An exception in the function is a failure of the grader, not a verdict on the answer. For truncated text, False and
`no_answer` become `truncated`, because the answer may have been cut off.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from grading.bounds import MAX_ANSWER_CHARACTERS
from grading.records import Gold, Grade, Submission, Verdict

VERSION = "own"
"""First word of every custom grader's version."""
WORDS: tuple[Verdict, ...] = ("correct", "wrong", "no_answer", "unparsable")
"""Verdicts that a function may return, besides True (`correct`) and False (`wrong`)."""
_RETURNS = f"valid: True, False, {', '.join(WORDS)}, or a pair of one of these and the extracted answer"
_KEYS = re.compile(r"HARNESS_\w+_API_KEY|HF_TOKEN|HUGGING_FACE_HUB_TOKEN|WANDB_API_KEY|MLFLOW_TRACKING_\w+")
"""Environment variables with keys for servers, the Hub and trackers."""
_MOST_CHARACTERS = 200

Function = Callable[..., object]


class OwnGraderFailed(RuntimeError):
    """The function raised an exception or returned no valid verdict. The message is one line."""


@dataclass(frozen=True, slots=True)
class OwnGold(Gold):
    """The gold of a problem for a custom grader."""

    problem: str = "{}"
    """All fields of the problem, as JSON."""


@dataclass(frozen=True)
class OwnGrader:
    """A user's function, and the limits per answer."""

    module: str
    """The path of the function's file, or the dotted name of its module."""
    function: str
    seconds: float
    """Processor time per answer."""
    memory_bytes: int

    def loaded(self, folder: str) -> Callable[[Submission, Gold], Grade]:
        """Prepare this process, and return the function as a grader that runs in subfolders of `folder`."""
        os.setsid()  # so its child processes can be killed with it
        os.dup2(2, 1)  # keeps the function's prints out of the command's output
        for name in filter(_KEYS.fullmatch, list(os.environ)):
            del os.environ[name]
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            function: Function = getattr(_imported(self.module), self.function)
        except Exception as error:  # noqa: BLE001  the import worked earlier, but not in this environment
            reason = f"the grader cannot be imported in its process: {_described(error, self.module)}"

            def function(*_: object) -> object:
                raise OwnGraderFailed(reason)

        return lambda submission, gold: self._grade(function, submission, gold)

    def _grade(self, function: Function, submission: Submission, gold: Gold) -> Grade:
        from grading.extract import final_part
        from grading.grade import CUT_OFF, without_end

        started = time.perf_counter()
        if not isinstance(gold, OwnGold):
            return Grade("correct", None, None, "the control answer", 0.0)
        if not_ended := without_end(submission):
            return Grade(not_ended[0], None, None, not_ended[1], 0.0)
        is_cut_off = submission.stop_reason in CUT_OFF
        text = final_part(submission.text, submission.thinks)
        if text is None:
            return Grade("truncated" if is_cut_off else "no_answer", None, None, "the chain of thought never ends", 0.0)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            os.chdir(empty)
            found, answer = self._called(function, text, gold)
        verdict: Verdict = ("correct" if found else "wrong") if isinstance(found, bool) else found
        if is_cut_off and found in (False, "no_answer"):
            verdict = "truncated"
        answer = answer and answer[:MAX_ANSWER_CHARACTERS].encode("utf-8", "replace").decode()
        return Grade(verdict, answer, VERSION, f"{self.function} returned {found}", time.perf_counter() - started)

    def _called(self, function: Function, text: str, gold: OwnGold) -> tuple[bool | Verdict, str | None]:
        """Return the verdict and the answer from the function. Raises OwnGraderFailed and MemoryError."""
        try:
            returned = function(text, gold.answer, json.loads(gold.problem))
            found, answer = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
            is_verdict = isinstance(found, bool) or (isinstance(found, str) and found in WORDS)
            if is_verdict and (answer is None or isinstance(answer, str)):
                return cast("bool | Verdict", found), answer
            shown = " ".join(repr(returned).split())[:_MOST_CHARACTERS]
        except (MemoryError, OwnGraderFailed):
            raise
        except (Exception, SystemExit) as error:
            raise OwnGraderFailed(_described(error, self.module)) from error
        raise OwnGraderFailed(f"{self.function} returned {shown}; {_RETURNS}")


def _imported(module: str) -> ModuleType:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location("own_grader", module)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["own_grader"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _described(error: BaseException, file: str) -> str:
    """Describe an exception: class, message and location.

    The location is the innermost traceback line in the grader's file or, if there is none, where the exception was
    raised.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = ([frame for frame in frames if frame.filename == file] or frames)[-1]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:_MOST_CHARACTERS]}"
    return f"{text} ({Path(place.filename).name}:{place.lineno})"
