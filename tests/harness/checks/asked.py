"""What the doctor's checks are asked in tests, and what is looked at in their answers."""

from __future__ import annotations

from pathlib import Path

from harness.checks.check import Check, Question, Status

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "harness" / "data" / "demo.jsonl"
QUESTION = Question(engine="vllm", output="/nowhere", models={}, tensor_parallel={"draft": 1, "target": 1})


def worst(checks: list[Check]) -> Status:
    """The gravest status."""
    statuses = [check.status for check in checks]
    return "failure" if "failure" in statuses else "warning" if "warning" in statuses else "ok"


def said(checks: list[Check]) -> str:
    """Everything that is not well."""
    return "\n".join(check.text for check in checks if check.status != "ok")
