"""The section own: memory, time of `--help` and time to plan a run, all without a model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median
from typing import Any

from tools.bench.setting import say
from tools.bench.table import Table


def measure(samples: int = 512, problems: int = 500, repeats: int = 5) -> list[Table]:
    """Measure memory, `--help` and planning, each in fresh processes."""
    table = Table("The harness on its own (no engine)", ["what", "measured", "goal"])
    memory = _json("tools.bench.memory", str(samples))
    grown = memory["peak_bytes"] - memory["before_bytes"]
    table.rows.append(
        [
            f"memory with {memory['most_in_flight']} samples in flight, {memory['tokens']} tokens and "
            f"{memory['drafts']} drafts per step each (scripted engines, peak RSS)",
            f"{memory['peak_bytes'] / 1e6:.0f} MB, of which the samples {grown / 1e6:.0f} MB",
            "below 1 GB",
        ]
    )
    say(f"memory: {table.rows[-1][1]}")
    helps = [_wall("harness.launch", "--help") for _ in range(repeats)]
    table.rows.append(
        [f"`python -m harness.launch --help`, median of {repeats}", f"{median(helps):.2f} s", "below 0.5 s"]
    )
    say(f"--help: {table.rows[-1][1]}")
    plan = _json("tools.bench.planning", str(problems), "16")
    table.rows.append(
        [
            f"plan of {problems} problems × 16: read, specify, shard, write",
            f"{plan['plan_seconds']:.2f} s, with imports {plan['seconds']:.2f} s",
            "below 2 s",
        ]
    )
    say(f"plan: {table.rows[-1][1]}")
    return [table]


def _json(module: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=True)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def _wall(module: str, *arguments: str) -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, check=True)
    return time.monotonic() - begun
