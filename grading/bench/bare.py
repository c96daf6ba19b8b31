"""The baseline: math-verify, called as in its own documentation. Only `grading.reading.symbolic` imports it, too."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from grading.bench.answers import Item
from grading.grade import Gold


def load() -> None:
    """Import the libraries and let them build their tables."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verify(parse(r"$\frac{1}{2}+x$"), parse(r"$x+\frac{1}{2}$"))


def grade_bare(items: Iterable[Item], remembers_golds: bool) -> int:
    """Return how many answers math-verify accepts, each parsed and verified with its default limits.

    With `remembers_golds` each gold is parsed once, which makes the baseline faster than in its usual use.
    """
    from math_verify import parse, verify

    @lru_cache(maxsize=None if remembers_golds else 0)
    def parsed(gold: Gold) -> Any:
        return parse(rf"\boxed{{{gold.answer}}}")

    return sum(bool(verify(parsed(gold), parse(submission.text))) for submission, gold in items)
