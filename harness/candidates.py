"""Proposals for a step, as they are offered to a verdict and recorded."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine import Completion
from harness.trace import Candidate, Verdict


def as_candidates(completions: Sequence[Completion]) -> list[Candidate]:
    """The record of proposals; equal texts share an option, so a verdict never splits its probability between them."""
    options: dict[str, int] = {}
    return [
        Candidate(
            text=c.text,
            num_tokens=c.num_tokens,
            finish=c.finish,
            mean_logprob=c.mean_logprob,
            option=options.setdefault(c.text.strip(), len(options)),
        )
        for c in completions
    ]


def mean_score(verdict: Verdict) -> float:
    """Probability-weighted mean of a score verdict's digits (the second mode of SpecReason's code)."""
    return sum(int(digit) * p for digit, p in zip(verdict.options, verdict.probabilities, strict=True))


def take(candidates: Sequence[Candidate], option: int) -> int:
    """Mark the first candidate that stands behind an option as accepted; returns its index."""
    index = next(i for i, c in enumerate(candidates) if c.option == option)
    candidates[index].accepted = True
    return index


def offer(candidates: Sequence[Candidate]) -> list[str]:
    """The distinct texts that a verdict is asked about, in the order of their options."""
    texts: dict[int, str] = {}
    for candidate in candidates:
        if candidate.option is not None:
            texts.setdefault(candidate.option, candidate.text)
    return [texts[i] for i in sorted(texts)]
