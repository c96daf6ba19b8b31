"""A second, independent grader, whose verdicts never count: disagreements show where the first grader may have erred.

It shares no rule, no parser and no comparison with the first grader: it has its own search for the answer, a normal
form of strings, exact rational numbers, and sympy over a small parser of a fixed list of constructs. Where it cannot
read an answer, its verdict is `unparsable`, which means "undecided". It runs in the same killable processes:
`grade_many(items, grade_one=second_grade)`.
"""

from __future__ import annotations

import time
from functools import lru_cache
from importlib import metadata

from grading.grade import CUT_OFF, Gold, Grade, Submission, Verdict
from grading.second.answers import Answer, find_answer, named_option, without_unit
from grading.second.compare import Decision, compare

SECOND_GRADER_VERSION = "second-1"
"""Raised with every change of the second grader that can change one of its verdicts."""
_SHOWN_CHARACTERS = 2_000

__all__ = ["SECOND_GRADER_VERSION", "second_grade", "second_grader_version"]


@lru_cache(maxsize=1)
def second_grader_version() -> str:
    """Return the versions of everything that decides its grades: this grader and the library under it."""
    return f"{SECOND_GRADER_VERSION} sympy={metadata.version('sympy')}"


def second_grade(submission: Submission, gold: Gold) -> Grade:
    """Grade one submission in this process; as with `grade`, output of models goes through `grade_many`."""
    started = time.perf_counter()
    verdict, answer, reason = _verdict(submission, gold)
    text, rule = (answer.text[:_SHOWN_CHARACTERS], answer.rule) if answer else (None, None)
    return Grade(verdict, text, rule, reason, time.perf_counter() - started)


def _verdict(submission: Submission, gold: Gold) -> tuple[Verdict, Answer | None, str]:
    if submission.stop_reason is None:
        return "not_run", None, "the sample never ran"
    if submission.stop_reason == "error":
        return "error", None, "the sample ended with an error"
    if not any(part.strip(" $.") for part in (gold.answer, *gold.answers, *gold.alternatives)):
        return "bad_gold", None, "there is no gold"
    is_cut_off = submission.stop_reason in CUT_OFF
    answer = find_answer(submission.text, submission.thinks, gold.kind == "choice", is_cut_off)
    if answer is None:
        return ("truncated" if is_cut_off else "no_answer"), None, "no answer found"
    decision = _decide(answer, gold)
    if decision.is_equal is None:
        return "unparsable", answer, f"undecided: {decision.reason}"
    return ("correct" if decision.is_equal else "wrong"), answer, decision.reason


def _decide(answer: Answer, gold: Gold) -> Decision:
    if gold.kind == "choice":
        option = named_option(answer.text, gold.choices)
        if option is None:
            return Decision(None, "no single option is named")
        return Decision(option == gold.answer.strip(" ()").upper(), f"option {option}")
    predictions = [answer.text]
    if len(answer.boxes) > 1 and (gold.answers or "," in gold.answer):
        predictions.append(", ".join(dict.fromkeys(answer.boxes)))
    if gold.unit:
        predictions += [head for text in predictions if (head := without_unit(text, gold.unit)) is not None]
    golds = [", ".join(gold.answers)] if gold.answers else list(gold.alternatives or (gold.answer,))
    decisions = [compare(text, prediction, gold.tolerance) for text in golds for prediction in predictions]
    best = next((d for d in decisions if d.is_equal), None) or next((d for d in decisions if d.is_equal is None), None)
    return best or decisions[0]
