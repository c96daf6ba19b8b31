"""A second, independent grader: never the one that counts, only the one that asks whether the first may have erred.

It shares no rule, no parser and no comparison with the first: its own search for the answer, a normal form of strings,
exact rational numbers, and sympy over a small parser that knows a fixed list of constructs. What it does not know it
does not judge: the verdict is then `unparsable` and means «undecided». Runs in the same killable processes:
`grade_many(items, grade_one=second_grade)`.
"""

from __future__ import annotations

import time
from functools import lru_cache
from importlib import metadata

from grading.grade import CUT_OFF, Gold, Grade, Submission, Verdict
from grading.second.answers import Found, find_answer, is_of_unit, named_option
from grading.second.compare import Decision, compare

SECOND_GRADER_VERSION = "second-1"
"""Raised with every change that can change one of its verdicts."""
_SHOWN_CHARACTERS = 2_000

__all__ = ["SECOND_GRADER_VERSION", "second_grade", "second_grader_version"]


@lru_cache(maxsize=1)
def second_grader_version() -> str:
    """Name everything that decides its grades: this grader and the library under it."""
    return f"{SECOND_GRADER_VERSION} sympy={metadata.version('sympy')}"


def second_grade(submission: Submission, gold: Gold) -> Grade:
    """Grade one submission. As with `grade`, model output goes through `grade_many`."""
    started = time.perf_counter()
    verdict, found, reason = _verdict(submission, gold)
    text, rule = (found.text[:_SHOWN_CHARACTERS], found.rule) if found else (None, None)
    return Grade(verdict, text, rule, reason, time.perf_counter() - started)


def _verdict(submission: Submission, gold: Gold) -> tuple[Verdict, Found | None, str]:
    if submission.stop_reason is None:
        return "not_run", None, "the sample never ran"
    if submission.stop_reason == "error":
        return "error", None, "the sample ended with an error"
    if not any(part.strip(" $.") for part in (gold.answer, *gold.answers, *gold.alternatives)):
        return "bad_gold", None, "there is no gold"
    is_cut_off = submission.stop_reason in CUT_OFF
    found = find_answer(submission.text, submission.thinks, gold.kind == "choice", is_cut_off)
    if found is None:
        return ("truncated" if is_cut_off else "no_answer"), None, "no answer found"
    decision = _decide(found, gold)
    if decision.is_equal is None:
        return "unparsable", found, f"undecided: {decision.reason}"
    return ("correct" if decision.is_equal else "wrong"), found, decision.reason


def _decide(found: Found, gold: Gold) -> Decision:
    if gold.kind == "choice":
        option = named_option(found.text, gold.choices)
        if option is None:
            return Decision(None, "no single option is named")
        return Decision(option == gold.answer.strip(" ()").upper(), f"option {option}")
    answers = [found.text]
    if len(found.boxes) > 1 and (gold.answers or "," in gold.answer):
        answers.append(", ".join(dict.fromkeys(found.boxes)))
    if gold.unit:
        answers += [head for answer in answers if (head := is_of_unit(answer, gold.unit)) is not None]
    wanted = [", ".join(gold.answers)] if gold.answers else list(gold.alternatives or (gold.answer,))
    decisions = [compare(one, answer, gold.tolerance) for one in wanted for answer in answers]
    best = next((d for d in decisions if d.is_equal), None) or next((d for d in decisions if d.is_equal is None), None)
    return best or decisions[0]
