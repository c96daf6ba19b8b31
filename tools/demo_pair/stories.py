"""Randomly generated word problems with step-by-step solutions: the task of the demo's pair of models.

A story tells what happens to a person's things. Every event is a step of the solution, and every result is a number
from 1 to 999. Easy stories have one or two events with two-digit numbers, medium ones two or three with numbers of up
to three digits, hard ones three, plus distractors: sentences about other people or things that change nothing. Some
problems are plain arithmetic. Calculations are written out in columns from the right, as at school, because a small
model cannot do them in one step.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.problems.problem import Problem
from harness.prompts import STEP_END, THINK_BRIDGE, THINK_END

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
NAMES = (
    "Ana", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jonas", "Kira", "Leo", "Mia", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tara", "Uma", "Victor", "Wanda", "Yara", "Zoe",
)  # fmt: skip
THINGS = (
    "apples", "balls", "beads", "books", "buttons", "candles", "cards", "coins", "cookies", "crayons", "eggs",
    "flowers", "letters", "marbles", "nuts", "pears", "pens", "plates", "shells", "stamps", "stickers", "stones",
    "tickets", "toys",
)  # fmt: skip
BAGS = ("bags", "boxes", "jars", "packs")
GAINS = ("buys", "finds", "gets", "makes", "wins")
LOSSES = ("breaks", "gives away", "loses", "sells", "uses")
FACTORS = {"doubles": 2, "triples": 3}
CONCLUSION = "The answer is \\boxed{"
_MAX_RESULT = 999
_EVENTS: dict[Level, tuple[int, int]] = {"easy": (1, 2), "medium": (2, 3), "hard": (3, 3)}
_ARITHMETIC = 0.15
"""Share of plain arithmetic problems at the two lower levels."""


@dataclass(frozen=True, slots=True)
class Story:
    """A problem and its only solution."""

    text: str
    steps: tuple[str, ...]
    """The steps of the solution, each without the blank line that ends it."""
    answer: int
    level: Level
    is_unclosed: bool = False
    """Whether the last step lacks the end of the thought, which is then a separate closing step."""

    @property
    def problem(self) -> Problem:
        """The story as a problem of the harness, without an id or a dataset."""
        return Problem("", "", self.text, str(self.answer), level=self.level)

    def step(self, number: int) -> str:
        """Return a step as it appears in a chain, with its end; the last step closes the thought.

        The step after the last one is the conclusion. In an unclosed story, the closing step is between the two.
        """
        last = len(self.steps) - 1
        if number == self.end:
            return self.conclusion
        if number > last:
            return THINK_BRIDGE
        closes = number == last and not self.is_unclosed
        return self.steps[number] + (THINK_BRIDGE if closes else STEP_END)

    @property
    def end(self) -> int:
        """The step number of the conclusion."""
        return len(self.steps) + self.is_unclosed

    def lacks_end(self, number: int) -> bool:
        """Return whether step `number` is the last step of an unclosed story, and so lacks the end of the thought."""
        return self.is_unclosed and number == len(self.steps) - 1

    @property
    def conclusion(self) -> str:
        """The text after the thought, with the answer."""
        return f"{CONCLUSION}{self.answer}}}."

    def is_right(self, number: int, text: str) -> bool:
        """Return whether a text is step `number` of the solution; each step has exactly one wording.

        A text without the end of the thought is compared only with the step's sentence; any other text must match
        including its end.
        """
        if number > self.end:
            return False
        if number == self.end:
            return text == self.conclusion
        if number == len(self.steps):
            return text.strip() == THINK_END
        closed = number == len(self.steps) - 1 and text == self.steps[number] + THINK_BRIDGE
        return closed or text == self.step(number) or (THINK_END not in text and text.strip() == self.steps[number])


@dataclass
class _Solution:
    """A solution in progress: its steps so far and the current value."""

    steps: list[str]
    value: int


def stories(seed: int, excluded: Collection[str] = ()) -> Iterator[Story]:
    """Yield stories endlessly, cycling through the levels; texts in `excluded` are skipped."""
    rng = random.Random(seed)
    while True:
        for level in LEVELS:
            while (story := _story(rng, level)).text in excluded:
                pass
            yield story


def _story(rng: random.Random, level: Level) -> Story:
    while True:
        if level != "hard" and rng.random() < _ARITHMETIC:
            text, solution = _arithmetic(rng, level)
        else:
            text, solution = _events_story(rng, level)
        if solution is not None:
            return Story(text, tuple(solution.steps), solution.value, level)


def _number(rng: random.Random, level: Level) -> int:
    return rng.randint(10, 99) if level == "easy" or rng.random() < 0.75 else rng.randint(100, 399)


def _arithmetic(rng: random.Random, level: Level) -> tuple[str, _Solution | None]:
    solution = _Solution([], _number(rng, level))
    text = f"Compute {solution.value}"
    for _ in range(rng.randint(*_EVENTS[level])):
        number, sign = _number(rng, level), rng.choice("+-")
        text += f" {sign} {number}"
        if not _calculate(solution, sign, number, ""):
            return "", None
    return f"{text}.", solution


def _events_story(rng: random.Random, level: Level) -> tuple[str, _Solution | None]:
    """Return a story and its solution; None in place of the solution if a number leaves the range."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    solution = _Solution([], 0)
    sentences = [_opening(rng, level, name, thing, solution)]
    for _ in range(rng.randint(*_EVENTS[level])):
        sentence = _event(rng, level, name, thing, solution)
        if sentence is None:
            return "", None
        sentences.append(sentence)
    if level == "hard":
        for _ in range(rng.randint(1, 2)):
            sentences.insert(rng.randint(0, len(sentences)), _distractor(rng, level, name, thing))
    sentences.append(f"How many {thing} does {name} have in the end?")
    return " ".join(sentences), solution


