"""Evaluation of SpecCoT and SpecReason with the pair on held-out problems, using the harness's code and prompts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Literal

from scipy.stats import t as student_t
from transformers import LlamaForCausalLM

from harness.chain import Limits
from harness.engine import Role
from harness.methods import Method
from harness.methods.speccot import SpecCoT
from harness.methods.specreason import SpecReason
from harness.methods.vanilla import Vanilla
from harness.prompts import BUILT_IN, Prompts, demo_prompts
from harness.sample import run_sample
from harness.trace import Trace
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair.batch_engine import BatchEngine
from tools.demo_pair.evaluation import TEMPERATURE
from tools.demo_pair.stories import LEVELS, Story

THRESHOLDS = (3.0, 5.0, 7.0, 9.0)
_BUILT_IN_PROMPTS = "speccot, built-in prompts"
_STEP_TOKENS, _TOKEN_BUDGET = 96, 512


@dataclass(frozen=True)
class MethodOutcome:
    """Results of a method with the pair, one sample per problem."""

    method: str
    temperature: float
    solved: float
    """Share of solved problems."""
    difference: float
    """`solved` minus the share that the target alone solves, on the same problems."""
    margin: float
    """Half the width of the difference's 95 % interval, by Student's t over the problems' differences."""
    draft_share: float
    """Share of the emitted tokens that the draft wrote."""
    fallback: float
    """Share of the draft's steps that were rejected."""
    fallback_by_level: dict[str, float]
    solved_by_level: dict[str, float]


def methods() -> dict[str, tuple[Method, float]]:
    """Return the evaluated methods by name, each with its temperature."""
    speccot = SpecCoT(drafts=3, guidance_tokens=4, step_tokens=_STEP_TOKENS)
    evaluated: dict[str, tuple[Method, float]] = {}
    for temperature in (0.0, TEMPERATURE):
        evaluated[f"target alone, T = {temperature:g}"] = Vanilla(model="target"), temperature
        evaluated[f"speccot, T = {temperature:g}"] = speccot, temperature
        evaluated[f"specreason, T = {temperature:g}"] = SpecReason(step_tokens=_STEP_TOKENS), temperature
    evaluated["speccot, separate verdicts"] = replace(speccot, verdict="separate"), TEMPERATURE
    evaluated[_BUILT_IN_PROMPTS] = speccot, TEMPERATURE
    evaluated["specreason, average score"] = SpecReason(step_tokens=_STEP_TOKENS, score="average"), TEMPERATURE
    for threshold in THRESHOLDS:
        if threshold != SpecReason.threshold:
            method = SpecReason(threshold=threshold, step_tokens=_STEP_TOKENS)
            evaluated[f"specreason, threshold {threshold:g}"] = method, TEMPERATURE
    return evaluated


def traces(
    method: Method,
    models: dict[Literal["draft", "target"], LlamaForCausalLM],
    tokenizer: HFTokenizer,
    problems: Sequence[Story],
    temperature: float,
    seed: int,
    wording: Prompts,
) -> list[Trace]:
    """Return the trace of one sample of each problem."""

    async def run() -> list[Trace]:
        engines: dict[Role, BatchEngine] = {role: BatchEngine(model, tokenizer) for role, model in models.items()}
        used = {role: engines[role] for role in method.roles}
        limits = Limits(temperature, 1.0, _TOKEN_BUDGET)
        blank = [Trace(f"{seed}/{i}", str(i), 0, seed + 1000 * i) for i in range(len(problems))]
        samples = [
            run_sample(story.problem, method, used, trace, limits, wording=wording)
            for story, trace in zip(problems, blank, strict=True)
        ]
        return list(await asyncio.gather(*samples))

    return asyncio.run(run())


def outcome(
    name: str, temperature: float, problems: Sequence[Story], run: Sequence[Trace], alone: Sequence[Trace]
) -> MethodOutcome:
    """Return the results of a method's traces; `alone`: the target-only traces on the same problems."""
    solved, target = _solved(problems, run), _solved(problems, alone)
    differences = [float(a) - float(b) for a, b in zip(solved, target, strict=True)]
    n = len(problems)
    spread = stdev(differences) / math.sqrt(n) if n > 1 else 0.0
    tokens = [(step.author, step.num_tokens) for trace in run for step in trace.steps]
    by_level = {level: [i for i, story in enumerate(problems) if story.level == level] for level in LEVELS}
    return MethodOutcome(
        method=name,
        temperature=temperature,
        solved=mean(solved),
        difference=mean(differences),
        margin=float(student_t.ppf(0.975, n - 1)) * spread if n > 1 else 0.0,
        draft_share=sum(count for author, count in tokens if author == "draft") / max(1, sum(c for _, c in tokens)),
        fallback=_fallback(run),
        fallback_by_level={level: _fallback([run[i] for i in at]) for level, at in by_level.items()},
        solved_by_level={level: mean([solved[i] for i in at]) for level, at in by_level.items() if at},
    )


def _solved(problems: Sequence[Story], run: Sequence[Trace]) -> list[bool]:
    return [trace.output_text.endswith(story.conclusion) for story, trace in zip(problems, run, strict=True)]


def _fallback(run: Sequence[Trace]) -> float:
    roles = [step.role for trace in run for step in trace.steps if step.role in {"draft", "fallback"}]
    return sum(role == "fallback" for role in roles) / max(1, len(roles))


def outcomes(
    draft: LlamaForCausalLM,
    target: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    problems: Sequence[Story],
    seed: int,
) -> list[MethodOutcome]:
    """Return the results of each method, compared with the target alone at the same temperature."""
    results: list[MethodOutcome] = []
    alone: dict[float, list[Trace]] = {}
    for name, (method, temperature) in methods().items():
        wording = BUILT_IN if name == _BUILT_IN_PROMPTS else demo_prompts()
        run = traces(method, {"draft": draft, "target": target}, tokenizer, problems, temperature, seed, wording)
        alone.setdefault(temperature, run)
        results.append(outcome(name, temperature, problems, run, alone[temperature]))
    return results
