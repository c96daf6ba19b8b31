"""How similar texts are by the words, numbers and signs that they share: a stand-in for sentence embeddings.

The papers compare steps by the embeddings of a sentence encoder, which no engine here gives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_PIECE = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")


def cosine(one: str, other: str) -> float:
    """Return the cosine, from 0 to 1, between the counts of words, numbers and signs of two texts.

    Case and whitespace do not count. Two texts without any of these are alike, and are like no other text.
    """
    return _cosine(_counts(one), _counts(other))


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    if not a or not b:
        return float(a == b)
    if a == b:
        return 1.0
    return sum(n * b[piece] for piece, n in a.items()) / (_norm(a) * _norm(b))


def most_consistent(texts: Sequence[str]) -> int:
    """Return the index of the text that is most like the others; the first one of a tie.

    SpecGuard's self-consistency selector: a softmax over each row of the similarities; the text with the least weight
    on itself is chosen. As every text is equally similar to itself, that is the largest sum of exponentials of a row.
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
