"""The default script of a dry run: a simulated model that solves small sums in a few steps, sometimes wrongly.

It reads the chain in its prompt, so it can continue after any accepted step of either model. It draws from the seed, so
a run without models is as reproducible as a run with models.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from harness.engine import Sampling

_SUM = re.compile(r"(-?\d+)\s*([-+*])\s*(-?\d+)")
_NUMBER = re.compile(r"-?\d+")
_WRONG_MARK = "roughly"
"""A wrong step contains this word, so that the simulated judge can find it."""
_END = "<|end|>"
"""Stands between a chain and the question behind it."""
_STEPS = (
    "First I write down what is given: {a} and {b}.",
    "The question asks for one number made of these two.",
    "Combining these, {a} and {b}, {how} gives {value}.",
    "Checking this again, {value} is {how} consistent with {a} and {b}.",
    "Nothing else in the question changes the result {value}.",
)
_OPENINGS = tuple(" ".join(step.split()[:2]) for step in _STEPS)


@dataclass(frozen=True)
class SimulatedModel:
    """Writes and judges text. A higher `skill` (0 to 1) makes fewer mistakes and judges better."""

    skill: float = 0.9
    thinks: bool = False

    def write(self, prompt: str, sampling: Sampling) -> list[str]:
        """Return `sampling.n` continuations of the prompt, each up to its end of sequence."""
        is_random = sampling.temperature > 0 and sampling.top_k != 1
        return [self._continued(prompt, sampling.seed + i, is_random) for i in range(sampling.n)]

    def judge(self, prompt: str, labels: tuple[str, ...]) -> list[float]:
        """Return each label's probability; wrong steps get low scores, and the last label where all are wrong."""
        subject = prompt.rsplit("\nUser: ", 1)[0] if labels[0] == "0" else prompt.rsplit("\nUser: ", 1)[-1]
        draw = _uniform(prompt, "judge")
        if labels[0] == "0":
            wrong = _WRONG_MARK in subject.rstrip().rsplit("\n\n", 1)[-1]
            favourite = int(draw * 4) if wrong == (draw < self.skill) else 7 + int(draw * 3)
        else:
            shown = [part.split("]", 1)[-1] for part in subject.split("\n\n[")[1:]]
            good = [i for i, text in enumerate(shown) if _WRONG_MARK not in text]
            favourite = good[int(draw * len(good))] if good else len(labels) - 1
            if not shown:  # two labels for the last step: right and wrong
                chain = prompt.rsplit("\nUser: ", 1)[0].removesuffix(_END)
                last_step = chain.rstrip().rsplit("\n\n", 1)[-1]
                favourite = int((_WRONG_MARK in last_step) == (draw < self.skill))
        favourite = min(favourite, len(labels) - 1)
        rest = (0.98 - 0.8) / max(1, len(labels) - 1)
        return [0.8 if i == favourite else rest for i in range(len(labels))]

    def weigh(self, before: str, token: str) -> tuple[float, float]:
        """Return a token's log-probability and its distribution's entropy, in nats; in a wrong step it is unsure."""
        step = before.rsplit("\n\n", 1)[-1]
        draw = _uniform(before, token, "weigh")
        return (-1.0 - draw, 1.0 + draw) if _WRONG_MARK in step else (-0.2 * draw, 1.5 * draw)

    def _continued(self, prompt: str, seed: int, random: bool) -> str:
        question, _, reply = prompt.partition("\nAssistant: ")
        a, operator, b, value = _parse_question(question)
        if reply.rstrip().endswith("\\boxed{"):
            return f"{value}}}"
        if "</think>" in reply or (not self.thinks and "\\boxed" in reply):
            return f"The answer is \\boxed{{{self._result(reply, value)}}}."
        total = 2 + int(_uniform(question, "steps") * (len(_STEPS) - 1))
        written = max((i + 1 for i, opening in enumerate(_OPENINGS) if opening in reply), default=0)
        steps = []
        for i in range(written, total):
            wrong = _uniform(prompt, f"{seed if random else 0}/{i}") > self.skill
            how = _WRONG_MARK if wrong else "exactly"
            steps.append(_STEPS[i].format(a=a, b=b, how=how, value=value + wrong if operator else value))
        chain = "".join(f"{step}\n\n" for step in steps)
        close = "</think>\n\n" if self.thinks else ""
        return f"{chain}{close}The answer is \\boxed{{{self._result(reply + chain, value)}}}."

    def _result(self, chain: str, value: int) -> int:
        numbers = re.findall(r"gives (-?\d+)", chain)
        return int(numbers[-1]) if numbers else value


def _parse_question(question: str) -> tuple[int, str, int, int]:
    """Return two numbers, their operator and the result: without an operator, the sum of the first two numbers."""
    if formula := _SUM.search(question):
        a, operator, b = int(formula[1]), formula[2], int(formula[3])
        return a, operator, b, {"+": a + b, "-": a - b, "*": a * b}[operator]
    a, b, *_ = [*(int(n) for n in _NUMBER.findall(question)[:2]), 1, 1]
    return a, "+", b, a + b


def _uniform(*parts: str) -> float:
    """Return a number in [0, 1) that depends on the text only."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:8], 16) / 0x1_0000_0000
