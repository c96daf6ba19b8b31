"""Real vLLM engines that a test starts for itself: with an adapter, and killed as a request meets them."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

from harness.engine import EngineDied, Role, Sampling
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine
from tests.harness.conftest import save_tiny_adapter
from tests.harness.engines.tiny_engines import PROMPT, ids_of, kill_core, tiny_settings

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs_tool("vllm"),
]


async def test_an_adapter_is_served_beside_the_base_model_for_verdicts_alone(
    tiny_models: dict[Role, Path], tmp_path: Path
) -> None:
    from harness.engines import adapter

    folder = save_tiny_adapter(tmp_path / "adapter", tiny_models["target"])
    served = dataclasses.replace(tiny_settings()["target"], adapter=adapter.read(str(folder)))
    reference = await TransformersEngine.start(
        str(tiny_models["target"]), "target", EngineSettings(dtype="float32", adapter=served.adapter)
    )
    plain = await TransformersEngine.start(str(tiny_models["target"]), "target", EngineSettings(dtype="float32"))
    options, sampling = list(range(20, 26)), Sampling(16)
    engine = await VLLMEngine.start(str(tiny_models["target"]), "target", served, tmp_path / "log")
    try:
        crowd = [engine.generate([i, *PROMPT], Sampling(24, 1.0, seed=i)) for i in range(3, 9)]
        choice, written, _ = await asyncio.gather(
            engine.choose(PROMPT, options), engine.generate(PROMPT, sampling), asyncio.gather(*crowd)
        )
    finally:
        await engine.close()
    expected, without = await reference.choose(PROMPT, options), await plain.choose(PROMPT, options)
    assert choice.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    assert choice.logprobs != pytest.approx(without.logprobs, abs=1e-1)
    assert ids_of(written.completions[0]) == ids_of((await plain.generate(PROMPT, sampling)).completions[0])


async def test_a_bad_adapter_is_named_when_the_engine_starts(tiny_models: dict[Role, Path], tmp_path: Path) -> None:
    from harness.engines.adapter import Adapter

    served = dataclasses.replace(tiny_settings()["target"], adapter=Adapter(str(tmp_path / "none"), 8))
    with pytest.raises(EngineDied, match="cannot serve the adapter"):
        await VLLMEngine.start(str(tiny_models["target"]), "target", served, tmp_path / "log")


async def test_a_request_that_meets_the_engine_in_the_moment_of_its_death_does_not_wait_for_ever(
    tiny_models: dict[Role, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = await VLLMEngine.start(str(tiny_models["draft"]), "draft", tiny_settings()["draft"], tmp_path / "log")
    try:
        kill_core(engine)
        while not engine.process.llm.errored:
            await asyncio.sleep(0.1)
        original = AsyncLLM.errored.fget
        late = property(lambda llm: sys._getframe(1).f_code.co_name != "add_request" and original(llm))

        async def lost(request: object) -> None:
            """What is sent to a process that is no more."""

        with monkeypatch.context() as unseen:
            unseen.setattr(AsyncLLM, "errored", late)
            unseen.setattr(engine.process.llm.engine_core, "add_request_async", lost)
            call = asyncio.create_task(engine.generate(PROMPT, Sampling(4)))
            await asyncio.sleep(0.5)
        assert (await asyncio.wait_for(call, 120)).completions[0].num_tokens == 4
        assert engine.restarts == 1
    finally:
        await engine.close()
