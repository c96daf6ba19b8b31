"""Every benchmark in small: around scripted engines, of the loop, of the grader and of the warehouse."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from harness.engine import Role, Sampling
from harness.engines.scripted import ScriptedEngine, SimulatedModel
from harness.problems.problem import Problem
from harness.weights import models
from tools.bench import loop
from tools.bench.__main__ import sections
from tools.bench.drive import at_bare_engines, through_harness
from tools.bench.setting import Bench

PROBLEMS = [Problem(f"demo/{i}", "demo", f"What is {i} + 3?", str(i + 3)) for i in range(3)]


@dataclass
class BareScripted(ScriptedEngine):
    """A scripted engine that can be reached without the harness."""

    bare_requests: list[tuple[list[int], Sampling]] = field(default_factory=list)

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        self.bare_requests.append((prompt, sampling))
        await asyncio.sleep(self.seconds_per_token * sampling.max_tokens)
        return len(prompt) // 2


def bench() -> Bench:
    model, roles = SimulatedModel(), cast(tuple[Role, ...], ("draft", "target"))
    return Bench(
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


async def test_a_replay_asks_for_the_same_prompts_seeds_and_lengths() -> None:
    session = bench()
    method, wave, limits = session.method("speccot"), session.wave(3), session.limits(200)
    run = await through_harness(session.engines, "speccot", method, wave, limits, 3)
    replay = await at_bare_engines(session.engines, run.calls, 3)
    assert replay.cached_share == pytest.approx(0.5, abs=0.01)
    num_requested_tokens = 0
    for role, engine in session.engines.items():
        assert isinstance(engine, BareScripted)
        expected_requests = Counter(
            (tuple(call.prompt), call.sampling.seed + i, length)
            for calls in run.calls
            for call in calls
            if call.role == role
            for i, length in enumerate(call.lengths)
        )
        assert Counter((tuple(p), s.seed, s.max_tokens) for p, s in engine.bare_requests) == expected_requests
        assert all(s.n == 1 and not s.stop for _, s in engine.bare_requests)
        num_requested_tokens += sum(s.max_tokens for _, s in engine.bare_requests)
    assert num_requested_tokens == run.spent_tokens


async def test_all_sections_give_tables_that_do_not_mix_regimes() -> None:
    session = bench()
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
