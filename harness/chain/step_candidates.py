"""The candidates for a step: their records, the options of a verdict, and text similarity."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from harness.engine import Completion
from harness.prompts import THINK_END
from harness.trace import Candidate, Verdict


def as_candidates(completions: Sequence[Completion]) -> list[Candidate]:
    """Return the record of each completion as a candidate.

    Texts that differ only in surrounding whitespace share an option, so a verdict's probability is not split between
    them. Whitespace before `</think>` also makes no difference, because judges do not see the tag.
    """
    options: dict[tuple[str, bool], int] = {}
    return [
        Candidate(
            text=c.text,
            num_tokens=c.num_tokens,
            finish=c.finish,
            mean_logprob=c.mean_logprob,
            option=options.setdefault((c.text.replace(THINK_END, "").strip(), THINK_END in c.text), len(options)),
        )
        for c in completions
    ]


def offered_texts(candidates: Sequence[Candidate]) -> list[str]:
    """Return the distinct texts offered to a verdict, in the order of their options."""
    texts: dict[int, str] = {}
    for candidate in candidates:
        if candidate.option is not None:
            texts.setdefault(candidate.option, candidate.text)
    return [texts[i] for i in sorted(texts)]


def mark_accepted(candidates: Sequence[Candidate], option: int) -> int:
    """Mark the first candidate of an option as accepted and return its index.

    Raises StopIteration if no candidate has the option.
    """
    index = next(i for i, c in enumerate(candidates) if c.option == option)
    candidates[index].accepted = True
    return index


def mean_score(verdict: Verdict) -> float:
    """Return the probability-weighted mean of a score verdict's digits (the SpecReason code's second mode)."""
    return sum(int(digit) * p for digit, p in zip(verdict.options, verdict.probabilities, strict=True))


_PIECE = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")


def cosine(one: str, other: str) -> float:
    """Return the cosine, from 0 to 1, between two texts' counts of words, numbers and symbols.

    Case and whitespace are ignored. The cosine is 1 if both texts have no counts, and 0 if only one has none.
    """
    return _cosine(_counts(one), _counts(other))


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    if not a or not b:
        return float(a == b)
    if a == b:
        return 1.0
    return sum(n * b[piece] for piece, n in a.items()) / (_norm(a) * _norm(b))


def most_consistent(texts: Sequence[str]) -> int:
    """Return the index of the text most similar to the others; the first one in a tie.

    SpecGuard's self-consistency selector applies a softmax to each row of the similarity matrix and selects the text
    with the least weight on itself. All texts have the same self-similarity, so the row of this text has the
    largest sum of exponentials.
    """
    num_equal = Counter(texts)
    counts = {text: _counts(text) for text in num_equal}
    sums = {
        one: sum(n * math.exp(_cosine(counts[one], counts[other])) for other, n in num_equal.items()) for one in counts
    }
    return max(range(len(texts)), key=lambda i: round(sums[texts[i]], 9))


def _counts(text: str) -> Counter[str]:
    return Counter(_PIECE.findall(text.lower()))


def _norm(counts: Counter[str]) -> float:
    return math.sqrt(sum(n * n for n in counts.values()))
