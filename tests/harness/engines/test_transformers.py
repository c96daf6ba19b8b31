"""The reference engine on a tiny random model."""

from __future__ import annotations

import math
import weakref
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from harness.engine import EngineDied, RequestRefused, Role, Sampling
from harness.engines import transformers
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from tests.harness.conftest import save_tiny_head

PROMPT = list(range(40, 80))
_SETTINGS = EngineSettings(kind="transformers", dtype="float32", max_context=300)


@pytest_asyncio.fixture
async def engine(tiny_models: dict[Role, Path]) -> AsyncIterator[TransformersEngine]:
    engine = await TransformersEngine.start(str(tiny_models["draft"]), "draft", _SETTINGS)
    yield engine
    await engine.close()
    await engine.close()


async def test_candidates_are_drawn_with_consecutive_seeds(engine: TransformersEngine) -> None:
    together = await engine.generate(PROMPT, Sampling(8, 1.0, top_p=0.9, seed=5, n=3))
    alone = [await engine.generate(PROMPT, Sampling(8, 1.0, top_p=0.9, seed=5 + i)) for i in range(3)]
    assert [c.token_ids for c in together.completions] == [r.completions[0].token_ids for r in alone]
    assert len({c.token_ids for c in together.completions}) == 3


async def test_completions_end_at_stop_strings_and_limits(engine: TransformersEngine) -> None:
    [free] = (await engine.generate(PROMPT, Sampling(20, 1.0, seed=3))).completions
    stop = engine.tokenizer.decode(free.token_ids[5:7])
    [stopped] = (await engine.generate(PROMPT, Sampling(20, 1.0, seed=3, stop=(stop,)))).completions
    assert (stopped.finish, stop in stopped.text) == ("stop", True)
    assert free.token_ids[: len(stopped.token_ids)] == stopped.token_ids
    [clipped] = (await engine.generate([5] * 298, Sampling(20, 1.0))).completions
    assert clipped.num_tokens <= 2
    engine._eos.add(free.token_ids[5])
    [ended] = (await engine.generate(PROMPT, Sampling(20, 1.0, seed=3))).completions
    assert (ended.finish, ended.num_tokens) == ("eos", len(ended.token_ids) + 1), "counted, but not kept"


async def test_choosing_gives_the_models_own_probabilities(engine: TransformersEngine) -> None:
    whole = await engine.choose(PROMPT, range(384))
    assert whole.mass == pytest.approx(1, abs=1e-3)
    some = await engine.choose(PROMPT, [9, 7])
    assert some.logprobs == (whole.logprobs[9], whole.logprobs[7])
    [greedy] = (await engine.generate(PROMPT, Sampling(1, mean_logprob=True))).completions
    assert greedy.mean_logprob == pytest.approx(max(whole.logprobs), abs=1e-4)
    assert math.isfinite(some.timing.end_seconds)


async def test_tokens_come_with_the_log_probability_and_entropy_of_the_models_own_distribution(
    engine: TransformersEngine,
) -> None:
    asked = Sampling(12, 0.7, top_p=0.5, seed=1, mean_logprob=True, token_logprobs=True, entropies=True)
    [drawn] = (await engine.generate(PROMPT, asked)).completions
    assert drawn.token_logprobs is not None
    assert drawn.entropies is not None
    assert len(drawn.token_logprobs) == len(drawn.entropies) == drawn.num_tokens
    assert drawn.mean_logprob == pytest.approx(sum(drawn.token_logprobs) / drawn.num_tokens)
    whole = await engine.choose(PROMPT, range(384))
    assert drawn.token_logprobs[0] == pytest.approx(whole.logprobs[drawn.token_ids[0]], abs=1e-4)
    assert drawn.entropies[0] == pytest.approx(-sum(math.exp(x) * x for x in whole.logprobs), abs=1e-4)
    [plain] = (await engine.generate(PROMPT, Sampling(12, 0.7, top_p=0.5, seed=1))).completions
    assert (plain.token_ids, plain.token_logprobs, plain.entropies) == (drawn.token_ids, None, None)


