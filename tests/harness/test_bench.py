"""The benchmark over scripted engines: replays send the recorded requests, and every number has its definition."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

from harness.bench import cache, memory, planning
from harness.bench.__main__ import main, sections
from harness.bench.busy import WAITING, Watch
from harness.bench.drive import RecordedCall, Run, at_bare_engines, through_harness
from harness.bench.setting import Bench
from harness.bench.table import Table
from harness.engine import Sampling
from harness.engines.scripted import ScriptedEngine
from harness.engines.simulated_model import SimulatedModel
from harness.problems.problem import Problem

PROBLEMS = [Problem(f"demo/{i}", "demo", f"What is {i} + 3?", str(i + 3)) for i in range(3)]


@dataclass
class BareScripted(ScriptedEngine):
    """A scripted engine that can be reached without the harness."""

    requests: list[tuple[list[int], Sampling]] = field(default_factory=list)
    most_bare: int = 0
    forgotten: int = 0
    _now: int = 0

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        self.requests.append((prompt, sampling))
        self._now += 1
        self.most_bare = max(self.most_bare, self._now)
        await asyncio.sleep(self.seconds_per_token * sampling.max_tokens)
        self._now -= 1
        return len(prompt) // 2

    async def reset_prefix_cache(self) -> bool:
        self.forgotten += 1
        return True


def bench(**changes: float) -> Bench:
    model = SimulatedModel()
    return Bench(
        engines={
            "draft": BareScripted(model.write, model.judge, seconds_per_token=1e-5),
            "target": BareScripted(model.write, model.judge, seconds_per_token=1e-5),
        },
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
        deadline=changes.get("deadline", float("inf")),
    )


async def run_of(session: Bench, name: str, samples: int = 3, in_flight: int = 3) -> Run:
    wave, limits = session.wave(samples), session.limits(200)
    return await through_harness(session.engines, name, session.method(name), wave, limits, in_flight)


@pytest.mark.parametrize("name", ["vanilla", "speccot", "specreason", "scot"])
async def test_a_replay_asks_for_the_same_prompts_seeds_and_lengths(name: str) -> None:
    session = bench()
    run = await run_of(session, name)
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
        assert Counter((tuple(p), s.seed, s.max_tokens) for p, s in engine.requests) == expected_requests
        assert all(s.n == 1 and not s.stop for _, s in engine.requests)
        num_requested_tokens += sum(s.max_tokens for _, s in engine.requests)
    assert num_requested_tokens == run.spent_tokens


async def test_a_replay_keeps_the_order_within_a_sample_and_the_number_in_flight() -> None:
    session = bench()
    run = await run_of(session, "speccot", samples=6, in_flight=2)
    await at_bare_engines(session.engines, run.calls, 2)
    target, draft = session.engines["target"], session.engines["draft"]
    assert isinstance(target, BareScripted)
    assert isinstance(draft, BareScripted)
    assert draft.most_bare <= 2 * session.drafts
    assert target.most_bare <= 2
    prompts = [tuple(c.prompt) for c in run.calls[0] if c.role == "target"]
    sent = [tuple(p) for p, _ in target.requests if tuple(p) in prompts]
    assert sent[: len(prompts)] == prompts


async def test_every_recorded_call_has_the_purpose_of_its_trace() -> None:
    run = await run_of(bench(), "speccot")
    for trace, calls in zip(run.traces, run.calls, strict=True):
        assert [(c.purpose, c.role, sum(c.lengths)) for c in calls] == [
            (c.purpose, c.model, c.output_tokens) for c in trace.calls
        ]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(range(40), range(100, 110))], [0]),
        ([(range(40), ()), (range(40), ())], [0, 32]),
        ([(range(33), ()), (range(33), ())], [0, 32]),
        ([(range(32), ()), (range(32), ())], [0, 16]),  # the last token is always computed
        ([(range(20), range(20, 37)), (range(60), ())], [0, 32]),  # what it wrote is held too
        ([(range(20), range(20, 32)), (range(60), ())], [0, 16]),  # but for the last token written
        ([(range(40), ()), (range(1, 60), ())], [0, 0]),
    ],
)
def test_reusable_tokens(calls: list[tuple[range, range]], expected: list[int]) -> None:
    recorded = [
        RecordedCall("target", list(prompt), Sampling(9), [tuple(output)] if output else [], [len(output)], 0)
        for prompt, output in calls
    ]
    assert cache.reusable_tokens(recorded, 16) == expected


def test_what_one_model_saw_is_not_reusable_for_the_other() -> None:
    calls = [RecordedCall(role, list(range(40)), Sampling(9), [], [1], 0) for role in ("draft", "target")]
    assert cache.reusable_tokens(calls, 16) == [0, 0]


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


async def test_what_there_was_no_time_for_is_named() -> None:
    session = bench(deadline=0.0)
    assert await sections(session, ["verdict", "vanilla", "latency", "throughput", "cache"]) == []
    assert "vanilla with 4 in flight" in session.left_out


async def test_the_watch_tells_waiting_from_work() -> None:
    with Watch() as waiting:
        await asyncio.sleep(0.3)
    ends_at = time.monotonic() + 60
    with Watch() as working:
        # One run takes milliseconds, in which the watch of a busy machine may never look.
        while not working.share("harness") and time.monotonic() < ends_at:
            await run_of(bench(), "speccot", samples=60, in_flight=60)
    # Compared with each other: on a machine with other work, the shares of either one may be anything.
    assert waiting.share(WAITING) > working.share(WAITING)
    assert working.share("harness") > waiting.share("harness")


def test_a_table_is_markdown() -> None:
    table = Table("T", ["a", "b|c"], [["x|y", 0.123456], [12345.6, None]], ["A note."])
    assert table.markdown() == ("### T\n\n| a | b\\|c |\n| --- | --- |\n| x\\|y | 0.123 |\n| 12346 |  |\n\nA note.\n")


def test_memory_is_measured_with_all_samples_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    memory.main(8)
    measured = json.loads(capsys.readouterr().out)
    assert measured["most_in_flight"] == 8
    assert measured["peak_bytes"] >= measured["before_bytes"] > 0


def test_the_plan_is_written_whole(capsys: pytest.CaptureFixture[str]) -> None:
    planning.main(20, 3)
    assert json.loads(capsys.readouterr().out)["units"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "'speed' is not one of own, verdict"),
        (["--methods", "specot"], "'specot' is not one of vanilla"),
        (["--methods", "rsd"], "methods of one's own and reward models are not measured"),
        (["--methods", "my.py:Mine"], "methods of one's own and reward models are not measured"),
        (["--in-flight", "many"], "expected numbers"),
        (["--in-flight", "0"], "at least 1"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output
