"""Real vLLM engines: the session's pair, which is the bundled one."""

from __future__ import annotations

import asyncio
import dataclasses
import time
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
from tests.conftest import VLLMPair
from tests.harness.engines.tiny_engines import PROMPT, ids_of

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
    settings = dataclasses.replace(own, max_context=256, cpu_cores=need.settings.cpu_cores)
    assert settings.kv_cache_bytes != need.settings.kv_cache_bytes
    return dataclasses.replace(need, settings=settings, one_in_flight=True)


async def test_the_pairs_engines_serve_each_model_alone_with_one_sample_in_flight(vllm_pair: VLLMPair) -> None:
    starts: dict[Role, set[EngineStart]] = defaultdict(set)
    texts: dict[Role, set[tuple[int, ...]]] = defaultdict(set)
    for needs in (vllm_pair.needs, *([alone(need, vllm_pair.kv_bytes)] for need in vllm_pair.needs)):
        for role, engine in (await vllm_pair.pool.lease(needs, vllm_pair.log_dir)).items():
            starts[role].add(engine.start)
            reply = await engine.generate(PROMPT, Sampling(8, 1.0, seed=3))
            texts[role].add(ids_of(reply.completions[0]))
            assert reply.cached_tokens == 0
    assert [len(starts[role]) for role in starts] == [len(texts[role]) for role in texts] == [1, 1]


async def test_limits_are_known(target: VLLMEngine) -> None:
    assert target.context_tokens == 512
    assert target.kv_tokens is not None
    assert target.kv_tokens > 1000


async def test_candidates_are_drawn_with_consecutive_seeds(draft: VLLMEngine) -> None:
    together = await draft.generate(PROMPT, Sampling(12, 1.0, seed=5, n=3))
    alone = [await draft.generate(PROMPT, Sampling(12, 1.0, seed=5 + i)) for i in range(3)]
    assert [ids_of(c) for c in together.completions] == [ids_of(reply.completions[0]) for reply in alone]
    assert len({ids_of(c) for c in together.completions}) == 3


async def test_results_do_not_depend_on_what_else_is_computed(target: VLLMEngine) -> None:
    alone = await target.generate(PROMPT, Sampling(16, 0.8, seed=9))
    crowd = [target.generate([i, *PROMPT], Sampling(16, 0.8, seed=i)) for i in range(3, 15)]
    amid, *_ = await asyncio.gather(target.generate(PROMPT, Sampling(16, 0.8, seed=9)), *crowd)
    assert ids_of(amid.completions[0]) == ids_of(alone.completions[0])


async def test_the_mean_logprob_is_given_where_it_is_asked_for_and_changes_nothing_else(
    draft: VLLMEngine,
) -> None:
    [without] = (await draft.generate(PROMPT, Sampling(8, 1.0, seed=1))).completions
    assert without.text == draft.tokenizer.decode(without.token_ids)
    assert without.mean_logprob is None
    [completion] = (await draft.generate(PROMPT, Sampling(8, 1.0, seed=1, mean_logprob=True))).completions
    assert completion.mean_logprob is not None
    assert -20 < completion.mean_logprob < 0
    assert dataclasses.replace(completion, mean_logprob=None) == without


async def test_behind_half_a_character_the_prompts_own_stop_string_ends_nothing(draft: VLLMEngine) -> None:
    half = draft.tokenizer.encode("One step.\n\nAnother 🙂")[:-1]
    assert draft.tokenizer.decode(half).endswith("\ufffd")
    replies = [await draft.generate(half, Sampling(12, 1.0, seed=i, stop=("\n\n",))) for i in range(4)]
    stopped = [c for reply in replies for c in reply.completions if c.finish == "stop"]
    assert all("\n\n" in completion.text for completion in stopped)


async def test_an_id_that_the_model_does_not_have_is_refused(draft: VLLMEngine) -> None:
    with pytest.raises(RequestRefused, match="out of vocabulary"):
        await draft.generate([*PROMPT, draft.vocabulary], Sampling(2, n=2))
    with pytest.raises(RequestRefused, match="out of vocabulary"):
        await draft.choose([-1, *PROMPT], [40, 41])


