"""Real vLLM engines: the session's pair, which is the bundled one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict

import pytest
import pytest_asyncio

from harness.engine import RequestRefused, Role, Sampling
from harness.engines.calls import NUM_RANKED, entropy_bound
from harness.engines.pool import EngineNeed, EngineStart
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine
from harness.weights.tokenizer import verdict_options
from tests.conftest import PAIR_CONTEXT, VLLMPair
from tests.harness.engines.tiny_engines import PROMPT

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs_tool("vllm"),
]


_HOT = 2.0
"""A temperature at which several texts are all but sure not to end soon."""


@pytest.fixture
def draft(vllm_pair: VLLMPair) -> VLLMEngine:
    return vllm_pair.draft


@pytest.fixture
def target(vllm_pair: VLLMPair) -> VLLMEngine:
    return vllm_pair.target


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reference(vllm_pair: VLLMPair) -> TransformersEngine:
    """The target's weights on the reference engine."""
    [need] = [need for need in vllm_pair.needs if need.role == "target"]
    return await TransformersEngine.start(need.path, "target", EngineSettings(dtype="float32"))


async def test_seeded_prompts_beyond_one_batch_do_not_kill_the_engine(draft: VLLMEngine) -> None:
    sampling = Sampling(max_tokens=2, temperature=0.8, seed=3)
    prompts = [[40 + i, *PROMPT * 3] for i in range(16)]
    assert sum(map(len, prompts)) > 4096, "more than one batch takes"
    replies = await asyncio.gather(*(draft.generate(prompt, sampling) for prompt in prompts))
    assert all(reply.completions[0].num_tokens == 2 for reply in replies)
    assert draft.restarts == 0


def alone(need: EngineNeed, kv_bytes: int) -> EngineNeed:
    """Return what a run needs that has one model and one sample in flight."""
    own = pair_settings("vllm", (need.role,), dtype="float32", concurrency=1, kv_bytes=kv_bytes)[need.role]
    settings = dataclasses.replace(own, max_context=256)
    assert settings.kv_cache_bytes != need.settings.kv_cache_bytes
    return dataclasses.replace(need, settings=settings, one_in_flight=True)


async def test_the_pairs_engines_serve_each_model_alone_with_one_sample_in_flight(vllm_pair: VLLMPair) -> None:
    starts: dict[Role, set[EngineStart]] = defaultdict(set)
    texts: dict[Role, set[tuple[int, ...]]] = defaultdict(set)
    for needs in (vllm_pair.needs, *(vllm_pair.served([alone(need, vllm_pair.kv_bytes)]) for need in vllm_pair.needs)):
        for role, engine in (await vllm_pair.pool.lease(needs, vllm_pair.log_dir)).items():
            starts[role].add(engine.start)
            reply = await engine.generate(PROMPT, Sampling(8, 1.0, seed=3))
            texts[role].add(reply.completions[0].token_ids)
            assert reply.cached_tokens == 0
    assert [len(starts[role]) for role in starts] == [len(texts[role]) for role in texts] == [1, 1]


async def test_candidates_are_drawn_with_consecutive_seeds(draft: VLLMEngine) -> None:
    together = await draft.generate(PROMPT, Sampling(12, 1.0, seed=5, n=3))
    alone = [await draft.generate(PROMPT, Sampling(12, 1.0, seed=5 + i)) for i in range(3)]
    assert [c.token_ids for c in together.completions] == [reply.completions[0].token_ids for reply in alone]
    assert len({c.token_ids for c in together.completions}) == 3


async def test_choosing_gives_every_option_and_agrees_with_the_reference(
    target: VLLMEngine, reference: TransformersEngine
) -> None:
    prefix, options = verdict_options(target.tokenizer, "Score:", "0123456789")
    choice = await target.choose(PROMPT + prefix, options)
    expected = await reference.choose(PROMPT + prefix, options)
    assert choice.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    assert choice.mass < 1


