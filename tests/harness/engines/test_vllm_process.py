"""vLLM's configuration for every proposer, and engines that stop working or break requests off, under its front end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.engine import EngineDied, Role, Sampling
from harness.engines import calls, vllm
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import DEFAULT_TOKENS, PROPOSERS, DraftSampling, Proposer, Speculation
from harness.engines.vllm import VLLMEngine, engine_arguments
from tests.harness.conftest import save_tiny_model, save_tokenizer
from tests.harness.engines.heads import EAGLE3_CONFIG, MTP_CONFIG, save_config, target_config
from tools.bench.instant_core import InstantCore, Script, instant_cores

pytestmark = [pytest.mark.vllm, pytest.mark.needs_tool("vllm")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders with real configuration files; only the draft has weights, and none are read."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "target": save_config(root / "target", target_config()),
        "eagle3": save_config(root / "eagle3", EAGLE3_CONFIG),
        "mtp": save_config(root / "mtp", MTP_CONFIG),
        "draft": save_tiny_model(root / "draft", seed=3),
        "padded": save_config(root / "padded", target_config() | {"vocab_size": 512}),
    }
    for name in ("target", "mtp", "padded"):
        save_tokenizer(made[name])
    return made


def _arguments(target: Path, speculation: Speculation) -> Any:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4, speculation=speculation)["target"]
    return engine_arguments(str(target), None, replace(settings, kv_cache_bytes=32 << 20))


def _speculation(proposer: Proposer, folders: dict[str, Path], sampling: DraftSampling = "greedy") -> Speculation:
    model = {"draft": folders["draft"], "eagle3": folders["eagle3"]}.get(proposer)
    return Speculation(proposer, DEFAULT_TOKENS[proposer], str(model) if model else None, sampling=sampling)


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_vllm_builds_its_configuration_for_every_proposer(
    proposer: Proposer, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if proposer == "suffix":  # vLLM asks only whether the package is there
        import vllm.config.speculative

        monkeypatch.setattr(vllm.config.speculative, "has_arctic_inference", lambda: True)
    target = folders["mtp" if proposer == "mtp" else "target"]
    built = _arguments(target, _speculation(proposer, folders)).create_engine_config().speculative_config
    assert built.method == {"draft": "draft_model"}.get(proposer, proposer)
    assert built.num_speculative_tokens == DEFAULT_TOKENS[proposer]
    assert built.draft_sample_method == "greedy"
    assert built.rejection_sample_method == "standard"
    if proposer == "suffix":
        assert built.suffix_decoding_max_cached_requests == 0
    architectures = built.draft_model_config.architectures if proposer in ("draft", "eagle3", "mtp") else None
    expected = {"draft": ["LlamaForCausalLM"], "eagle3": ["LlamaForCausalLMEagle3"], "mtp": ["MiMoMTPModel"]}
    assert architectures == expected.get(proposer)


def test_sampled_drafts_of_another_vocabulary_are_refused_in_one_line(folders: dict[str, Path]) -> None:
    with pytest.raises(
        EngineDied, match=r"sample draft tokens with vocabularies of 384 \(draft\) and 512 \(target\) tokens: omit"
    ):
        _arguments(folders["padded"], _speculation("draft", folders, "probabilistic"))


PROMPT = list(range(40, 140))
REPLY = [50, 51, 52, 53]
LIMIT_SECONDS = 0.5


class Core(InstantCore):
    """A core that answers, or from some moment on does only what the test says."""

    started: list[Core] = []  # noqa: RUF012 - all of one test
    steps: Any = None
    """Once set: the cache usage after each step that has no output, or None for a step that never ends."""
    breaks_off: Any = None
    """Once set: the FinishReason of every request."""
    is_dead = False

    def __init__(self, vllm_config: Any, script: Script) -> None:
        super().__init__(vllm_config, script)
        self.started.append(self)

    async def get_output_async(self) -> Any:
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
        from vllm.v1.engine.exceptions import EngineDeadError
        from vllm.v1.metrics.stats import SchedulerStats

        while self.steps is None and not self._running and not self.is_dead:
            await asyncio.sleep(0.01)
        if self.is_dead:
            raise EngineDeadError
        if self.breaks_off is not None:
            ended = [
                EngineCoreOutput(request_id=number, new_token_ids=[], finish_reason=self.breaks_off)
                for number in self._running
            ]
            self._running.clear()
            return EngineCoreOutputs(outputs=ended, scheduler_stats=SchedulerStats())
        if self.steps is None:
            return await super().get_output_async()
        await asyncio.sleep(0.02)
        usage = next(self.steps, "ends")
        if usage == "ends":
            self.steps = None
            return await self.get_output_async()
        if usage is None:
            await asyncio.Event().wait()
        stats = SchedulerStats(num_running_reqs=len(self._running), kv_cache_usage=usage)
        return EngineCoreOutputs(scheduler_stats=stats)


@pytest_asyncio.fixture
async def engine(
    tiny_models: dict[Role, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[VLLMEngine]:
    """An engine over scripted cores, with a limit of half a second."""
    monkeypatch.setenv(calls.LIMIT, str(LIMIT_SECONDS))
    monkeypatch.setattr(vllm, "_DEATH_POLL_SECONDS", 0.05)
    monkeypatch.setattr("tools.bench.instant_core.InstantCore", Core)
    monkeypatch.setattr(Core, "started", [])
    settings = EngineSettings(dtype="float32", max_num_seqs=8, enforce_eager=True)
    with instant_cores(Script([REPLY, REPLY])):
        started = await VLLMEngine.start(str(tiny_models["draft"]), "draft", settings, tmp_path / "log")
        try:
            yield started
        finally:
            await started.close()


async def _answers(engine: VLLMEngine, number: int) -> list[tuple[int, ...]]:
    sampling = Sampling(max_tokens=len(REPLY), temperature=0.8)
    under_way = [engine.generate([40 + i, *PROMPT], sampling) for i in range(number)]
    replies = await asyncio.wait_for(asyncio.gather(*under_way), 60)
    return [reply.completions[0].token_ids for reply in replies]


@pytest.mark.parametrize("stops", ["silent", "steps without work", "abort", "error"])
async def test_requests_of_an_engine_that_stops_are_answered_by_another_which_then_ends_the_worker(
    engine: VLLMEngine, stops: str
) -> None:
    from vllm.v1.engine import FinishReason

    def stop(core: Core) -> None:
        if stops in ("abort", "error"):
            core.breaks_off = FinishReason[stops.upper()]
        else:
            core.steps = iter(lambda: None if stops == "silent" else 0.5, "never")

    stop(Core.started[0])
    assert await _answers(engine, 3) == [tuple(REPLY)] * 3
    assert engine.restarts == 1
    stop(Core.started[1])
    with pytest.raises(EngineDied, match="died twice"):
        await _answers(engine, 3)


async def test_a_request_that_meets_the_engine_in_the_moment_of_its_death_does_not_wait_for_ever(
    engine: VLLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    Core.started[0].is_dead = True
    llm = engine.llm
    assert llm is not None
    while not llm.errored:
        await asyncio.sleep(0.01)
    original = AsyncLLM.errored.fget
    late = property(lambda llm: sys._getframe(1).f_code.co_name != "add_request" and original(llm))

    async def lost(request: object) -> None:
        """What is sent to a process that is no more."""

    with monkeypatch.context() as unseen:
        unseen.setattr(AsyncLLM, "errored", late)
        unseen.setattr(Core.started[0], "add_request_async", lost)
        call = asyncio.create_task(_answers(engine, 1))
        await asyncio.sleep(0.2)
    assert await call == [tuple(REPLY)]
    assert engine.restarts == 1


async def test_the_steps_of_a_long_prompt_are_work_although_they_have_no_output(engine: VLLMEngine) -> None:
    Core.started[0].steps = (step / 1000 for step in range(1, 101))
    begun = time.monotonic()
    assert await _answers(engine, 2) == [tuple(REPLY)] * 2
    assert time.monotonic() - begun > 3 * LIMIT_SECONDS
    assert engine.restarts == 0


async def test_a_start_has_a_limit_of_its_own(
    tiny_models: dict[Role, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.bench.instant_core.InstantCore", Core)
    monkeypatch.setattr(Core, "steps", iter(lambda: None, "never"))
    monkeypatch.setattr(vllm, "START_SECONDS", 1)
    settings = EngineSettings(dtype="float32", max_num_seqs=8, enforce_eager=True)
    with instant_cores(Script([REPLY, REPLY])), pytest.raises(EngineDied, match="within 1 s"):
        await VLLMEngine.start(str(tiny_models["draft"]), "draft", settings, tmp_path / "log")
