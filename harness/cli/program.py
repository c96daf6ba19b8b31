"""Format commands in messages: `python -m jobs status` or `speculative-harness status`.

`speculative-harness` and its child processes print the second form, because `python -m` fails in a folder with another
package `jobs`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PROGRAM = "speculative-harness"
VARIABLE = "HARNESS_PROGRAM"
"""Environment variable with the program that the user called; unset for `python -m`."""
ALIASES: Mapping[str, str] = {"run": "launch", "regrade": "grade", "regress": "nights"}
"""Commands by alias."""
_NAMES: Mapping[str, str] = {"warehouse.nightly": "nights"}
"""Subcommands by module, for modules whose name is that of another command."""


def typed(called: str) -> str:
    """Return the command line for a module command, such as `jobs status`, for the program that the user called."""
    if os.environ.get(VARIABLE) != PROGRAM:
        return f"python -m {called}"
    return f"{PROGRAM} {name_of(called)}"


def name_of(called: str) -> str:
    """Return the subcommand for a module command: `status` for `jobs status`, `query` for `warehouse.query`."""
    if called in _NAMES:
        return _NAMES[called]
    name = called.replace(" ", ".").partition(".")[2]
    return ALIASES.get(name, name) if called.startswith("grading") else name
