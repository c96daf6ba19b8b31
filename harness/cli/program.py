"""How a command that is printed is typed: as `python -m jobs status`, or as `speculative-harness status`.

The second form is printed by that command and by what it starts, because in a folder with a package `jobs` of its own
only that one works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PROGRAM = "speculative-harness"
VARIABLE = "HARNESS_PROGRAM"
"""Environment variable: the program that a user called; unset where it was a module."""
ALIASES: Mapping[str, str] = {"run": "launch", "regrade": "grade", "regress": "nights"}
"""Second names of commands."""
_NAMES: Mapping[str, str] = {"warehouse.nightly": "nights"}
"""Names of commands whose module is called as another command of the program is."""


def typed(called: str) -> str:
    """Return what to type for a command that is given by what follows `python -m`, such as `jobs status`."""
    if os.environ.get(VARIABLE) != PROGRAM:
        return f"python -m {called}"
    return f"{PROGRAM} {name_of(called)}"


def name_of(called: str) -> str:
    """Return the name of a command within the program: `status` of `jobs status`, `query` of `warehouse.query`."""
    if called in _NAMES:
        return _NAMES[called]
    name = called.replace(" ", ".").partition(".")[2]
    return ALIASES.get(name, name) if called.startswith("grading") else name
