"""The table on stdout and the JSON file, neither of which names users, hosts or home folders."""

from __future__ import annotations

import contextlib
import getpass
import json
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import environment
from harness.acceptance.outcome import Outcome
from harness.acceptance.plan import Plan
from harness.plural import counted

SCHEMA_VERSION = 1
_WIDTHS = (16, 96, 72)
_MIN_NAME = 3
"""Shorter names of users and hosts are left in: they are part of ordinary words."""


def heading() -> str:
    """Return the line above the table."""
    return _columns("check", "measured", "goal") + "  result"


def line(outcome: Outcome) -> str:
    """Return the row of one outcome."""
    measured = ", ".join(measurement.measured_text() for measurement in outcome.measurements)
    goal = ", ".join(text for measurement in outcome.measurements if (text := measurement.goal_text()))
    result: str = outcome.status
    if outcome.status == "SKIPPED":
        result = f"SKIPPED because {outcome.reason}"
    elif outcome.reason:
        result = f"{outcome.status}: {outcome.reason}"
    return f"{_columns(outcome.check, measured or '–', goal or '–')}  {result}"


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Return the line below the table."""
    count = Counter(outcome.status for outcome in outcomes)
    return f"{counted(len(outcomes), 'check')} in {seconds:.0f} s: {count['PASS']} passed, {count['FAIL']} failed, " + (
        f"{count['SKIPPED']} skipped"
    )


def document(plan: Plan, options: Mapping[str, Any], outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Return everything that a maintainer needs to understand the result, as JSON data."""
    hardware = {name: value for name, value in environment.hardware().items() if name != "hostname"}
    return {
        "schema_version": SCHEMA_VERSION,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "git_commit": environment.git_commit(),
        "versions": environment.versions(),
        "hardware": hardware,
        "cards": _cards(),
        "engine": plan.kind,
        "device": plan.device,
        "models": {"draft": plan.draft.name, "target": plan.target.name},
        "sizes": asdict(plan.sizes),
        "options": dict(options),
        "counts": dict(Counter(outcome.status for outcome in outcomes)),
        "checks": [outcome.data() for outcome in outcomes],
    }


def write(path: Path, content: Mapping[str, Any], private: Mapping[str, str]) -> None:
    """Write JSON in which private words are replaced."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    path.write_text(redacted(text, private) + "\n", encoding="utf-8")


def private_words(work: Path) -> dict[str, str]:
    """Return what this machine and its user are called, and what is written in place of it."""
    words = {str(work): "WORK", str(Path.home()): "~", socket.gethostname(): "HOST"}
    with contextlib.suppress(KeyError, OSError):  # no entry for this user id, as in containers
        words[getpass.getuser()] = "USER"
    return {word: stand_in for word, stand_in in words.items() if len(word) >= _MIN_NAME and word not in _PUBLIC}


_PUBLIC = ("root", "localhost", "/root")


def redacted(text: str, private: Mapping[str, str]) -> str:
    """Replace private words, the longest first, where they stand as words or as beginnings of paths."""
    for word in sorted(private, key=len, reverse=True):
        stand_in = private[word].replace("\\", r"\\")
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", stand_in, text)
    return text


def _cards() -> list[dict[str, Any]]:
    from harness.gpus import visible_gpus

    return [{name: value for name, value in asdict(card).items() if name != "uuid"} for card in visible_gpus()]


def _columns(*cells: str) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