async def test_a_completion_ends_behind_its_stop_string(draft: VLLMEngine) -> None:
    [free] = (await draft.generate(PROMPT, Sampling(40, 1.0, seed=3))).completions
    stop = draft.tokenizer.decode(free.token_ids[5:7])
    [stopped] = (await draft.generate(PROMPT, Sampling(40, 1.0, seed=3, stop=(stop,)))).completions
    assert stopped.finish == "stop"
    assert stop in stopped.text
    assert free.token_ids[: len(stopped.token_ids)] == stopped.token_ids


async def test_the_end_of_sequence_is_counted_but_not_kept(draft: VLLMEngine) -> None:
    replies = await asyncio.gather(*(draft.generate(PROMPT, Sampling(400, 1.5, seed=i * 9, n=8)) for i in range(2)))
    ended = [c for reply in replies for c in reply.completions if c.finish == "eos"]
    assert ended
    for completion in ended:
        assert completion.num_tokens == len(completion.token_ids) + 1
        assert draft.tokenizer.eos_token_id not in completion.token_ids


async def test_choosing_gives_every_option_and_agrees_with_the_reference(
    target: VLLMEngine, reference: TransformersEngine
) -> None:
    prefix, options = verdict_options(target.tokenizer, "Score:", "0123456789")
    choice = await target.choose(PROMPT + prefix, options)
    expected = await reference.choose(PROMPT + prefix, options)
    assert choice.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    assert choice.mass < 1


async def test_the_prefix_cache_grows_with_the_chain(target: VLLMEngine) -> None:
    context, cached = [300, *PROMPT], []
    for step in range(4):
        reply = await target.generate(context, Sampling(32, 1.0, seed=step))
        cached.append(reply.cached_tokens)
        context += reply.completions[0].token_ids
    assert cached[0] == 0
    assert cached == sorted(set(cached))


async def test_a_reset_forgets_prompts_and_is_refused_while_a_request_runs(target: VLLMEngine) -> None:
    prompt, sampling = [302, *PROMPT], Sampling(2)
    cached = [(await target.generate(prompt, sampling)).cached_tokens for _ in range(2)]
    assert cached[0] == 0 < cached[1]
    running = asyncio.create_task(target.generate([303, *PROMPT], Sampling(350, _HOT, n=8)))
    await asyncio.sleep(0.1)
    assert not await target.reset_prefix_cache()
    await running
    assert await target.reset_prefix_cache()
    assert (await target.generate(prompt, sampling)).cached_tokens == 0


async def test_candidates_of_a_new_prompt_report_no_cache_hits(draft: VLLMEngine) -> None:
    assert (await draft.generate([301, *PROMPT], Sampling(4, 1.0, n=4))).cached_tokens == 0


async def test_writing_and_choosing_mix(target: VLLMEngine) -> None:
    options = list(range(20, 30))
    alone = await target.choose(PROMPT, options)
    writing = [target.generate([i, *PROMPT], Sampling(24, 1.0, seed=i)) for i in range(3, 11)]
    written, mixed, again = await asyncio.gather(
        asyncio.gather(*writing), target.choose(PROMPT, options), target.choose(PROMPT, options)
    )
    assert mixed.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert again.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert all(0 < reply.completions[0].num_tokens <= 24 for reply in written)


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
    asked = [Sampling(24, 1.0, seed=i, entropies=True) for i in range(6)]
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


async def test_times_are_in_order_and_requests_in_flight_are_counted(target: VLLMEngine) -> None:
    replies = await asyncio.gather(*(target.generate(PROMPT, Sampling(8, 1.0, seed=i)) for i in range(20)))
    for t in (reply.timing for reply in replies):
        assert 0 <= t.queued_seconds <= t.first_token_seconds <= t.end_seconds
        assert abs(t.submitted_at - time.time()) < 60
    assert sorted(reply.timing.in_flight for reply in replies) == list(range(1, 21))


@pytest.mark.parametrize("prompt", [[5] * 512, [5] * 600, [], [5, 9999]])
async def test_a_bad_request_is_refused_and_the_engine_lives(target: VLLMEngine, prompt: list[int]) -> None:
    with pytest.raises(RequestRefused):
        await target.generate(prompt, Sampling(4))
    with pytest.raises(RequestRefused):
        await target.choose(prompt, [5, 5])
    assert (await target.generate([5, 6], Sampling(2))).completions


async def test_no_more_is_asked_than_the_context_holds(target: VLLMEngine) -> None:
    [completion] = (await target.generate([5] * 508, Sampling(100, 1.0))).completions
    assert completion.num_tokens <= 4


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
