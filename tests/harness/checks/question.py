"""The question that the tests ask the doctor's checks, and readers of the results."""

from __future__ import annotations

from pathlib import Path

from harness.checks.finding import Check, Question, Status

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "harness" / "data" / "demo.jsonl"
QUESTION = Question(engine="vllm", output="/nowhere", models={}, tensor_parallel={"draft": 1, "target": 1})


def worst_status(checks: list[Check]) -> Status:
    """Return the most severe status."""
    statuses = [check.status for check in checks]
    return "failure" if "failure" in statuses else "warning" if "warning" in statuses else "ok"


def problem_texts(checks: list[Check]) -> str:
    """Return the texts of all checks that are not ok, one per line."""
    return "\n".join(check.text for check in checks if check.status != "ok")
