"""Engines over several runs: which are shared, which are closed, and what a run sees of the run before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied, RequestRefused, Role, Sampling
from harness.engines import scripted as scripted_engine
from harness.engines.pool import EngineNeed, EnginePool, may_share
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import Speculation
from harness.settings.roles import ModelSettings
from harness.weights.models import pair_folder
from harness.weights.templates import NO_CONVENTIONS, Conventions

pytestmark = pytest.mark.asyncio
PROMPT = list(b"a prompt that is longer than two blocks of the prefix cache")


def needs(
    *roles: Role,
    kind: Any = "scripted",
    device: Any = "cpu",
    draft: str = "small",
    target: str = "large",
    **options: Any,
) -> list[EngineNeed]:
    settings = pair_settings(kind, roles, device=device, **{"max_context": 1024, "concurrency": 4, **options})
    models = {"draft": draft, "target": target}
    alone = options.get("concurrency") == 1
    return [EngineNeed(role, models[role], None, settings[role], one_in_flight=alone) for role in roles]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Role, EngineSettings, ScriptedEngine]]]:
    monkeypatch.setattr("harness.engines.settings.cpu_kv_bytes", lambda: 1 << 30)
    scripted, starts = scripted_engine.dry_run_engine, []

    def recorded(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = scripted(role, settings)
        assert isinstance(engine, ScriptedEngine)
        starts.append((role, settings, engine))
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", recorded)
    yield starts
    assert all(engine.closed for _, _, engine in starts), "the pool closes whatever it has opened"


@pytest.mark.parametrize(
    ("first", "second", "options", "closed"),
    [
        (("draft", "target"), ("target",), {}, [True, True, False]),  # alone it has the whole memory and all cores
        (("target",), ("draft", "target"), {"concurrency": 1}, [True, False, False]),
        (("draft", "target"), ("draft", "target"), {"draft": "other"}, [False, True, False]),
        (("draft", "target"), ("draft", "target"), {"target": "other"}, [True, False, False]),
    ],
    ids=["target alone", "larger cache", "another draft", "another target"],
)
async def test_what_a_run_cannot_use_and_leaves_no_room_for_is_closed(
    first: tuple[Role, ...],
    second: tuple[Role, ...],
    options: dict[str, Any],
    closed: list[bool],
    started: list[Any],
    tmp_path: Path,
) -> None:
    async with EnginePool() as pool:
        await pool.lease(needs(*first, device="gpu"), tmp_path)
        await pool.lease(needs(*second, device="gpu", **options), tmp_path)
        assert [engine.closed for _, _, engine in started] == closed


@pytest.mark.parametrize("device", ["cpu", "gpu"])
async def test_with_one_sample_in_flight_each_model_of_a_suite_starts_once(
    started: list[Any], tmp_path: Path, device: str
) -> None:
    roles: list[tuple[Role, ...]] = [("target",), ("draft",), ("draft", "target"), ("draft", "target")]
    most = [1, 2, 3, 4] if device == "cpu" else [1, 1, 1, 1]
    runs = [needs(*of_run, device=device, concurrency=1, candidates=n) for n, of_run in zip(most, roles, strict=True)]
    async with EnginePool() as pool:
        for number in pool.plan(runs):
            await pool.lease(runs[number], tmp_path)
        assert not any(engine.closed for _, _, engine in started)
    pair = {need.role: need.settings for need in runs[3]}
    assert [role for role, _, _ in started] == ["target", "draft"]
    assert all(settings.memory_fraction == pair[role].memory_fraction for role, settings, _ in started)
    assert started[1][1].max_num_seqs == max(most)


async def test_a_run_finds_nothing_of_the_run_before_it_in_the_prefix_cache(started: list[Any], tmp_path: Path) -> None:
    cached: list[int] = []
    async with EnginePool() as pool:
        for _ in range(2):
            engine = (await pool.lease(needs("target"), tmp_path))["target"]
            cached += [(await engine.generate(PROMPT, Sampling(4))).cached_tokens for _ in range(2)]
    assert cached == [0, 48, 0, 48], "each run's own repetition is cached, the other run's prompt is not"


async def test_each_run_on_a_shared_engine_talks_as_its_own_tokenizer_does(tmp_path: Path) -> None:
    found, starts = [], set()
    async with EnginePool() as pool:
        for asked in (NO_CONVENTIONS, Conventions(thinking_tags="none"), NO_CONVENTIONS):
            [need] = needs("target", kind="transformers", target=str(pair_folder("demo-target")), kv_bytes=1 << 30)
            need = replace(need, settings=replace(need.settings, conventions=asked))
            engine = (await pool.lease([need], tmp_path))["target"]
            starts.add(engine.start)
            found.append(engine.tokenizer.thinks)
            assert (await engine.generate([40, 41], Sampling(4))).completions[0].num_tokens
    assert found == [True, False, True]
    assert len(starts) == 1


async def test_a_shared_engine_is_opened_for_the_longest_context_and_each_run_keeps_its_own(
    started: list[Any], tmp_path: Path
) -> None:
    short, long = needs("target", max_context=80), needs("target", max_context=200)
    async with EnginePool() as pool:
        pool.plan([short, long])
        engine = (await pool.lease(short, tmp_path))["target"]
        assert engine.context_tokens == 80
        reply = await engine.generate(PROMPT, Sampling(max_tokens=500))
        assert reply.completions[0].num_tokens <= 80 - len(PROMPT)
        with pytest.raises(RequestRefused, match="80"):
            await engine.choose([*PROMPT, *PROMPT][:80], [1, 2])
        assert (await pool.lease(long, tmp_path))["target"].context_tokens == 200
    assert [settings.max_context for _, settings, _ in started] == [200]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"max_context": 2000}, True),
        ({"dtype": "float16"}, False),
        ({"models": {"target": ModelSettings(tensor_parallel=2)}}, False),
        ({"models": {"target": ModelSettings(memory=0.5)}}, False),
        ({"target": "other"}, False),
        ({"speculation": Speculation("ngram", 3, None, None)}, False),
    ],
)
async def test_what_two_runs_must_have_in_common(started: list[Any], change: dict[str, Any], expected: bool) -> None:
    for device in ("cpu", "gpu"):
        [one], [other] = (needs("target", kind="vllm", device=device, **options) for options in ({}, change))
        assert may_share(one, other) is expected, device


async def test_an_engine_that_has_died_is_not_handed_on(started: list[Any], tmp_path: Path) -> None:
    """Each run has its own replacement in reserve, as it would have alone."""
    async with EnginePool() as pool:
        await pool.lease(needs("target"), tmp_path)
        started[0][2].restarts = 1
        assert (await pool.lease(needs("target"), tmp_path))["target"].restarts == 0
    assert len(started) == 2


async def test_an_engine_that_does_not_start_for_all_runs_starts_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripted, tried = scripted_engine.dry_run_engine, []

    def small_only(role: Role, settings: EngineSettings) -> Any:
        tried.append(settings.max_context)
        if settings.max_context == 200:
            raise EngineDied("no room")
        return scripted(role, settings)

    monkeypatch.setattr(scripted_engine, "dry_run_engine", small_only)
    [short], [other], [long] = (needs("target", max_context=most) for most in (80, 90, 200))
    alike = [replace(one, settings=replace(one.settings, kv_cache_bytes=1)) for one in (short, other, long)]
    async with EnginePool() as pool:
        pool.plan([[one] for one in alike])
        for one in alike[:2]:
            await pool.lease([one], tmp_path)
        with pytest.raises(EngineDied, match="no room"):
            await pool.lease(alike[2:], tmp_path)
    assert tried == [200, 80, 90, 200]


async def test_runs_are_ordered_so_that_every_engine_starts_once(started: list[Any], tmp_path: Path) -> None:
    pair, other_draft = needs("draft", "target"), needs("draft", "target", draft="other")
    runs = [pair, needs("target"), other_draft, pair, needs("target"), needs("draft")]
    async with EnginePool() as pool:
        order = pool.plan(runs)
        assert order == [0, 3, 2, 1, 4, 5]
        for number in order:
            await pool.lease(runs[number], tmp_path)
    assert [role for role, _, _ in started] == ["target", "draft", "draft", "target", "draft"]
