"""Every benchmark in small: around scripted engines, of the loop, of the grader and of the warehouse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from harness.engine import Role, Sampling
from harness.engines.scripted import ScriptedEngine, SimulatedModel
from harness.problems.problem import Problem
from harness.weights import models
from tools.bench import loop
from tools.bench.__main__ import sections
from tools.bench.setting import Bench

PROBLEMS = [Problem(f"demo/{i}", "demo", f"What is {i} + 3?", str(i + 3)) for i in range(3)]


class BareScripted(ScriptedEngine):
    """A scripted engine that can be reached without the harness."""

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        await asyncio.sleep(self.seconds_per_token * sampling.max_tokens)
        return len(prompt) // 2


async def test_all_sections_give_tables_that_do_not_mix_regimes() -> None:
    model, roles = SimulatedModel(), cast(tuple[Role, ...], ("draft", "target"))
    session = Bench(
        engines={role: BareScripted(model.write, model.judge, seconds_per_token=1e-5) for role in roles},
        problems=PROBLEMS,
        tokens=200,
        pairs=2,
        methods=["speccot", "specreason"],
        in_flight=[4],
        flight_tokens=200,
        step_tokens=64,
        drafts=3,
        latency_problems=2,
        block_tokens=16,
        deadline=float("inf"),
    )
    tables = await sections(session, ["verdict", "vanilla", "latency", "throughput", "cache"])
    titles = [table.title for table in tables]
    for regime in ("Latency", "Throughput", "latency runs", "throughput runs", "Verdict", "Vanilla"):
        assert any(regime in title for title in titles), titles
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.rows
        json.dumps(table.data())
    [latency] = [table.data()["rows"] for table in tables if table.title.startswith("Latency")]
    assert [row["method"] for row in latency] == ["target alone", "speccot", "specreason"]
    assert latency[0]["speed-up"] == 1
    for row in latency:
        assert row["speed-up"] == pytest.approx(row["rate ratio"] / row["chain-length ratio"])


@pytest.mark.vllm
@pytest.mark.needs_tool("vllm")
async def test_the_loop_is_measured_at_every_width() -> None:
    folder = Path(models.resolve("demo-target").path_or_hub_id)
    cells = await loop.measure_all(folder, ["speccot"], [400], [2, 3], steps=6)
    assert [(cell.in_flight, cell.steps) for cell in cells] == [(2, 6), (3, 6)]
    assert len(loop.table_of(cells).rows) == len(cells)
