"""What vLLM's target gives accepted steps, against a forward pass of the same weights in float32."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from harness import prompts
from harness.problems import benchmarks
from harness.problems.problem import dataset_hash
from harness.weights import models
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, assign_to_shards, units
from jobs.run.trace_files import counting_records
from jobs.work.run_part import RunPart
from tests.conftest import VLLMPair
from tests.jobs.finished.test_target_logprobs import rows_of
from tests.jobs.runs import bundled, plan

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session"), pytest.mark.needs_tool("vllm")]

_PARAMS = {"drafts": 2, "guidance_tokens": 4, "step_tokens": 96}
_CLOSE = 1e-3
"""Nats per token between two float32 implementations."""


async def test_each_step_has_the_numbers_of_a_forward_pass_behind_its_own_prompt_and_chain(
    tmp_path: Path, vllm_pair: VLLMPair
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    problems = benchmarks.load("demo")[:4]
    spec = replace(
        plan(tmp_path / "scripted").spec(),
        params=_PARAMS,
        dataset_hash=dataset_hash(problems),
        num_problems=len(problems),
        samples=2,
        top_p=1.0,
        token_budget=256,
        draft=bundled("demo-draft"),
        target=bundled("demo-target"),
        engine=EngineSpec("vllm", max_context=512),
        prompt_hash=prompts.prompt_hash(),
        concurrency=8,
    )
    run = RunFolder(tmp_path / spec.run_id)
    run.create(spec, problems, assign_to_shards(units(spec, problems), 1))
    derived.ask_for_logprobs(run)
    part = RunPart(run.path, [0])
    part.kv_bytes = vllm_pair.kv_bytes
    part.needs = vllm_pair.served(part.needs)
    await part.work(vllm_pair.pool, None)
    path = models.resolve("demo-target").path_or_hub_id
    reference: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    rows = {(row["sample_id"], row["step_index"]): row for row in rows_of(run)}
    by_id = {problem.id: problem for problem in problems}
    authors = set()
    for record in counting_records(run, ["problem_id", "target_prompt", "steps"], failed=False):
        prompt, text = prompts.opening(vllm_pair.target.tokenizer, by_id[str(record["problem_id"])])
        assert text == record["target_prompt"], "the chain is read behind the prompt that it was written behind"
        steps = record["steps"]
        ids = [*prompt, *(token for step in steps for token in step["token_ids"])]
        with torch.inference_mode():
            known = reference(torch.tensor([ids])).logits[0].log_softmax(-1).tolist()
        ends = list(accumulate((len(step["token_ids"]) for step in steps), initial=len(prompt)))
        for number, (step, start) in enumerate(zip(steps, ends, strict=False)):
            row, own = rows.pop((record["sample_id"], number)), step["num_tokens"] - (step["finish"] == "eos")
            if own != len(step["token_ids"]):
                continue  # the harness added text; what counts then is tested in test_chain_likelihood
            authors.add(step["author"])
            expected = [known[place - 1][ids[place]] for place in range(start, start + own)]
            assert row["num_tokens"] == own
            assert row["logprob"] == pytest.approx(sum(expected), abs=_CLOSE * max(own, 1))
            assert row["lowest_logprob"] == pytest.approx(min(expected), abs=10 * _CLOSE)
    assert not rows
    assert authors == {"draft", "target"}
