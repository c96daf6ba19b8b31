"""The frames of the first exception in a worker's traceback."""

from __future__ import annotations

import re

_BORDER = re.compile(r"^[ |]*\+-+(?:\+-+)?(?: (?P<number>\d+|\.\.\.) -+)?$")
"""What stands above and below each exception of a group."""
_BEGIN = re.compile(r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$")
_RULE = re.compile(r"^-{10,}$")
"""What submitit writes below a traceback."""


def first_of(text: str) -> str:
    """Return the first traceback of a text: of a group of exceptions, which samples at a time raise, its first one.

    Empty where there is no traceback.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _BEGIN.match(line)), len(lines))
    end = next((number for number in range(start, len(lines)) if _RULE.match(lines[number])), len(lines))
    lines = lines[start:end]
    borders = [(number, found["number"]) for number, line in enumerate(lines) if (found := _BORDER.match(line))]
    depth = next((depth for depth, (_, number) in enumerate(borders) if number != "1"), len(borders))
    if depth:  # groups within groups: the first exception of each, down to one that is none
        above = borders[depth - 1][0]
        below = borders[depth][0] if depth < len(borders) else len(lines)
        indent = lines[above].rindex("+") + len("+ ")
        lines = [line[indent:] for line in lines[above + 1 : below]]
    return "\n".join(lines).strip("\n")
