"""Checks that hang or take their process with them fail, the next ones are made, and nothing stays behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from harness.acceptance.catalog import Check
from harness.acceptance.outcome import Outcome
from harness.acceptance.plan import SMALL, Plan, PlannedModel
from harness.acceptance.supervision import Supervisor

MODEL = PlannedModel("demo-draft", "/models/draft", None)
GROUP = """
import json, os, pathlib, subprocess, sys, time
plan = json.loads(sys.stdin.readline())
work = pathlib.Path(plan["work"])
def tell(**event):
    print(json.dumps(event), flush=True)
measured = {"name": "n", "value": 1, "unit": "", "goal": {"relation": "=", "bound": 1}, "is_met": True}
for name in sys.argv[1:]:
    tell(event="begin", check=name)
    if name == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (work / "child").write_text(str(child.pid))
        (work / "logs").mkdir(exist_ok=True)
        (work / "logs" / "target.log").write_text("loading weights" + chr(10) + "NCCL waits for rank 1" + chr(10))
        time.sleep(600)
    if name == "dies":
        print("Fatal: out of memory", file=sys.stderr, flush=True)
        os._exit(7)
    if name == "chatters":
        print("no JSON", flush=True)
        print("[1, 2]", flush=True)
    tell(event="end", outcome={"check": name, "status": "PASS", "reason": None, "seconds": 0.1,
                               "measurements": [measured], "log": []})
"""


def check(name: str, group: str = "engines") -> Check:
    return Check(name, group, f"shows {name}", "n = 1", 60)  # type: ignore[arg-type]


def made(folder: Path, names: Sequence[str], time_limit: float | None = None) -> dict[str, Outcome]:
    plan = Plan("vllm", "cpu", MODEL, MODEL, True, SMALL, str(folder))
    supervisor = Supervisor(plan, lambda text: None, time_limit, (sys.executable, "-c", GROUP))
    outcomes = list(supervisor.run([check(name) for name in names]))
    assert [outcome.check for outcome in outcomes] == list(names), "one outcome each, in order"
    return {outcome.check: outcome for outcome in outcomes}


def test_a_check_that_hangs_fails_with_the_engine_s_last_output_and_its_processes_are_killed(tmp_path: Path) -> None:
    begun = time.monotonic()
    outcomes = made(tmp_path, ["first", "hangs", "last"], time_limit=4)
    assert time.monotonic() - begun < 60
    assert [outcome.status for outcome in outcomes.values()] == ["PASS", "FAIL", "PASS"]
    assert outcomes["hangs"].reason == "no answer within 4 s"
    assert outcomes["hangs"].log[-1] == "NCCL waits for rank 1"
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_check_that_ends_its_process_fails_and_the_next_ones_are_made(tmp_path: Path) -> None:
    outcomes = made(tmp_path, ["dies", "last"])
    assert outcomes["dies"].status == "FAIL"
    assert outcomes["dies"].reason == "its process ended with exit code 7"
    assert outcomes["dies"].log[-1] == "Fatal: out of memory"
    assert outcomes["last"].status == "PASS"


def test_what_libraries_print_is_no_outcome(tmp_path: Path) -> None:
    assert made(tmp_path, ["chatters"])["chatters"].status == "PASS"


def test_a_group_that_does_not_start_fails_every_check_once(tmp_path: Path) -> None:
    plan = Plan("vllm", "cpu", MODEL, MODEL, True, SMALL, str(tmp_path))
    supervisor = Supervisor(plan, lambda text: None, None, (sys.executable, "-c", "raise SystemExit('broken')"))
    outcomes = list(supervisor.run([check("a"), check("b"), check("c", "runs")]))
    assert [(outcome.check, outcome.status) for outcome in outcomes] == [(name, "FAIL") for name in "abc"]
    assert outcomes[0].log[-1] == "broken"


@pytest.mark.parametrize("kind", ["vllm", "transformers"])
def test_the_plan_survives_the_way_to_the_group(kind: str) -> None:
    plan = Plan(kind, "gpu", MODEL, MODEL, False, SMALL, "/tmp/x")  # type: ignore[arg-type]
    assert Plan.from_json(plan.to_json()) == plan
