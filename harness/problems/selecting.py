"""Some of a dataset's problems: the first ones, or those that `--problems` names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from harness.problems.problem import Problem

_FORMS = "valid: rows (3), ranges (10-15) or ids"


def select(problems: Sequence[Problem], limit: int | None = None, ids: str | None = None) -> list[Problem]:
    """Return the problems named by `ids` ("3,7,10-15", or ids), and of these the first `limit`, in their order.

    A number is the row at the end of a problem's id, or its place where no id ends in one. Raises ValueError for
    unknown problems.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the limit must be at least 1, not {limit}")
    chosen = list(problems)
    if ids is not None:
        places = _numbered(problems) | {p.id: i for i, p in enumerate(problems)}
        tokens = [token.strip() for token in ids.split(",") if token.strip()]
        try:
            selected = {place for token in tokens for place in _places(token, places)}
        except ValueError as error:
            raise ValueError(f"--problems {ids[:100]}: {error}") from error
        if not selected:
            raise ValueError(f"--problems {ids[:100]}: names no problem; {_FORMS}")
        chosen = [problems[i] for i in sorted(selected)]
    return chosen[:limit]


def _numbered(problems: Sequence[Problem]) -> dict[str, int]:
    """Return the places of the problems by the ends of their ids, without ends that several have."""
    ends = [problem.id.rsplit("/", 1)[-1] for problem in problems]
    counts = Counter(ends)
    if not any(end.isdigit() for end in ends):
        return {str(place): place for place in range(len(ends))}
    return {end: place for place, end in enumerate(ends) if counts[end] == 1}


def _places(token: str, places: Mapping[str, int]) -> Iterator[int]:
    span = re.fullmatch(r"(\d+)-(\d+)", token)
    names = [token]
    if token not in places and span:
        first, last = int(span[1]), int(span[2])
        if not first <= last < first + 1_000_000:
            raise ValueError(f"not a range of problems: {token!r}; {_FORMS}")
        names = [str(row) for row in range(first, last + 1)]
    for name in names:
        if name not in places:
            raise ValueError(
                f"unknown problem {name[:100]!r} of {len(set(places.values()))}; {_FORMS}, such as "
                + " or ".join(dict.fromkeys([next(iter(places)), [*places][-1]]))
            )
        yield places[name]
