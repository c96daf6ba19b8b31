"""Parse mathematical text: from LaTeX or plain text to numbers, sets, units and expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

PLUS_MINUS = re.compile(r"\\pm(?![a-z])|\+/?-")


@dataclass(frozen=True, slots=True)
class Match:
    is_equal: bool | None
    """None: the answer could not be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A gold and a prediction as text, with the benchmark's tolerance and unit. Comparisons are not symmetric."""

    gold: str
    prediction: str
    tolerance: float | None = None
    """Absolute error allowed by the benchmark."""
    unit: str | None = None
    """A unit that the prediction may have."""

    @property
    def texts(self) -> tuple[str, str]:
        """The gold and the prediction."""
        return self.gold, self.prediction

    @property
    def has_plus_minus(self) -> bool:
        r"""True if `\pm` or `+-` occurs in the pair."""
        return PLUS_MINUS.search(self.gold + " " + self.prediction) is not None

    def with_texts(self, gold: str, prediction: str) -> Pair:
        """Return a pair with other texts and the same tolerance and unit."""
        return replace(self, gold=gold, prediction=prediction)


Compare = Callable[[Pair], Match]
"""The comparison of whole answers, passed to functions that compare answers part by part."""


def best_match(matches: list[Match]) -> Match:
    """Return the first equal match, otherwise the first unequal one, otherwise the first undecided one."""
    return max(matches, key=lambda match: (match.is_equal is True, match.is_equal is not None))
