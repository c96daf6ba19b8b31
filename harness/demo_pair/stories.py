"""Word problems with their solutions, step by step, made by chance: the task of the demo's pair of models.

A story tells what happens to somebody's things; every event is a step of the solution, every result a number from 1 to
999. Easy stories have one or two events with two-digit numbers, medium ones two or three with numbers up to three
digits, hard ones three, and sentences about other people or other things, which change nothing. Some problems are plain
arithmetic. Numbers are reckoned in columns, from the right, as at school: a small model cannot do it at one go.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.problem import Problem
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
_MOST = 999
_EVENTS: dict[Level, tuple[int, int]] = {"easy": (1, 2), "medium": (2, 3), "hard": (3, 3)}
_ARITHMETIC = 0.15
"""Share of problems without a story, at the two lower levels."""


@dataclass(frozen=True, slots=True)
class Story:
    """A problem and its one solution."""

    text: str
    steps: tuple[str, ...]
    """Of the solution, without the blank line that ends each."""
    answer: int
    level: Level

    @property
    def problem(self) -> Problem:
        """As the harness poses it; without a place in a dataset."""
        return Problem("", "", self.text, str(self.answer), level=self.level)

    def step(self, number: int) -> str:
        """A step as it stands in a chain: the last one closes the thought."""
        return self.steps[number] + (THINK_BRIDGE if number == len(self.steps) - 1 else STEP_END)

    @property
    def conclusion(self) -> str:
        """What is written behind the thought."""
        return f"{CONCLUSION}{self.answer}}}."

    def is_right(self, number: int, text: str) -> bool:
        """Whether a text is this story's step of that number: each has one wording, so its own checker is equality.

        Where a verdict shows no end of the thought, it is not judged; elsewhere the text must end it where it ends.
        """
        if number >= len(self.steps):
            return False
        return text == self.step(number) or (THINK_END not in text and text.strip() == self.steps[number])


@dataclass
class _Account:
    """What a solution has come to."""

    steps: list[str]
    value: int


def stories(seed: int, but: Collection[str] = ()) -> Iterator[Story]:
    """Stories without end, levels in turn; never one whose text is among `but`."""
    dice = random.Random(seed)
    while True:
        for level in LEVELS:
            while (story := _story(dice, level)).text in but:
                pass
            yield story


def _story(dice: random.Random, level: Level) -> Story:
    while True:
        if level != "hard" and dice.random() < _ARITHMETIC:
            text, account = _arithmetic(dice, level)
        else:
            text, account = _told(dice, level)
        if account is not None:
            return Story(text, tuple(account.steps), account.value, level)


def _number(dice: random.Random, level: Level) -> int:
    return dice.randint(10, 99) if level == "easy" or dice.random() < 0.75 else dice.randint(100, 399)


def _arithmetic(dice: random.Random, level: Level) -> tuple[str, _Account | None]:
    account = _Account([], _number(dice, level))
    text = f"Compute {account.value}"
    for _ in range(dice.randint(*_EVENTS[level])):
        number, sign = _number(dice, level), dice.choice("+-")
        text += f" {sign} {number}"
        if not _reckon(account, sign, number, ""):
            return "", None
    return f"{text}.", account


def _told(dice: random.Random, level: Level) -> tuple[str, _Account | None]:
    """A story, or None where a number leaves the range."""
    name, thing = dice.choice(NAMES), dice.choice(THINGS)
    account = _Account([], 0)
    sentences = [_opening(dice, level, name, thing, account)]
    for _ in range(dice.randint(*_EVENTS[level])):
        sentence = _event(dice, level, name, thing, account)
        if sentence is None:
            return "", None
        sentences.append(sentence)
    if level == "hard":
        for _ in range(dice.randint(1, 2)):
            sentences.insert(dice.randint(0, len(sentences)), _distractor(dice, level, name, thing))
    sentences.append(f"How many {thing} does {name} have in the end?")
    return " ".join(sentences), account


def _opening(dice: random.Random, level: Level, name: str, thing: str, account: _Account) -> str:
    if level != "easy" and dice.random() < 0.3:
        bags, number, each = dice.choice(BAGS), dice.randint(2, 9), dice.randint(11, 49)
        account.value = number * each
        told = f"{name} has {number} {bags} with {each} {thing} each"
        account.steps.append(f"{told}: {_worked(number, '×', each)}")
        return f"{told}."
    account.value = _number(dice, level)
    account.steps.append(f"{name} has {account.value} {thing}.")
    return account.steps[-1]


def _event(dice: random.Random, level: Level, name: str, thing: str, account: _Account) -> str | None:
    kind = dice.random()
    if kind < 0.12 and level != "easy":
        verb = dice.choice(list(FACTORS))
        told = f"{name} {verb} the {thing}"
        return f"{told}." if _reckon(account, "×", FACTORS[verb], f"{told}: ") else None
    sign, verbs = ("+", GAINS) if dice.random() < 0.5 else ("-", LOSSES)
    verb = dice.choice(verbs)
    if kind < 0.24 and level != "easy":
        bags, number, each = dice.choice(BAGS), dice.randint(2, 9), dice.randint(11, 29)
        told = f"{number} {bags} with {each} {thing} each"
        account.steps.append(f"{told}: {_worked(number, '×', each)}")
        done = _reckon(account, sign, number * each, f"{name} {verb} {number * each} {thing}: ")
        return f"{name} {verb} {told}." if done else None
    number = _number(dice, level)
    told = f"{name} {verb} {number} {thing}"
    return f"{told}." if _reckon(account, sign, number, f"{told}: ") else None


def _distractor(dice: random.Random, level: Level, name: str, thing: str) -> str:
    """A sentence about somebody else's things, or about other things."""
    other = dice.choice([n for n in NAMES if n != name])
    things = dice.choice([t for t in THINGS if t != thing])
    who, what = (name, things) if dice.random() < 0.4 else (other, thing)
    return f"{who} {dice.choice((*GAINS, *LOSSES, 'has'))} {_number(dice, level)} {what}."


def _reckon(account: _Account, sign: str, number: int, told: str) -> bool:
    """Take a number to the account and write the step; False where the result leaves the range."""
    before = account.value
    account.value = {"+": before + number, "-": before - number, "×": before * number}[sign]
    if not 1 <= account.value <= _MOST:
        return False
    account.steps.append(told + (_worked(number, sign, before) if sign == "×" else _worked(before, sign, number)))
    return True


def _worked(a: int, sign: str, b: int) -> str:
    """A calculation in columns from the right, such as `58 + 65, 8 + 5 = 13, 5 + 6 + 1 = 12, so 123.`; a × b with one
    digit in a."""
    columns: list[str] = []
    kept = 0
    for place in range(len(str(b)) if sign == "×" else len(str(max(a, b)))):
        x, y = (a if sign == "×" else a // 10**place % 10), b // 10**place % 10
        if sign == "-":
            value = x - y - kept
            columns.append(f"{x} - {y}" + " - 1" * kept + " + 10" * (value < 0) + f" = {value % 10}")
            kept = int(value < 0)
        else:
            value = (x * y if sign == "×" else x + y) + kept
            columns.append(f"{x} {sign} {y}" + (f" + {kept}" if kept else "") + f" = {value}")
            kept = value // 10
    result = {"+": a + b, "-": a - b, "×": a * b}[sign]
    return f"{a} {sign} {b}, {', '.join(columns)}, so {result}."
