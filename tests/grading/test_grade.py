"""Every submission has exactly one verdict."""

from __future__ import annotations

import signal
import sys
import tomllib
from pathlib import Path

import pytest

from grading import VERDICTS, Gold, Submission, Verdict, grader_version
from grading.grade import grade
from grading.records import LIBRARIES
from harness import environment
from harness.trace import StopReason

CASES: list[tuple[str, str | None, bool, Gold, Verdict]] = [
    (r"\boxed{42}", "answered", False, Gold("42"), "correct"),
    (r"\boxed{41}", "answered", False, Gold("42"), "wrong"),
    (r"x</think>\boxed{42}", "answered", True, Gold("42"), "correct"),
    (r"\boxed{42}", "answered", True, Gold("42"), "no_answer"),
    (r"\boxed{42}", "budget", True, Gold("42"), "truncated"),
    (r"\boxed{42}", "context", True, Gold("42"), "truncated"),
    (r"\boxed{42}", "repeated", True, Gold("42"), "truncated"),
    (r"x</think>\boxed{42} and", "budget", True, Gold("42"), "correct"),
    (r"x</think>so 42 and", "budget", True, Gold("42"), "truncated"),
    ("I do not know", "answered", False, Gold("42"), "no_answer"),
    (r"\boxed{\frac{1}{}+}", "answered", False, Gold("42"), "unparsable"),
    (r"\boxed{42}", "error", False, Gold("42"), "error"),
    ("", None, False, Gold("42"), "not_run"),
    (r"\boxed{42}", "answered", False, Gold(" $ . "), "bad_gold"),
    (r"\boxed{42}", "answered", False, Gold(r"\frac{1}{2"), "bad_gold"),
    (r"\boxed{42}", "answered", False, Gold("1,2", answers=("1", "")), "bad_gold"),
    ("Answer: B", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "correct"),
    ("Answer: A", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "wrong"),
    ("Answer: neither", "answered", False, Gold("B", kind="choice", choices=("x", "y")), "unparsable"),
    ("Answer: A", "answered", False, Gold("C", kind="choice", choices=("x", "y")), "bad_gold"),
]


@pytest.mark.parametrize(("text", "stop_reason", "thinks", "gold", "verdict"), CASES)
def test_the_verdict_follows_from_text_stop_reason_and_gold(
    text: str, stop_reason: StopReason | None, thinks: bool, gold: Gold, verdict: Verdict
) -> None:
    result = grade(Submission(text, stop_reason, thinks), gold)
    assert result.verdict == verdict, result


def test_every_verdict_but_the_pools_has_a_case() -> None:
    assert {case[-1] for case in CASES} == set(VERDICTS) - {"grader_timeout"}


def test_every_library_that_decides_grades_is_pinned_and_recorded_with_a_run() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    pins = [name.split("==") for name in pyproject["project"]["dependencies"] if "==" in name]
    assert {name for name, _ in pins} >= set(LIBRARIES)
    for name, version in pins:
        if name in LIBRARIES:
            assert f"{name}={version}" in grader_version().split()
            assert environment.versions()[name] == version


def test_all_parts_of_an_answer_share_one_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["grading.grade"], "ANSWER_SECONDS", 0.1)
    gold, answer = (", ".join(rf"\int_0^{{{k}}} e^{{x^{n}}} dx" for k in range(1, 9)) for n in (2, 3))
    result = grade(Submission(rf"\boxed{{{answer}}}", "answered", thinks=False), Gold(gold))
    assert result.verdict == "wrong"
    assert "0.1 s" in result.detail
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