def _opening(rng: random.Random, level: Level, name: str, thing: str, solution: _Solution) -> str:
    if level != "easy" and rng.random() < 0.3:
        bags, number, each = rng.choice(BAGS), rng.randint(2, 9), rng.randint(11, 49)
        solution.value = number * each
        clause = f"{name} has {number} {bags} with {each} {thing} each"
        solution.steps.append(f"{clause}: {in_columns(number, '×', each)}")
        return f"{clause}."
    solution.value = _number(rng, level)
    solution.steps.append(f"{name} has {solution.value} {thing}.")
    return solution.steps[-1]


def _event(rng: random.Random, level: Level, name: str, thing: str, solution: _Solution) -> str | None:
    kind = rng.random()
    if kind < 0.12 and level != "easy":
        verb = rng.choice(list(FACTORS))
        clause = f"{name} {verb} the {thing}"
        return f"{clause}." if _calculate(solution, "×", FACTORS[verb], f"{clause}: ") else None
    sign, verbs = ("+", GAINS) if rng.random() < 0.5 else ("-", LOSSES)
    verb = rng.choice(verbs)
    if kind < 0.24 and level != "easy":
        bags, number, each = rng.choice(BAGS), rng.randint(2, 9), rng.randint(11, 29)
        content = f"{number} {bags} with {each} {thing} each"
        solution.steps.append(f"{content}: {in_columns(number, '×', each)}")
        is_in_range = _calculate(solution, sign, number * each, f"{name} {verb} {number * each} {thing}: ")
        return f"{name} {verb} {content}." if is_in_range else None
    number = _number(rng, level)
    clause = f"{name} {verb} {number} {thing}"
    return f"{clause}." if _calculate(solution, sign, number, f"{clause}: ") else None


def _distractor(rng: random.Random, level: Level, name: str, thing: str) -> str:
    """Return a sentence about somebody else's things, or about other things of the same person."""
    other = rng.choice([n for n in NAMES if n != name])
    things = rng.choice([t for t in THINGS if t != thing])
    who, what = (name, things) if rng.random() < 0.4 else (other, thing)
    return f"{who} {rng.choice((*GAINS, *LOSSES, 'has'))} {_number(rng, level)} {what}."


def _calculate(solution: _Solution, sign: str, number: int, clause: str) -> bool:
    """Apply an operation to the solution's value and append the step; False if the result leaves the range."""
    before = solution.value
    solution.value = {"+": before + number, "-": before - number, "×": before * number}[sign]
    if not 1 <= solution.value <= _MAX_RESULT:
        return False
    operands = (number, before) if sign == "×" else (before, number)
    solution.steps.append(clause + in_columns(operands[0], sign, operands[1]))
    return True


def in_columns(a: int, sign: str, b: int) -> str:
    """Return a calculation in columns from the right: `58 + 65, 8 + 5 = 13, 5 + 6 + 1 = 12, so 123.`

    In a product, a has one digit.
    """
    columns: list[str] = []
    carry = 0
    for place in range(len(str(b)) if sign == "×" else len(str(max(a, b)))):
        x, y = (a if sign == "×" else a // 10**place % 10), b // 10**place % 10
        if sign == "-":
            value = x - y - carry
            columns.append(f"{x} - {y}" + " - 1" * carry + " + 10" * (value < 0) + f" = {value % 10}")
            carry = int(value < 0)
        else:
            value = (x * y if sign == "×" else x + y) + carry
            columns.append(f"{x} {sign} {y}" + (f" + {carry}" if carry else "") + f" = {value}")
            carry = value // 10
    result = {"+": a + b, "-": a - b, "×": a * b}[sign]
    return f"{a} {sign} {b}, {', '.join(columns)}, so {result}."
