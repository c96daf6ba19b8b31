"""Ordinary answers to a benchmark, made from its golds: correct, rewritten, and those of other problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from grading.grade import Gold, Submission

Item = tuple[Submission, Gold]

_SENTENCES = (
    "Adding both sides gives the result, so the answer is $\\boxed{%s}$.",
    "We check the remaining case and find\n\\[\n\\boxed{%s}\n\\]",
    "Therefore the final answer is \\boxed{%s}. I hope it is correct.",
    "**Answer:** $\\boxed{%s}$",
)
_SPACED = re.compile(r"(?<=[\w})])\s*([+=<>]|-(?=[\w\\({]))\s*")


def answers(golds: Sequence[Gold], samples: int) -> Iterator[Item]:
    """Yield `samples` answers to each problem, sample by sample as in a run, all with different texts.

    Of every four samples, two contain the gold, one an equivalent form of it, and one the gold of another problem.
    """
    for sample in range(samples):
        for number, gold in enumerate(golds):
            answer = _answer(golds, number, sample)
            chain = f"Sample {sample} of problem {number}. " + "First we set up what is given and simplify. " * 8
            yield Submission(chain + _SENTENCES[sample % 4] % answer, "answered", thinks=False), gold


def _answer(golds: Sequence[Gold], number: int, sample: int) -> str:
    own = _written(golds[number])
    if sample % 4 == 2:
        return rewritten(own)
    if sample % 4 == 3:
        return _written(golds[(number + 1 + 7 * sample % (len(golds) - 1)) % len(golds)])
    return own


def _written(gold: Gold) -> str:
    return ", ".join(gold.answers) if gold.answers else (gold.alternatives or (gold.answer,))[0]


def rewritten(answer: str) -> str:
    r"""Return an answer in an equivalent notation: `\dfrac`, `\left(`, spaces around signs, a decimal point."""
    text = answer.replace(r"\frac", r"\dfrac") if r"\frac" in answer else answer
    if text == answer and "(" in text and r"\left" not in text and text.count("(") == text.count(")"):
        text = text.replace("(", r"\left(").replace(")", r"\right)")
    text = _SPACED.sub(r" \1 ", text)
    return f"{text}.0" if re.fullmatch(r"-?\d{1,6}", text) else text
