"""The candidates for a step: what a verdict is asked about, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine import Completion
from harness.prompts import THINK_END
from harness.trace import Candidate, Verdict


def as_candidates(completions: Sequence[Completion]) -> list[Candidate]:
    """Return the record of each completion as a candidate.

    Texts that are equal up to surrounding whitespace share an option, so that a verdict never splits its probability
    between them. The whitespace before `</think>`, which no judge is shown, counts as such.
    """
    options: dict[tuple[str, bool], int] = {}
    return [
        Candidate(
            text=c.text,
            num_tokens=c.num_tokens,
            finish=c.finish,
            mean_logprob=c.mean_logprob,
            option=options.setdefault(_as_shown(c.text), len(options)),
        )
        for c in completions
    ]


def _as_shown(text: str) -> tuple[str, bool]:
    """Return what a verdict's question shows of a text, and whether the text closes the thought."""
    return text.replace(THINK_END, "").strip(), THINK_END in text


def offered_texts(candidates: Sequence[Candidate]) -> list[str]:
    """Return the distinct texts that a verdict is asked about, in the order of their options."""
    texts: dict[int, str] = {}
    for candidate in candidates:
        if candidate.option is not None:
            texts.setdefault(candidate.option, candidate.text)
    return [texts[i] for i in sorted(texts)]


def mark_accepted(candidates: Sequence[Candidate], option: int) -> int:
    """Mark the first candidate of an option as accepted and return its index.

    Raises StopIteration where no candidate has that option.
    """
    index = next(i for i, c in enumerate(candidates) if c.option == option)
    candidates[index].accepted = True
    return index


def mean_score(verdict: Verdict) -> float:
    """Return the probability-weighted mean of a score verdict's digits (the SpecReason code's second mode)."""
    return sum(int(digit) * p for digit, p in zip(verdict.options, verdict.probabilities, strict=True))
