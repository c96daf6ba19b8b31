"""Input and output of grading: a submission and its gold, one of nine verdicts, and the grader's version.

Every sample has exactly one verdict, so a run's verdicts add up to its problems × samples. An answer is `wrong` only if
it was read and compared. Failures of the benchmark or the grader have their own verdicts (`bad_gold`,
`grader_timeout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Literal, get_args

GRADER_VERSION = "3"
"""Increased with every change of the grader that can change a verdict."""
FAILED = "the grader failed:"
"""Prefix of a grade's detail after an exception in the grader's own code; the exception's name follows."""
LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime", "mpmath")

Verdict = Literal[
    "correct", "wrong", "no_answer", "unparsable", "truncated", "error", "grader_timeout", "bad_gold", "not_run"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
StopReason = Literal["answered", "budget", "repeated", "context", "error"]


@dataclass(frozen=True, slots=True)
class Gold:
    """The correct answer of a problem, from its benchmark."""

    answer: str
    """The letter of the correct option for kind `choice`."""
    kind: Literal["math", "choice"] = "math"
    answers: tuple[str, ...] = ()
    """Parts that are all required, in any order, with their multiplicity; empty for a single value."""
    alternatives: tuple[str, ...] = ()
    """Alternative answers, each correct; empty if only `answer` is correct."""
    choices: tuple[str, ...] = ()
    """Option texts in the order A, B, …; only for kind `choice`."""
    unit: str | None = None
    """A unit that an answer may have."""
    tolerance: float | None = None
    """Absolute error allowed by the benchmark."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A sample's output."""

    text: str
    """The model's whole output, including the chain of thought."""
    stop_reason: StopReason | None
    """Why the sample ended; None if it never ran."""
    thinks: bool
    """Whether the prompt opened a chain of thought; an answer then counts only after `</think>`."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one submission, with its basis."""

    verdict: Verdict
    extracted: str | None
    """The answer as it occurs in the text, at most 2,000 characters."""
    rule: str | None
    """The rule of `grading.extract` that applied, or `own` for a custom grader."""
    detail: str
    """Reason for the verdict, in one line."""
    seconds: float
    """Wall-clock time of grading."""


@lru_cache(maxsize=1)
def grader_version() -> str:
    """Return the versions of everything that affects grades: this grader and its libraries."""
    return " ".join([GRADER_VERSION, *(f"{name}={metadata.version(name)}" for name in LIBRARIES)])
