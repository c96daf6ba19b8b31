"""What many samples ask together is answered as if each asked alone, and the methods run on it."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import method_evaluation
from harness.demo_pair.batch_engine import BatchEngine
from harness.demo_pair.stories import Story
from harness.engine import Choice, Generation, Sampling
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer


@pytest.fixture(scope="module")
def draft() -> LlamaForCausalLM:
    folder, _ = map(models.pair_folder, models.PAIR)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_what_is_asked_together_is_answered_as_alone(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    asked = [prompts.opening(tokenizer, story.problem)[0] for story in taught[:4]]
    samplings = [Sampling(24, 0.8, stop=("\n\n",), seed=i, n=1 + i % 2) for i in range(4)]
    options = prompts.score_question(tokenizer).option_ids

    async def answers(group: list[int]) -> tuple[list[Generation], list[Choice]]:
        engine = BatchEngine(draft, tokenizer)
        written = asyncio.gather(*(engine.generate(asked[i], samplings[i]) for i in group))
        judged = asyncio.gather(*(engine.choose(asked[i], options) for i in group))
        return await written, await judged

    together = asyncio.run(answers([0, 1, 2, 3]))
    for i in range(4):
        [written], [judged] = asyncio.run(answers([i]))
        assert together[0][i].completions == written.completions
        assert together[1][i].logprobs == pytest.approx(judged.logprobs, abs=1e-4)
    for generation, sampling in zip(together[0], samplings, strict=True):
        assert len(generation.completions) == sampling.n
        for completion in generation.completions:
            assert completion.text == tokenizer.decode(completion.token_ids)
            assert (completion.finish == "stop") == completion.text.endswith("\n\n")


def test_the_methods_solve_problems_with_it(
    draft: LlamaForCausalLM, tokenizer: HFTokenizer, taught: list[Story]
) -> None:
    problems = [story for story in taught if story.level == "easy"][:3]
    pair = {"draft": draft, "target": draft}
    for name in ("target alone, T = 0", "speccot, T = 0", "specreason, T = 0"):
        method, temperature = method_evaluation.methods()[name]
        run = method_evaluation.traces(method, pair, tokenizer, problems, temperature, seed=1)  # type: ignore[arg-type]
        outcome = method_evaluation.outcome(name, temperature, problems, run, run)
        assert outcome.solved > 0.5
        assert outcome.difference == outcome.margin == 0
        assert (outcome.draft_share == 0) == ("alone" in name)
        assert all(trace.stop_reason == "answered" for trace in run)
