"""The row of a check, and a JSON file that can be sent to strangers."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest

from harness.acceptance import report
from harness.acceptance.outcome import Goal, Measurement, Outcome, judged
from harness.acceptance.plan import SMALL, Plan, PlannedModel

MODEL = PlannedModel("demo-draft", "/models/draft", None)
PLAN = Plan("vllm", "cpu", MODEL, MODEL, True, SMALL, "/tmp/work")


def test_a_row_says_what_was_measured_the_goal_and_the_result() -> None:
    measured = [Measurement("loop busy", 0.81234, goal=Goal("<", 0.7)), Measurement("start", 12.345, "s")]
    row = report.line(judged("throughput-16", measured, 3.0))
    expected = "throughput-16 loop busy 0.812, start 12.3 s loop busy < 0.7 FAIL: not met: loop busy"
    assert " ".join(row.split()) == expected
    assert report.line(judged("purposes", [Measurement("unanswered", 0, goal=Goal("=", 0))], 1.0)).endswith("  PASS")
    skipped = report.line(Outcome("warm-start", "SKIPPED", "nothing is compiled on a CPU"))
    assert skipped.startswith("warm-start ")
    assert skipped.endswith("  SKIPPED because nothing is compiled on a CPU")
    assert "\n" not in row + skipped


def test_the_document_has_every_number_with_its_goal(tmp_path: Path) -> None:
    outcome = judged("start", [Measurement("start", 12.5, "s"), Measurement("left", 0, goal=Goal("=", 0))], 14.0)
    report.write(tmp_path / "a.json", report.document(PLAN, {"quick": False}, [outcome], 20.0), {})
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["schema_version"] == 1
    assert {"versions", "hardware", "cards", "models", "sizes", "git_commit", "measured_at"} <= content.keys()
    [check] = content["checks"]
    assert (check["check"], check["status"], check["seconds"]) == ("start", "PASS", 14.0)
    assert check["measurements"][1] == {
        "name": "left",
        "value": 0,
        "unit": "",
        "goal": {"relation": "=", "bound": 0},
        "is_met": True,
    }


def test_the_file_names_no_host_user_home_or_model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/mmustermann")
    monkeypatch.setattr(getpass, "getuser", lambda: "mmustermann")
    monkeypatch.setattr(socket, "gethostname", lambda: "login7")
    work = Path("/tmp/harness-acceptance-1")
    log = (
        "OSError: /home/mmustermann/models/x",
        "on login7 for mmustermann",
        f"{work}/logs/target.log",
        "login77",
    )
    content = report.document(PLAN, {}, [Outcome("start", "FAIL", "died", log=log)], 1.0)
    report.write(tmp_path / "a.json", content, report.private_words(work))
    text = (tmp_path / "a.json").read_text()
    assert "mmustermann" not in text
    assert "/models/draft" not in text
    assert json.loads(text)["checks"][0]["log"] == [
        "OSError: ~/models/x",
        "on HOST for USER",
        "WORK/logs/target.log",
        "login77",
    ]
    assert "hostname" not in json.loads(text)["hardware"]


def test_short_names_of_users_are_no_reason_to_mutilate_words() -> None:
    assert "root" not in report.private_words(Path("/tmp/x"))
    assert report.redacted("al allocated", {}) == "al allocated"
