"""Token-level speculation: where it cannot be had, and on real vLLM engines that it changes nothing but the speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import Completion, Generation, Role, Sampling, Timing
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import Proposer, Speculation, unsupported_reason
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine
from harness.recording import Model
from harness.trace import Trace
from harness.weights.tokenizer import verdict_options
from tests.harness.conftest import save_tiny_model

PROMPT = list(range(40, 140))
SAMPLING = Sampling(48, 0.0)


def test_it_is_refused_where_it_cannot_be_had() -> None:
    assert unsupported_reason("vllm", "cpu", 0.0) is None
    assert unsupported_reason("vllm", "gpu", 0.6) is None
    assert "--temperature 0" in str(unsupported_reason("vllm", "cpu", 0.6))
    assert "--engine vllm" in str(unsupported_reason("transformers", "gpu", 0.0))


async def test_what_was_proposed_and_confirmed_is_summed_over_the_completions_of_a_call() -> None:
    class Counting(ScriptedEngine):
        async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
            plain = Completion((1,), "a", "length", 1)
            completions = (replace(plain, proposed_tokens=5, confirmed_tokens=3), replace(plain, proposed_tokens=4))
            counted = (replace(completions[1], confirmed_tokens=0), completions[0])
            return Generation(counted if sampling.n == 2 else (plain,), 1, 0, Timing(0, 0, 0, 0, 1))

    trace = Trace("s", "p", 0, 0)
    engine = Counting(lambda prompt, sampling: [""], lambda prompt, labels: [])
    model = Model(engine, "target", trace)
    for n in (2, 1):
        await model.generate([1], Sampling(1, n=n), purpose="chain", step=0)
    assert [(call.proposed_tokens, call.confirmed_tokens) for call in trace.calls] == [(9, 3), (None, None)]


def _settings(speculation: Speculation) -> EngineSettings:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4, speculation=speculation)["target"]
    return replace(settings, kv_cache_bytes=32 << 20 if settings.device == "cpu" else None)


@pytest.mark.vllm
@pytest.mark.needs_tool("vllm")
@pytest.mark.parametrize("proposer", ["itself", "another vocabulary", "ngram"])
async def test_greedy_text_and_verdicts_are_those_without_it(
    proposer: str, tiny_models: dict[Role, Path], tmp_path: Path
) -> None:
    path = tiny_models["target"]
    drafts = {"itself": path, "another vocabulary": tmp_path / "draft"}
    if proposer == "another vocabulary":
        save_tiny_model(tmp_path / "draft", seed=7, vocabulary=512)
    kind: Proposer = "ngram" if proposer == "ngram" else "draft"
    speculation = Speculation(kind, 3, str(drafts[proposer]) if kind == "draft" else None)
    reference = await TransformersEngine.start(str(path), "target", EngineSettings(dtype="float32"))
    engine = await VLLMEngine.start(str(path), "target", _settings(speculation), tmp_path / "engine.log")
    try:
        [written] = (await engine.generate(PROMPT, SAMPLING)).completions
        prefix, options = verdict_options(engine.tokenizer, "Score:", "0123456789")
        choice = await engine.choose(PROMPT + prefix, options)
    finally:
        await engine.close()
    [expected] = (await reference.generate(PROMPT, SAMPLING)).completions
    assert written.token_ids == expected.token_ids
    assert written.proposed_tokens is not None
    assert written.confirmed_tokens is not None
    assert 0 <= written.confirmed_tokens <= written.proposed_tokens
    if proposer == "itself":
        assert written.confirmed_tokens > 0.8 * written.proposed_tokens > 0
    expected_choice = await reference.choose(PROMPT + prefix, options)
    assert choice.logprobs == pytest.approx(expected_choice.logprobs, abs=1e-3)
