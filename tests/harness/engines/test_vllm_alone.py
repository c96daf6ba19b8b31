"""Real engines that a test starts for itself: one with a head, and one with an adapter that is killed, then stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import EngineDied, Role, Sampling
from harness.engines import calls, vllm
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine
from harness.weights import adapter
from tests.conftest import VLLMPair
from tests.harness.conftest import save_tiny_adapter, save_tiny_head
from tests.harness.engines.tiny_engines import PROMPT, alive, core_of, processes_of, tiny_settings

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs_tool("vllm"),
]


async def test_a_model_with_a_head_rates_as_in_transformers(tiny_models: dict[Role, Path], tmp_path: Path) -> None:
    folder = str(save_tiny_head(tmp_path / "head", tiny_models["target"], "SequenceClassification", classes=2))
    reference = await TransformersEngine.start(folder, "reward", EngineSettings(kind="transformers", dtype="float32"))
    engine = await VLLMEngine.start(folder, "reward", tiny_settings()["target"], tmp_path / "log")
    try:
        assert engine.has_head
        texts = [[number, *PROMPT] for number in range(3, 8)]
        ratings = await asyncio.gather(*map(engine.rate, texts))
        again = await engine.rate(texts[0])
    finally:
        await engine.close()
    for rating, text in zip(ratings, texts, strict=True):
        assert rating.outputs == pytest.approx((await reference.rate(text)).outputs, abs=1e-3)
    assert again.outputs == pytest.approx(ratings[0].outputs, abs=1e-4)
    assert again.cached_tokens > 0, "the beginning of a chain is computed once"


class _CountingClock(calls.StallClock):
    num_notes = 0

    def note_work(self) -> None:
        type(self).num_notes += 1
        super().note_work()


async def test_an_engine_serves_an_adapter_for_verdicts_alone_is_started_once_more_and_ends_where_it_stands_still(
    tiny_models: dict[Role, Path], vllm_pair: VLLMPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.lora.request import LoRARequest

    monkeypatch.setattr(calls, "StallClock", _CountingClock)
    # In the usual way no prompt is split on a CPU, because of requests with seeds. Here these fit into one batch.
    chunks = {"enable_chunked_prefill": True, "max_num_batched_tokens": 128}
    monkeypatch.setattr(vllm, "_batching", lambda *_: chunks)
    path, log, prompt = str(tiny_models["target"]), tmp_path / "log", PROMPT[:20]
    served = adapter.read(str(save_tiny_adapter(tmp_path / "adapter", tiny_models["target"])))
    reference, plain = [
        await TransformersEngine.start(path, "target", EngineSettings(dtype="float32", adapter=one))
        for one in (served, None)
    ]
    options, sampling, environment = list(range(20, 26)), Sampling(24, 1.0, seed=4), dict(os.environ)
    expected, without = [await engine.choose(prompt, options) for engine in (reference, plain)]
    assert expected.logprobs != pytest.approx(without.logprobs, abs=1e-1)
    [greedy] = (await plain.generate(prompt, Sampling(16))).completions
    engine = await VLLMEngine.start(path, "target", replace(tiny_settings()["target"], adapter=served), log)
    try:
        changed = {k for k in {*environment, *os.environ} if k.startswith(("HARNESS", "VLLM_CPU", "TORCHDYNAMO"))}
        assert all(environment.get(k) == os.environ.get(k) for k in changed), "start variables must be restored"
        with monkeypatch.context() as wrong:
            wrong.setattr(vllm, "lora_request", lambda _: LoRARequest("bad", 2, str(tmp_path / "none")))
            with pytest.raises(EngineDied, match="cannot load the adapter"):
                await engine._load_adapter(engine.llm)
        await engine.generate([7] * 400, Sampling(1))
        assert _CountingClock.num_notes >= 400 // 128, "every chunk of a prompt is a sign of work"

        crowd = [engine.generate([i, *prompt[:8]], Sampling(24, 1.0, seed=i)) for i in range(3, 7)]
        choice, written, _ = await asyncio.gather(
            engine.choose(prompt, options), engine.generate(prompt, Sampling(16)), asyncio.gather(*crowd)
        )
        assert choice.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
        assert written.completions[0].token_ids == greedy.token_ids

        before = await engine.generate(prompt, sampling)
        first_processes = processes_of(engine)
        under_way = asyncio.create_task(engine.generate(prompt, replace(sampling, max_tokens=300, n=3)))
        await asyncio.sleep(0.2)
        core_of(engine).kill()
        assert (await vllm_pair.target.generate(PROMPT, Sampling(4))).completions, "other engines must go on"
        [reply, *_] = (await under_way).completions
        assert engine.restarts == 1
        assert reply.token_ids[:20] == before.completions[0].token_ids[:20]
        assert (await engine.choose(prompt, options)).logprobs == pytest.approx(expected.logprobs, abs=1e-3)
        assert not alive(first_processes)

        assert engine._stall_clock is not None
        engine._stall_clock._limit = 4.0
        second_processes = processes_of(engine)
        call = asyncio.create_task(engine.generate(prompt, Sampling(400, 2.0, n=4)))
        await asyncio.sleep(0.2)
        os.kill(core_of(engine).pid, signal.SIGSTOP)
        with pytest.raises(EngineDied, match=r"died twice: no output for 4 s[^\n]*\n(.|\n)*EngineCore"):
            await asyncio.wait_for(call, 60)
        async with asyncio.timeout(20):
            while alive(second_processes):
                await asyncio.sleep(0.1)
    finally:
        await engine.close()
