"""The question that the tests ask the doctor's checks, and readers of the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.checks.finding import Check, Question, Status
from harness.settings.launch_settings import PartialLaunch

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "harness" / "data" / "demo.jsonl"
_OWN = {known.name for known in fields(Question)} - {"launch", "cluster"}


def asked(models: Mapping[str, str] = MappingProxyType({}), cluster: str = "local", **changes: Any) -> Question:
    """Return a question about models by their names, with other fields of it and flags of a launch."""
    own = {name: value for name, value in changes.items() if name in _OWN}
    flags = {name: value for name, value in changes.items() if name not in _OWN}
    launch = PartialLaunch.from_flags({"engine": "vllm", "output": "/nowhere", **models, **flags})
    return Question(launch, cluster=cluster, **own)


QUESTION = asked()


def worst_status(checks: list[Check]) -> Status:
    statuses = [check.status for check in checks]
    return "failure" if "failure" in statuses else "warning" if "warning" in statuses else "ok"


def problem_texts(checks: list[Check]) -> str:
    return "\n".join(check.text for check in checks if check.status != "ok")
