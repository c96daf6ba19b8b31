"""A model on a server gives what the same model gives in process, and what goes wrong there is told in one line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.engine import EngineDied, EngineError, Json, RequestRefused, Sampling, VerdictUnavailable
from harness.engines.scripted import ByteTokenizer, ScriptedEngine, SimulatedModel
from harness.engines.served import connection, discovery
from harness.engines.served.served_engine import ServedEngine
from harness.engines.settings import EngineSettings
from harness.weights.tokenizer import HFTokenizer, verdict_options
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import MODEL, FakeServer, judge_each, serving

pytestmark = pytest.mark.asyncio
KINDS = ("vllm", "sglang", "llama.cpp")
STEP = Sampling(400, 0.6, 0.95, ("\n\n",), seed=5, n=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "tokenizer"
    save_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HFTokenizer:
    return HFTokenizer(str(folder))


@pytest.fixture(params=KINDS)
def fake(request: pytest.FixtureRequest, tokenizer: HFTokenizer) -> Iterator[FakeServer]:
    with serving(request.param, tokenizer) as server:
        yield server


@pytest.fixture
def vllm(tokenizer: HFTokenizer) -> Iterator[FakeServer]:
    with serving("vllm", tokenizer) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(fake: FakeServer) -> AsyncIterator[ServedEngine]:
    settings = EngineSettings(kind="served", server=fake.served_model)
    link = fake.connection()
    try:
        yield await ServedEngine.connected("target", settings, link, fake.tokenizer)
    finally:
        await link.close()


def prompts(tokenizer: HFTokenizer) -> tuple[list[int], list[int], list[int]]:
    """The ids of a question to continue, those of a verdict, and its options."""
    question = tokenizer.open_reply("What is 12 + 30?")
    asked, options = verdict_options(tokenizer, tokenizer.ask_again("Score it."), [str(i) for i in range(10)])
    return tokenizer.encode_template(question), tokenizer.encode_template(question) + asked, options


async def test_texts_and_verdicts_are_those_of_the_same_model_in_process(fake: FakeServer) -> None:
    question, verdict, options = prompts(fake.tokenizer)
    own = ScriptedEngine(SimulatedModel(skill=0.9).write, judge_each, cast(ByteTokenizer, fake.tokenizer))
    async with connected(fake) as engine:
        assert engine.context_tokens == 4096
        for sampling in (STEP, Sampling(2, seed=1), Sampling(400)):
            expected, got = await own.generate(question, sampling), await engine.generate(question, sampling)
            assert [c.token_ids for c in got.completions] == [c.token_ids for c in expected.completions]
            assert [(c.text, c.finish, c.num_tokens) for c in got.completions] == [
                (c.text, c.finish, c.num_tokens) for c in expected.completions
            ]
            assert got.prompt_tokens == expected.prompt_tokens
        expected_choice, choice = await own.choose(verdict, options), await engine.choose(verdict, options)
        assert choice.logprobs == pytest.approx(expected_choice.logprobs)
        assert choice.best == expected_choice.best
        assert engine.restarts == 0


async def test_every_sampling_setting_is_sent_so_that_none_is_the_servers(vllm: FakeServer) -> None:
    async with connected(vllm) as engine:
        await engine.generate([40, 41], STEP)
        other = replace(STEP, top_k=20, min_p=0.1, repetition_penalty=1.2, n=1)
        sent = [body for path, body in vllm.posts if path == "/v1/completions"][-2:]
        await engine.generate([40, 41], other)
    last = vllm.posts[-1][1]
    assert (last["top_k"], last["min_p"], last["repetition_penalty"]) == (20, 0.1, 1.2)
    assert sorted(body["seed"] for body in sent) == [5, 6]
    for body in sent:
        assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.6, 0.95, 0, 0.0)
        assert (body["repetition_penalty"], body["presence_penalty"], body["frequency_penalty"]) == (1.0, 0.0, 0.0)
        assert body["prompt"] == [40, 41]
        assert not body["add_special_tokens"]


async def test_cached_tokens_are_counted_where_they_are_reported(fake: FakeServer) -> None:
    question, _, _ = prompts(fake.tokenizer)
    async with connected(fake) as engine:
        await engine.generate(question, Sampling(4))
        assert (await engine.generate(question, Sampling(4))).cached_tokens >= 16
        assert engine.reports_cached_tokens
        fake.edits.append(lambda path, reply: {**reply, "usage": {}, "timings": {}} | _without_cached(reply))
        assert (await engine.generate(question, Sampling(4))).cached_tokens == 0
        assert engine.reports_cached_tokens is False


def _without_cached(reply: dict[str, Any]) -> dict[str, Any]:
    meta = {k: v for k, v in reply.get("meta_info", {}).items() if k != "cached_tokens"}
    return {"meta_info": meta} if "meta_info" in reply else {}


async def test_a_reset_separates_the_caches_of_runs(vllm: FakeServer) -> None:
    async with connected(vllm) as engine:
        await engine.generate([40, 41], Sampling(2))
        assert await engine.reset_prefix_cache()
        await engine.generate([40, 41], Sampling(2))
    salts = [body["cache_salt"] for _, body in vllm.posts if "cache_salt" in body]
    assert salts[-1] != salts[-2]


@pytest.mark.parametrize("failure", ["reset", 429, 503])
async def test_a_request_that_failed_is_sent_again_as_it_was(vllm: FakeServer, failure: int | str) -> None:
    question, _, _ = prompts(vllm.tokenizer)
    async with connected(vllm) as engine:
        before = await engine.generate(question, Sampling(40, 0.6, seed=3))
        vllm.failures += [failure, failure]
        again = await engine.generate(question, Sampling(40, 0.6, seed=3))
        assert again.completions == before.completions
        assert engine.restarts == 2, "its sample has no true latency"
    assert vllm.posts[-1] == vllm.posts[-2] == vllm.posts[-3]


def _prompt_of(body: dict[str, Any]) -> list[int]:
    return cast(list[int], body.get("prompt", body.get("input_ids")))


REQUESTS: list[Callable[[ServedEngine], Awaitable[object]]] = [
    lambda engine: engine.generate([40, 41, 42], Sampling(2)),
    lambda engine: engine.choose([40, 41, 42], [43, 44]),
    lambda engine: engine.log_probabilities([40, 41, 42], [43]),
]


@pytest.mark.parametrize("ask", REQUESTS)
async def test_a_request_that_alone_makes_the_server_fail_is_refused(
    fake: FakeServer, ask: Callable[[ServedEngine], Awaitable[object]]
) -> None:
    async with connected(fake) as engine:
        fake.fails = lambda body: 500 if 42 in _prompt_of(body) else None
        with pytest.raises(RequestRefused) as refused:
            await ask(engine)
        assert str(refused.value).isprintable(), "what a server says has control characters"
        assert (await engine.generate([40], Sampling(2))).completions


@pytest.mark.parametrize("failure", [404, 500, 503, "garbage", "torn", "reset", "huge", "slow"])
async def test_a_server_that_answers_no_request_ends_the_worker_although_it_lists_its_models(
    vllm: FakeServer, failure: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_MOST_BYTES", 1 << 20)
    async with connected(vllm) as engine:
        engine.connection._client.timeout = 0.3
        vllm.fails = lambda body: failure
        with pytest.raises(EngineDied) as failed:
            await engine.generate([40, 41, 42], Sampling(2))
    assert str(failed.value).isprintable()


RANKED: Json = {f"token_id:{number}": -float(number + 1) for number in range(20)}


def _with_choice(**changes: Any) -> Any:
    def edit(path: str, reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "choices": [{**reply["choices"][0], **changes}]} if "choices" in reply else reply

    return edit


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": None},
        {"token_ids": [-1]},
        {"token_ids": [10**9]},
        {"token_ids": [True]},
        {"token_ids": [40] * 3},
        {"logprobs": {"token_logprobs": [float("nan")] * 2}},
        {"logprobs": {"token_logprobs": [3.0] * 2}},
        {"finish_reason": "abort"},
        {"finish_reason": None},
    ],
)
async def test_a_reply_that_cannot_be_true_ends_the_worker(vllm: FakeServer, changes: dict[str, Any]) -> None:
    async with connected(vllm) as engine:
        vllm.edits.append(_with_choice(**changes))
        with pytest.raises(EngineError) as failed:
            await engine.generate([40], Sampling(2))
    assert not isinstance(failed.value, RequestRefused), "it would be recorded as a failed sample"
    assert "\n" not in str(failed.value)


async def test_a_server_is_told_by_its_own_path_and_its_tokenizer_by_a_text(fake: FakeServer) -> None:
    link = fake.connection()
    found = await discovery.find(link)
    assert found.kind == fake.kind
    # A space before the first word does not make it another tokenizer.
    fake.edits.append(lambda path, reply: {"content": f" {reply['content']}"} if path == "/detokenize" else reply)
    assert not any("tokenizer" in notice for notice in await discovery.check(link, found, fake.tokenizer))
    fake.edits *= 2
    with pytest.raises(discovery.ServerUnfit):
        await discovery.check(link, found, fake.tokenizer)
    await link.close()


async def test_a_verdict_without_a_finite_log_probability_is_asked_again_and_then_unavailable(vllm: FakeServer) -> None:
    _, verdict, options = prompts(vllm.tokenizer)
    async with connected(vllm) as engine:
        name = f"token_id:{options[0]}"
        vllm.edits.append(_with_choice(logprobs={"top_logprobs": [{name: -9999.0}]}))
        asked = len(vllm.posts)
        with pytest.raises(VerdictUnavailable, match="no finite log-probabilities"):
            await engine.choose(verdict, options)
        assert len(vllm.posts) - asked > 4
        vllm.edits.clear()
        assert math.isfinite((await engine.choose(verdict, options)).logprobs[0])


async def test_requests_without_an_answer_are_not_sent(vllm: FakeServer) -> None:
    async with connected(vllm) as engine:
        number = len(vllm.posts)
        for prompt in ([], [40] * 4096, [-1], [10**7]):
            with pytest.raises(RequestRefused):
                await engine.generate(prompt, Sampling(2))
        with pytest.raises(RequestRefused):
            await engine.choose([40], [41, 41])
        with pytest.raises(RequestRefused):
            await engine.log_probabilities([40], [])
        assert len(vllm.posts) == number


async def test_the_key_is_sent_and_never_shown(
    vllm: FakeServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    vllm.key = "secret-key-1"
    good, bad = vllm.connection("secret-key-1"), vllm.connection("secret-key-2")
    assert (await discovery.find(good)).model == MODEL
    with pytest.raises(EngineDied, match="rejected the key: status 401; set HARNESS_TARGET_API_KEY") as refused:
        await discovery.find(bad)
    await asyncio.gather(good.close(), bad.close())
    assert "secret-key" not in str(refused.value) + repr(refused.value.__context__) + caplog.text
    assert "secret-key" not in "".join(capfd.readouterr())


async def test_token_log_probabilities_and_entropies_are_those_of_each_token(fake: FakeServer) -> None:
    question, _, _ = prompts(fake.tokenizer)
    async with connected(fake) as engine:
        mean = (await engine.generate(question, replace(STEP, n=1, mean_logprob=True))).completions[0]
        assert (mean.finish, mean.mean_logprob is not None) == ("stop", True)
        sampling = Sampling(12, 0.6, seed=3, token_logprobs=True, entropies=True)
        completion = (await engine.generate(question, sampling)).completions[0]
        assert completion.token_logprobs == (-0.5,) * completion.num_tokens
        assert completion.mean_logprob is None
        assert completion.entropies is not None
        # Half the probability, half of the rest, and so on: 2 bits, of which 20 tokens show all but a little.
        assert completion.entropies == pytest.approx([2 * math.log(2)] * completion.num_tokens, abs=1e-3)
        without = (await engine.generate(question, Sampling(12, 0.6, seed=3))).completions[0]
        assert (without.token_logprobs, without.entropies) == (None, None)


async def test_a_given_text_has_its_log_probabilities(fake: FakeServer) -> None:
    question, _, _ = prompts(fake.tokenizer)
    given = fake.tokenizer.encode("12 + 30")
    async with connected(fake) as engine:
        likelihood = await engine.log_probabilities(question, given)
        assert len(likelihood.token_logprobs) == len(given)
        assert likelihood.prompt_tokens == len(question) + len(given)
        if fake.kind != "llama.cpp":  # there every token is asked for, and a rare one has its own number in this fake
            assert likelihood.token_logprobs == pytest.approx([-0.01 * token for token in given])


async def test_log_probabilities_of_a_text_that_a_reply_lacks_are_not_made_up(vllm: FakeServer) -> None:
    async with connected(vllm) as engine:
        vllm.edits.append(_with_choice(prompt_logprobs=None))
        with pytest.raises(EngineDied):
            await engine.log_probabilities([40], [41])
        vllm.edits.append(_with_choice(prompt_logprobs=[None, {"41": {"logprob": -9999.0}}]))
        with pytest.raises(VerdictUnavailable):
            await engine.log_probabilities([40], [41])
