"""What is graded, and what comes out: a submission and its gold, one of nine verdicts, and the grader's version.

Every sample has exactly one verdict, so that the verdicts of a run sum to its problems × samples. An answer is only
`wrong` where it was read and compared; failures of the benchmark or the grader have verdicts of their own (`bad_gold`,
`grader_timeout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Literal, get_args

GRADER_VERSION = "3"
"""Raised with every change of the grader that can change a verdict."""
FAILED = "the grader failed:"
"""Beginning of a grade's detail where an exception in the grader's own code ended it; the exception's name follows."""
LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime", "mpmath")

Verdict = Literal[
    "correct", "wrong", "no_answer", "unparsable", "truncated", "error", "grader_timeout", "bad_gold", "not_run"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
StopReason = Literal["answered", "budget", "repeated", "context", "error"]


@dataclass(frozen=True, slots=True)
class Gold:
    """The right answer of one problem, as its benchmark gives it."""

    answer: str
    """The letter of the right option for kind `choice`."""
    kind: Literal["math", "choice"] = "math"
    answers: tuple[str, ...] = ()
    """Parts that are all required, in any order, with their multiplicity; empty where the answer is one value."""
    alternatives: tuple[str, ...] = ()
    """Answers of which each is right by itself; empty where there is only one."""
    choices: tuple[str, ...] = ()
    """Option texts in the order A, B, …; only for kind `choice`."""
    unit: str | None = None
    """A unit that an answer may carry."""
    tolerance: float | None = None
    """Absolute error that the benchmark allows."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What one sample produced."""

    text: str
    """Everything that the model wrote, the chain of thought included."""
    stop_reason: StopReason | None
    """Why the sample ended; None where it never ran."""
    thinks: bool
    """Whether the prompt opened a chain of thought, so that an answer only counts after `</think>`."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one submission and how it came about."""

    verdict: Verdict
    extracted: str | None
    """The answer as it stands in the text, at most 2,000 characters."""
    rule: str | None
    """The rule of `grading.extract` that applied; `own`: an own grader decided."""
    detail: str
    """What decided the verdict, in one line."""
    seconds: float
    """Wall-clock time that grading took."""


@lru_cache(maxsize=1)
def grader_version() -> str:
    """Return the versions of everything that decides grades: this grader and the libraries under it."""
    return " ".join([GRADER_VERSION, *(f"{name}={metadata.version(name)}" for name in LIBRARIES)])