async def test_a_bad_request_is_refused(engine: TransformersEngine) -> None:
    for prompt in ([], [5] * 300, [9999]):
        with pytest.raises(RequestRefused):
            await engine.generate(prompt, Sampling(4))
    for text in ([], [5] * 260):
        with pytest.raises(RequestRefused):
            await engine.log_probabilities(PROMPT, text)


async def test_a_gpu_gets_its_memory_back_from_a_closed_and_from_a_failed_engine(
    tiny_models: dict[Role, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    loaded: list[weakref.ref[object]] = []
    emptied: list[list[bool]] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([model() is not None for model in loaded]))
    engine = await TransformersEngine.start(str(tiny_models["draft"]), "draft", _SETTINGS)
    loaded.append(weakref.ref(engine._model))
    await engine.close()
    assert emptied == [[False]], "torch keeps the memory of what is still there"

    def fail(model: object, tokenizer: object) -> None:
        loaded.append(weakref.ref(model))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(transformers, "_eos_ids", fail)
    with pytest.raises(EngineDied, match="out of memory"):
        await TransformersEngine.start(str(tiny_models["draft"]), "draft", _SETTINGS)
    assert emptied[1:] == [[False, False]]


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [({"top_k": 2}, {3, 4}), ({"min_p": 0.5}, {3, 4}), ({"min_p": 0.9}, {4}), ({"top_k": 3, "top_p": 0.6}, {3, 4})],
)
def test_only_tokens_within_the_limits_are_drawn(limits: dict[str, Any], allowed: set[int]) -> None:
    logits = torch.tensor([0.05, 0.05, 0.15, 0.3, 0.45]).log()
    drawn = [_drawn(logits, Sampling(1, 1.0, seed=seed, **limits)) for seed in range(60)]
    assert set(drawn) == allowed


def test_a_repetition_penalty_holds_for_greedy_tokens_too() -> None:
    logits = torch.tensor([1.0, -1.0, 1.5, 1.9])
    assert _drawn(logits, Sampling(1)) == 3
    assert _drawn(logits, Sampling(1, repetition_penalty=2.0), seen=[3]) == 2
    assert _drawn(logits, Sampling(1, repetition_penalty=2.0), seen=[3, 2, 2]) == 0
    assert logits.tolist() == pytest.approx([1.0, -1.0, 1.5, 1.9])


def _drawn(logits: torch.Tensor, sampling: Sampling, seen: Sequence[int] = ()) -> int:
    generator = torch.Generator().manual_seed(sampling.seed)
    return transformers._sampled_token(logits, sampling, generator, seen)


async def test_too_little_memory_is_a_death_of_the_engine_and_no_refusal(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engine._model, "forward", full)
    for call in (
        engine.generate(PROMPT, Sampling(2)),
        engine.choose(PROMPT, [40, 41]),
        engine.log_probabilities(PROMPT, [40]),
    ):
        with pytest.raises(EngineDied, match="the draft engine failed: CUDA out of memory"):
            await call


@pytest.mark.parametrize(("kind", "classes"), [("SequenceClassification", 1), ("TokenClassification", 2)])
async def test_a_model_with_a_head_rates_a_text_at_its_last_token(
    tiny_models: dict[Role, Path], tmp_path: Path, kind: str, classes: int
) -> None:
    folder = save_tiny_head(tmp_path / "head", tiny_models["draft"], kind, classes=classes)
    engine = await TransformersEngine.start(str(folder), "reward", _SETTINGS)
    assert engine.has_head
    rating = await engine.rate(PROMPT)
    head = engine._model.score
    with torch.inference_mode():
        hidden = engine._model.model(input_ids=torch.tensor([PROMPT])).last_hidden_state[0, -1]
        assert rating.outputs == pytest.approx(head(hidden).tolist(), abs=1e-5)
    assert len(rating.outputs) == classes
    assert 0 < rating.probability < 1
    await engine.close()
