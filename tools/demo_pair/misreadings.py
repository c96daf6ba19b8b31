"""Misreadings: correctly calculated steps for an event that is not the next one of the story.

The draft skips or repeats events, counts other things or other people's things, and ends the reasoning before the last
event. Such a step continues with the current value, unlike a step taken from another place of the solution, so only the
story shows the mistake. If the solution first states how many things are in bags, the event without this statement is
also a misreading (3.5 % of all misreadings), although the rest of the chain may be correct.
"""

from __future__ import annotations

import random
import re

from harness.prompts import STEP_END, THINK_BRIDGE
from tools.demo_pair.stories import GAINS, LOSSES, Story, in_columns

_CALCULATION = re.compile(r"^(?P<clause>.*?: |)(?P<a>\d+) (?P<sign>[-+×]) (?P<b>\d+), .*, so (?P<result>\d+)\.$")
_CONTENT = re.compile(r"^\d+ \w+ with \d+ \w+ each: ")
"""Start of a step that first computes how many things are in bags."""
_NUMBER = re.compile(r"\d+")
_QUESTION = re.compile(r"How many (?P<thing>\w+) does (?P<name>\w+) have in the end\?$")
_SENTENCE = re.compile(rf"(?P<who>\w+) (?P<verb>{'|'.join((*GAINS, *LOSSES, 'has'))}) (?P<number>\d+) (?P<what>\w+)\.")
_LARGEST = 999
_KEPT_WORDS = 0.15
"""Probability that a sentence that changes nothing keeps its own name and things."""
_ENDS_TOO_SOON = 0.15
"""Probability that the misreading of a step before the last one is the right step followed by the end of the thought.
"""
_CLOSING, _CLOSING_LAST = 0.1, 0.6
"""Probability that a misreading ends the thought: in general, and if it is the story's last event."""


def misreading(rng: random.Random, story: Story, number: int) -> str | None:
    """Return a misreading in place of a step, including the end of the step; None if the story has none for that step.

    `number`: number of a step, or of the closing step of an unclosed story.
    """
    if number < len(story.steps) - 1 and rng.random() < _ENDS_TOO_SOON:
        return story.steps[number] + THINK_BRIDGE
    texts = [*_other_events(story, number), *_idle_sentences(rng, story, number)]
    right = story.steps[number] if number < len(story.steps) else ""
    texts = [(text, weight, is_last) for text, weight, is_last in texts if text != right]
    if not texts:
        return None
    [(text, _, is_last)] = rng.choices(texts, [weight for _, weight, _ in texts])
    return text + (THINK_BRIDGE if rng.random() < (_CLOSING_LAST if is_last else _CLOSING) else STEP_END)


def _value_before(story: Story, number: int) -> int | None:
    """Return the number of things before a step; None before the first one."""
    counted = [step for step in story.steps[:number] if not _CONTENT.match(step)]
    if counted:
        return int(_NUMBER.findall(counted[-1])[-1])
    # Plain arithmetic begins with its first operand.
    begun = _CALCULATION.match(story.steps[0])
    return int(begun["a"]) if begun and not begun["clause"] else None


def _other_events(story: Story, number: int) -> list[tuple[str, float, bool]]:
    """Return the steps of other events, applied to the value before step `number`, with their weights and whether they
    are the last event. The next two events have the largest weight.
    """
    value, last = _value_before(story, number), len(story.steps) - 1
    begins = 0 if _QUESTION.search(story.text) is None else 1
    found = []
    for other in range(begins, len(story.steps)):
        if other == number:
            continue
        weight = 0.25 if other < number else 2.0 if other <= number + 2 else 0.5
        text = story.steps[other] if _CONTENT.match(story.steps[other]) else _applied(story.steps[other], value)
        if text is not None:
            found.append((text, weight, other == last))
    return found


def _applied(step: str, value: int | None) -> str | None:
    """Return an event's step with a different initial value; None if its result is out of range."""
    event = _CALCULATION.match(step)
    if event is None or value is None:
        return None
    operand = int(event["a"] if event["sign"] == "×" else event["b"])
    return _calculated(event["clause"], value, event["sign"], operand)


def _calculated(clause: str, value: int, sign: str, operand: int) -> str | None:
    result = {"+": value + operand, "-": value - operand, "×": value * operand}[sign]
    if not 1 <= result <= _LARGEST:
        return None
    return clause + (in_columns(operand, sign, value) if sign == "×" else in_columns(value, sign, operand))


def _idle_sentences(rng: random.Random, story: Story, number: int) -> list[tuple[str, float, bool]]:
    """Return steps for the sentences that change nothing, as if these were events."""
    question = _QUESTION.search(story.text)
    if question is None:
        return []
    name, thing, value, found = question["name"], question["thing"], _value_before(story, number), []
    for sentence in _SENTENCE.finditer(story.text):
        who, verb, what = sentence["who"], sentence["verb"], sentence["what"]
        if (who, what) == (name, thing):
            continue
        subject, objects = (who, what) if rng.random() < _KEPT_WORDS else (name, thing)
        clause, amount = f"{subject} {verb} {sentence['number']} {objects}", int(sentence["number"])
        text: str | None = f"{clause}." if verb == "has" and number == 0 else None
        if verb != "has" and value is not None:
            text = _calculated(f"{clause}: ", value, "+" if verb in GAINS else "-", amount)
        if text is not None:
            found.append((text, 1.5, False))
    return found
