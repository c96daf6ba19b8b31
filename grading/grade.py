"""Grade one answer: a pure function from text and gold to a verdict."""

from __future__ import annotations

import time
from functools import lru_cache

from grading.bounds import ANSWER_SECONDS, MAX_ANSWER_CHARACTERS, within
from grading.equivalence import equivalent, equivalent_list, is_list
from grading.extract import Extraction, chosen_letter, extract, final_part, letters
from grading.reading import Match, best_match
from grading.reading.notation import clean, split_list, without_name
from grading.records import Gold, Grade, StopReason, Submission, Verdict

MAX_BOXES = 50
"""Maximum number of boxes that are read together as one answer."""
CUT_OFF: frozenset[StopReason] = frozenset({"budget", "repeated", "context"})
"""Stop reasons that make a missing answer `truncated`."""


def grade(submission: Submission, gold: Gold) -> Grade:
    """Grade one submission in this process.

    Hostile text can take unbounded time; use `grade_many` for model output.
    """
    started = time.perf_counter()
    verdict, extraction, detail = _verdict(submission, gold)
    extracted = extraction.text[:MAX_ANSWER_CHARACTERS] if extraction else None
    return Grade(verdict, extracted, extraction.rule if extraction else None, detail, time.perf_counter() - started)


def _verdict(submission: Submission, gold: Gold) -> tuple[Verdict, Extraction | None, str]:
    if not_ended := without_end(submission):
        return not_ended[0], None, not_ended[1]
    problem = gold_problem(gold)
    if problem:
        return "bad_gold", None, problem
    is_cut_off = submission.stop_reason in CUT_OFF
    missing: Verdict = "truncated" if is_cut_off else "no_answer"
    text = final_part(submission.text, submission.thinks)
    if text is None:
        return missing, None, "the chain of thought never ends"
    extraction = extract(text, gold.kind == "choice", is_finished=not is_cut_off)
    if extraction is None:
        return missing, None, "no answer found"
    match = _compare(extraction, gold)
    if match.is_equal:
        return "correct", extraction, match.reason
    return ("unparsable" if match.is_equal is None else "wrong"), extraction, match.reason


def without_end(submission: Submission) -> tuple[Verdict, str] | None:
    """Return verdict and reason for a sample that failed or never ran; None if there is a text to grade."""
    if submission.stop_reason is None:
        return "not_run", "the sample never ran"
    return ("error", "the sample ended with an error") if submission.stop_reason == "error" else None


@lru_cache(maxsize=1024)
def gold_problem(gold: Gold) -> str | None:
    r"""Return why this gold cannot be used, or None. As an answer in `\boxed{…}`, a gold must be graded correct."""
    if gold.kind == "choice":
        letter = _gold_letter(gold)
        is_letter = len(letter) == 1 and letter in letters(gold.choices)
        return None if is_letter else "the gold is not an option letter"
    for part in (gold.answer, *gold.answers, *gold.alternatives):
        if not clean(part) and not (part is gold.answer and (gold.answers or gold.alternatives)):
            return "the gold is empty"
    if gold.tolerance is not None and gold.tolerance < 0:
        return "the tolerance is negative"
    boxed = ", ".join(gold.answers) if gold.answers else (gold.alternatives or (gold.answer,))[0]
    extraction = extract(rf"\boxed{{{boxed}}}", is_choice=False, is_finished=True)
    if extraction is None:
        return "the gold has unbalanced braces"
    match = _compare(extraction, gold)
    return None if match.is_equal else f"the gold is not graded correct against itself: {match.reason}"


def _gold_letter(gold: Gold) -> str:
    return gold.answer.strip().strip("()").upper()


def _compare(extraction: Extraction, gold: Gold) -> Match:
    try:
        match = within(ANSWER_SECONDS, lambda: _match(extraction, gold))
    except RecursionError:
        return Match(None, "too many nested operations")
    return match or Match(False, f"not found equal within {ANSWER_SECONDS:g} s of processor time")


def _match(extraction: Extraction, gold: Gold) -> Match:
    if gold.kind == "choice":
        letter = chosen_letter(extraction.text, gold.choices)
        if letter is None:
            return Match(None, "the answer contains no option or more than one")
        return Match(letter == _gold_letter(gold), f"option {letter}")
    if len(extraction.text) > MAX_ANSWER_CHARACTERS:
        return Match(None, f"longer than {MAX_ANSWER_CHARACTERS} characters")
    matches = [_compare_alternative(extraction, answer, gold) for answer in gold.alternatives or (gold.answer,)]
    if gold.answers and not gold.alternatives and not matches[0].is_equal:
        matches.append(_compare_parts(extraction, gold))
    return best_match(matches)


def _compare_alternative(extraction: Extraction, answer: str, gold: Gold) -> Match:
    """Compare one gold answer with the extracted answer; a gold list is also compared with all boxes together."""
    match = equivalent(answer, extraction.text, gold.tolerance, gold.unit)
    if match.is_equal or len(extraction.boxes) < 2 or not is_list(answer):
        return match
    for boxes in _box_lists(extraction):
        joined = ", ".join(boxes)
        if len(joined) <= MAX_ANSWER_CHARACTERS and equivalent(answer, joined, gold.tolerance, gold.unit).is_equal:
            return Match(True, "all boxes together")
    return match


def _compare_parts(extraction: Extraction, gold: Gold) -> Match:
    """Compare a gold of several parts with the extracted answer, then with all boxes together."""
    golds = [clean(part).removeprefix("and ") for part in gold.answers]
    first: Match | None = None
    for boxes in ([extraction.text], *_box_lists(extraction)):
        values = [without_name(clean(box[:MAX_ANSWER_CHARACTERS])) for box in boxes]
        parts = [without_name(part) for value in values for part in split_list(value)]
        has_names = any("=" in part for part in parts)
        comparable_golds = golds if has_names else [without_name(part) for part in golds]
        match = equivalent_list(comparable_golds, parts, gold.tolerance, gold.unit)
        if match.is_equal:
            return match
        first = first or match
    assert first is not None
    return first


def _box_lists(extraction: Extraction) -> list[list[str]]:
    """Return all boxes, and the boxes without duplicates; nothing for fewer than 2 or more than MAX_BOXES boxes."""
    if not 2 <= len(extraction.boxes) <= MAX_BOXES:
        return []
    return [list(extraction.boxes), list(dict.fromkeys(extraction.boxes))]
