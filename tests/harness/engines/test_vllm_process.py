"""vLLM's configuration for every proposer, and engines that stop working or break requests off, under its front end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.engine import EngineDied, Role, Sampling
from harness.engines import calls, vllm
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import DEFAULT_TOKENS, PROPOSERS, DraftSampling, Proposer, Speculation
from harness.engines.vllm import VLLMEngine, engine_arguments, model_runner_of
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


@pytest.mark.parametrize("proposer", ["draft", "eagle3", "mtp"])
def test_sampled_drafts_reach_vllm(proposer: Proposer, folders: dict[str, Path]) -> None:
    target = folders["mtp" if proposer == "mtp" else "target"]
    arguments = _arguments(target, _speculation(proposer, folders, "probabilistic"))
    assert arguments.create_engine_config().speculative_config.draft_sample_method == "probabilistic"


def test_sampled_drafts_of_another_vocabulary_are_refused_in_one_line(folders: dict[str, Path]) -> None:
    with pytest.raises(EngineDied, match=r"384 and 512 tokens, where vLLM cannot sample drafts: leave out"):
        _arguments(folders["padded"], _speculation("draft", folders, "probabilistic"))


@pytest.mark.parametrize(
    ("proposer", "target", "runner"),
    [("ngram", "target", "v2"), ("draft", "target", "v2"), ("suffix", "target", "v1"), ("draft", "padded", "v1")],
)
def test_the_model_runner_is_what_the_configuration_says(
    proposer: Proposer, target: str, runner: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm.config.speculative
    import vllm.config.vllm

    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr(vllm.config.speculative, "has_arctic_inference", lambda: True)
    config = _arguments(folders[target], _speculation(proposer, folders)).create_engine_config()
    monkeypatch.setattr(vllm.config.vllm, "HAS_TRITON", False)
    assert model_runner_of(config) == "v1", "as on a CPU"
    monkeypatch.setattr(vllm.config.vllm, "HAS_TRITON", True)
    assert model_runner_of(config) == runner
    assert model_runner_of(object()) is None, "a version that does not say"


def test_a_setting_that_this_vllm_lacks_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engines.speculation.SAMPLING_FIELD", "sampling_of_another_version")
    with pytest.raises(EngineDied, match="this vLLM has no sampling_of_another_version"):
        _arguments(folders["target"], _speculation("eagle3", folders, "probabilistic"))


def test_models_that_also_read_images_are_loaded_for_text_alone(folders: dict[str, Path]) -> None:
    arguments = engine_arguments(
        str(folders["target"]), None, pair_settings("vllm", ("target",), device="gpu")["target"]
    )
    assert arguments.language_model_only


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


def _silent() -> Iterator[float | None]:
    while True:
        yield None


async def test_the_requests_of_an_engine_that_stops_working_are_answered_by_another(engine: VLLMEngine) -> None:
    Core.started[0].steps = _silent()
    assert await _answers(engine, 3) == [tuple(REPLY)] * 3
    assert engine.restarts == 1


async def test_an_engine_that_stops_working_again_is_said_to_have_died_and_how(
    engine: VLLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Core.started[0].steps = _silent()
    assert await _answers(engine, 1) == [tuple(REPLY)]
    Core.started[1].steps = _silent()
    with pytest.raises(EngineDied) as death:
        await _answers(engine, 3)
    first, *_ = str(death.value).splitlines()
    assert first == "the draft engine died for the second time: no output for 0.5 s with 3 requests unfinished"


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_requests_that_an_engine_breaks_off_are_answered_by_another_and_then_end_the_worker(
    engine: VLLMEngine, reason: str
) -> None:
    from vllm.v1.engine import FinishReason

    Core.started[0].breaks_off = FinishReason[reason.upper()]
    assert await _answers(engine, 3) == [tuple(REPLY)] * 3
    assert engine.restarts == 1
    Core.started[1].breaks_off = FinishReason[reason.upper()]
    with pytest.raises(EngineDied, match="died for the second time"):
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


async def test_steps_that_change_nothing_are_no_work(engine: VLLMEngine) -> None:
    Core.started[0].steps = (0.5 for _ in iter(int, 1))
    assert await _answers(engine, 2) == [tuple(REPLY)] * 2
    assert engine.restarts == 1


async def test_an_engine_that_waits_for_requests_stays_open(engine: VLLMEngine) -> None:
    await _answers(engine, 1)
    await asyncio.sleep(3 * LIMIT_SECONDS)
    await _answers(engine, 1)
    assert engine.restarts == 0


async def test_a_start_has_a_limit_of_its_own(
    tiny_models: dict[Role, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.bench.instant_core.InstantCore", Core)
    monkeypatch.setattr(Core, "steps", _silent())
    monkeypatch.setattr(vllm, "START_SECONDS", 1)
    settings = EngineSettings(dtype="float32", max_num_seqs=8, enforce_eager=True)
    with instant_cores(Script([REPLY, REPLY])), pytest.raises(EngineDied, match="first requests within 1 s"):
        await VLLMEngine.start(str(tiny_models["draft"]), "draft", settings, tmp_path / "log")
