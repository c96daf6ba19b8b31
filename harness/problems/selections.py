"""Benchmarks that are a part of another one, which are named by the contents of their problems.

Copies of a benchmark differ in the order of their rows, so a list of rows would select other problems elsewhere. A list
is a text file of `data/selections` with one problem a line, and comments behind `#`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.problems.problem import Problem

FOLDER = Path(__file__).parents[1] / "data" / "selections"


def text_hash(text: str) -> str:
    """Return 16 hex digits over the text of a problem with its blanks collapsed."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def listed(name: str) -> list[str]:
    """Return the hashes of a selection in its order."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def part(name: str, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that the selection lists, in its order; those that the copy lacks are left out.

    They keep their ids, so that runs on the whole benchmark can be paired with runs on the part.
    """
    found = {text_hash(problem.text): problem for problem in problems}
    return [replace(found[key], dataset=name) for key in listed(name) if key in found]