async def test_a_reset_forgets_prompts_and_is_refused_while_a_request_runs(target: VLLMEngine) -> None:
    prompt, sampling = [302, *PROMPT], Sampling(2)
    cached = [(await target.generate(prompt, sampling)).cached_tokens for _ in range(2)]
    assert cached[0] == 0 < cached[1]
    running = asyncio.create_task(target.generate([303, *PROMPT], Sampling(200, _HOT, n=4)))
    await asyncio.sleep(0.1)
    assert not await target.reset_prefix_cache()
    await running
    assert await target.reset_prefix_cache()
    assert (await target.generate(prompt, sampling)).cached_tokens == 0


async def test_tokens_come_with_their_log_probability_and_a_lower_bound_of_their_entropy(
    target: VLLMEngine, reference: TransformersEngine
) -> None:
    asked = Sampling(12, 0.8, seed=4, token_logprobs=True, entropies=True)
    [drawn] = (await target.generate(PROMPT, asked)).completions
    [plain] = (await target.generate(PROMPT, Sampling(12, 0.8, seed=4))).completions
    assert (plain.token_ids, plain.token_logprobs, plain.entropies) == (drawn.token_ids, None, None)
    whole = (await reference.choose(PROMPT, range(target.vocabulary))).logprobs
    assert drawn.token_logprobs is not None
    assert drawn.entropies is not None
    assert len(drawn.token_logprobs) == len(drawn.entropies) == drawn.num_tokens
    assert drawn.token_logprobs[0] == pytest.approx(whole[drawn.token_ids[0]], abs=1e-3)
    known = {*sorted(range(target.vocabulary), key=whole.__getitem__)[-NUM_RANKED:], drawn.token_ids[0]}
    assert drawn.entropies[0] == pytest.approx(entropy_bound([whole[token] for token in known]), abs=1e-3)


async def test_a_given_text_has_the_references_log_probabilities_token_by_token(
    target: VLLMEngine, reference: TransformersEngine
) -> None:
    text = list(range(150, 170))
    expected = await reference.log_probabilities(PROMPT, text)
    for _ in range(2):  # the second time, the prefix cache holds the prompt
        given = await target.log_probabilities(PROMPT, text)
        assert given.token_logprobs == pytest.approx(expected.token_logprobs, abs=1e-3)
        assert given.prompt_tokens == len(PROMPT) + len(text)
    with pytest.raises(RequestRefused):
        await target.log_probabilities(PROMPT, [])


async def test_entropies_verdicts_and_given_texts_do_not_disturb_each_other(target: VLLMEngine) -> None:
    options = list(range(20, 30))
    verdict, given = await target.choose(PROMPT, options), await target.log_probabilities(PROMPT, options)
    asked = [Sampling(12, 1.0, seed=i, entropies=True) for i in range(4)]
    alone = [(await target.generate(PROMPT, sampling)).completions for sampling in asked]
    drawn, rest = await asyncio.gather(
        asyncio.gather(*(target.generate(PROMPT, sampling) for sampling in asked)),
        asyncio.gather(*(target.choose(PROMPT, options) for _ in range(6))),
    )
    again = await target.log_probabilities(PROMPT, options)
    assert again.token_logprobs == pytest.approx(given.token_logprobs, abs=1e-4)
    assert all(choice.logprobs == pytest.approx(verdict.logprobs, abs=1e-4) for choice in rest)
    for reply, [expected] in zip(drawn, alone, strict=True):
        assert reply.completions[0].entropies == pytest.approx(expected.entropies, abs=1e-3)


@pytest.mark.parametrize("prompt", [[5] * PAIR_CONTEXT, [5] * 1100, [], [5, 9999]])
async def test_a_bad_request_is_refused_and_the_engine_lives(target: VLLMEngine, prompt: list[int]) -> None:
    with pytest.raises(RequestRefused):
        await target.generate(prompt, Sampling(4))
    with pytest.raises(RequestRefused):
        await target.choose(prompt, [5, 5])
    assert (await target.generate([5, 6], Sampling(2))).completions


async def test_a_cancelled_call_frees_its_requests(draft: VLLMEngine) -> None:
    call = asyncio.create_task(draft.generate(PROMPT, Sampling(400, _HOT, seed=2, n=8)))
    await asyncio.sleep(0.3)
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.1)
    assert draft.llm is not None
    assert draft.llm.get_num_unfinished_requests() == 0
