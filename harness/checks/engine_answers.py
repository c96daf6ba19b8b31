"""Checks of real engines on this machine.

`python -m harness.doctor --engines` runs each check in a separate process: engines start, every kind of call works,
verdicts agree with transformers, a growing chain reuses the prefix cache, and token-level speculation is lossless.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal, cast

import psutil

from harness import prompts
from harness.engine import Choice, Completion, Engine, EngineError, Generation, Likelihood, Role, Sampling
from harness.engines import registry
from harness.engines.registry import open_engines
from harness.engines.settings import Device, EngineSettings, pair_settings
from harness.engines.speculation import DEFAULT_TOKENS, Proposer, Speculation, unsupported_reason
from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.settings.roles import DataType, ModelSettings
from harness.sizing.card_plan import DoesNotFit, ModelFiles, RunSizing, chosen_here
from harness.weights import models

_Question = tuple[list[int], tuple[int, ...]]
"""Prompt ids and option ids."""
Value = float | int | str | None
Relation = Literal["<", "<=", ">=", "="]
_CANDIDATES = 3
_CONTEXT_TOKENS = 1024
_IN_FLIGHT = 64
_STEP_TOKENS = 24
_LIKELY = 0.01
"""Minimum probability of options compared in bfloat16. Log-probabilities of less likely options are large in absolute
value, so their rounding errors reach 0.06."""


class NotPossible(Exception):
    """A check is not possible here; the message is the reason."""


@dataclass(frozen=True)
class Measured:
    """One value measured by a check."""

    name: str
    value: Value
    unit: str = ""
    relation: Relation | None = None
    """Required relation of the value to `bound`; None: the value is only reported."""
    bound: Value = None

    @property
    def is_met(self) -> bool:
        """Whether the value has the required relation to `bound`; True if none is required."""
        value, bound = self.value, self.bound
        if self.relation is None or self.relation == "=":
            return self.relation is None or value == bound
        if not isinstance(value, int | float) or not isinstance(bound, int | float):
            return False
        return {"<": value < bound, "<=": value <= bound, ">=": value >= bound}[self.relation]

    def __str__(self) -> str:
        goal = "" if self.relation is None else f" ({self.relation} {_shown(self.bound)})"
        return f"{self.name} {_shown(self.value)}{self.unit and ' ' + self.unit}{goal}"


@dataclass(frozen=True)
class Machine:
    """Engines and models to check, as plain data for the check's process."""

    kind: str
    device: Device
    draft: ModelFiles | None
    """None for scripted engines, which use no model."""
    target: ModelFiles | None
    work: str
    """Folder for logs and run folders."""
    starts: list[float] = field(default_factory=list)
    """Duration of each start of the engines, in seconds."""

    @property
    def can(self) -> registry.Capabilities:
        return registry.capabilities(self.kind)

    @property
    def is_large(self) -> bool:
        """Whether the machine is fast enough for more than the minimum number of problems and samples."""
        return self.can.has_processes and self.device == "gpu"

    @property
    def problems(self) -> list[Problem]:
        """Bundled problems, which need no network."""
        return benchmarks.load("demo")[: 24 if self.is_large else 6]


@contextlib.asynccontextmanager
async def _opened(
    machine: Machine,
    roles: tuple[Role, ...] = ("draft", "target"),
    *,
    dtype: DataType = "auto",
    proposing: Proposer | None = None,
) -> AsyncIterator[Mapping[Role, Engine]]:
    """Open engines with a run's tensor-parallel sizes and memory. Raises DoesNotFit, EngineDied, ValueError."""
    named: dict[Role, ModelFiles | None] = {role: getattr(machine, role) for role in roles}
    tokens = DEFAULT_TOKENS[proposing] if proposing else 0
    speculator = machine.draft if proposing == "draft" else None
    sizing = RunSizing(
        {role: model for role, model in named.items() if model is not None},
        context_tokens=_CONTEXT_TOKENS,
        sample_tokens=dict.fromkeys(roles, _CONTEXT_TOKENS),
        concurrency=_IN_FLIGHT,
        candidates=_CANDIDATES,
        settings={role: ModelSettings(dtype=dtype) for role in roles},
        speculator=speculator,
        speculative_tokens=tokens,
    )
    weights = (speculator.path, speculator.revision) if speculator else (None, None)
    settings = pair_settings(
        machine.kind,
        roles,
        dtype=dtype,
        max_context=_CONTEXT_TOKENS,
        models=chosen_here(machine.kind, sizing),
        concurrency=_IN_FLIGHT,
        candidates=_CANDIDATES,
        device=machine.device,
        speculation=Speculation(proposing, tokens, *weights) if proposing else None,
    )
    begun, logs = time.monotonic(), Path(machine.work) / f"engines-{os.getpid()}-{len(machine.starts)}"
    async with open_engines(named.get("draft"), named["target"], roles, settings, logs) as engines:
        machine.starts.append(time.monotonic() - begun)
        yield engines


async def check_start(machine: Machine) -> list[Measured]:
    """Open both engines in one call, which starts them one after the other; measure their caches and processes."""
    async with _opened(machine) as engines:
        found = [Measured("engines", len(engines), "", "=", 2)]
        if machine.can.has_processes:
            for role, engine in engines.items():
                found.append(Measured(f"KV tokens, {role}", engine.kv_tokens, "", ">=", engine.context_tokens))
            found.append(Measured("processes", len(engine_processes(os.getpid())), "", ">=", 2))
        return found


def engine_processes(worker: int) -> list[psutil.Process]:
    """Return the child processes of a worker that belong to vLLM engines."""
    return [child for child in psutil.Process(worker).children(recursive=True) if child.name().startswith("VLLM")]


async def check_calls(machine: Machine) -> list[Measured]:
    """Make every kind of call: candidates, log-probabilities, entropies, a verdict, and scoring a given text."""
    unanswered = []
    async with _opened(machine) as engines:
        draft, target = engines["draft"], engines["target"]
        opening, own = (prompts.opening(one.tokenizer, machine.problems[0])[0] for one in (draft, target))
        question = prompts.score_question(target.tokenizer)
        several = Sampling(_STEP_TOKENS, 0.6, 0.95, (prompts.STEP_END,), n=_CANDIDATES, mean_logprob=True)
        calls: Mapping[str, Callable[[], Awaitable[Generation | Choice | Likelihood]]] = {
            "candidates": lambda: draft.generate(opening, several),
            "text": lambda: target.generate(own, Sampling(_STEP_TOKENS)),
            "log-probabilities": lambda: target.generate(own, Sampling(_STEP_TOKENS, token_logprobs=True)),
            "entropies": lambda: draft.generate(opening, Sampling(_STEP_TOKENS, entropies=True)),
            "verdict": lambda: target.choose([*own, *question.ids], question.option_ids),
            "given text": lambda: target.log_probabilities(own, question.ids),
        }
        for name, call in calls.items():
            try:
                await call()
            except EngineError as error:
                unanswered.append(f"{name} ({type(error).__name__}: {error})")
    found = [Measured("answered", len(calls) - len(unanswered), f"of {len(calls)}", "=", len(calls))]
    return [*found, Measured("unanswered", "; ".join(unanswered))] if unanswered else found


async def check_verdicts(machine: Machine, *, in_float32: bool = False) -> list[Measured]:
    """Compare the target's verdicts with those of transformers, in the runs' data type or in float32."""
    if machine.target is None:
        raise NotPossible("scripted engines use no model")
    if machine.can.is_reference and machine.device == "cpu":
        raise NotPossible("this engine is the reference")
    dtype: DataType = "float32" if in_float32 else _dtype_of_runs(machine, machine.target)
    if in_float32 and _dtype_of_runs(machine, machine.target) == "float32":
        raise NotPossible("on this machine, runs use float32, which the other verdict check covers")
    roles: tuple[Role, ...] = ("target",) if in_float32 else ("draft", "target")
    try:
        async with _opened(machine, roles, dtype=dtype) as engines:
            target = engines["target"]
            asked = await _questions(engines.get("draft", target), machine.problems)
            given = await asyncio.gather(*(target.choose(*question) for question in asked))
    except DoesNotFit as problem:
        if not in_float32:
            raise
        raise NotPossible(str(problem)) from problem
    expected = await _reference(machine, machine.target, dtype, asked)
    is_known = machine.target.name in models.PAIR
    return [
        Measured("data type", dtype),
        *deviations(given, expected, is_float32=dtype == "float32"),
        Measured("lowest option mass", min(choice.mass for choice in given), "", ">=" if is_known else None, 0.9),
    ]


async def _questions(writer: Engine, problems: Sequence[Problem]) -> list[_Question]:
    """Return four prompts with options per problem: score, short score, choice of steps, choice of chains."""
    sampling = Sampling(48, temperature=0.6, stop=(prompts.STEP_END,), seed=1, n=_CANDIDATES)
    tokenizer = writer.tokenizer
    openings = [prompts.opening(tokenizer, problem)[0] for problem in problems]
    replies = await asyncio.gather(*(writer.generate(opening, sampling) for opening in openings))
    asked = []
    for problem, opening, reply in zip(problems, openings, replies, strict=True):
        texts = [completion.text for completion in reply.completions]
        chain = [*opening, *reply.completions[0].token_ids]
        for context, question in (
            (chain, prompts.score_question(tokenizer)),
            (chain, prompts.short_score_question(tokenizer)),
            (opening, prompts.step_choice_question(tokenizer, texts)),
            ([], prompts.chain_choice_question(tokenizer, problem, texts, may_reject=True)),
        ):
            asked.append(([*context, *question.ids], tuple(question.option_ids)))
    return asked


def deviations(given: Sequence[Choice], expected: Sequence[Choice], *, is_float32: bool) -> list[Measured]:
    """Compare log-probabilities with the reference, in nats."""
    distances = [
        (abs(mine - its), probability)
        for a, b in zip(given, expected, strict=True)
        for mine, its, probability in zip(a.logprobs, b.logprobs, b.probabilities, strict=True)
    ]
    likely = fmean(distance for distance, probability in distances if probability >= _LIKELY)
    largest = max(distance for distance, _ in distances)
    same = sum(a.best == b.best for a, b in zip(given, expected, strict=True))
    return [
        Measured("mean |Δ|, likely options", likely, "", None if is_float32 else "<", 0.05),
        Measured("largest |Δ|", largest, "", "<" if is_float32 else None, 1e-3),
        Measured("same decision", same, f"of {len(given)}"),
    ]


async def _reference(machine: Machine, model: ModelFiles, dtype: str, asked: Sequence[_Question]) -> list[Choice]:
    """Compute the choices with transformers: in `dtype` or, to check transformers itself, in float32 on the CPU."""
    from harness.engines.transformers import TransformersEngine

    settings = EngineSettings("transformers", machine.device, dtype, max_context=_CONTEXT_TOKENS)
    if machine.can.is_reference:
        settings = replace(settings, device="cpu", dtype="float32")
    reference = await TransformersEngine.start(model.path, "target", settings, revision=model.revision)
    try:
        return [await reference.choose(*question) for question in asked]
    finally:
        await reference.close()


def _dtype_of_runs(machine: Machine, model: ModelFiles) -> DataType:
    from transformers import AutoConfig

    chosen = pair_settings(machine.kind, ("target",), device=machine.device)["target"].dtype
    if chosen != "auto":
        return cast(DataType, chosen)
    config = AutoConfig.from_pretrained(model.path, revision=model.revision, trust_remote_code=False)
    return cast(DataType, str(config.get_text_config().dtype).removeprefix("torch."))


async def check_prefix_cache(machine: Machine) -> list[Measured]:
    """Grow chains with a verdict on each step, and compare prefix-cache hits with the maximum possible hits.

    Possible hits are the tokens of whole blocks that the same engine computed earlier, except the prompt's last token.
    """
    if not machine.can.has_prefix_cache:
        raise NotPossible(f"the {machine.kind} engine has no prefix cache")
    block_tokens = 32 if machine.device == "cpu" else 16
    reusable = reused = 0

    def count(prompt: Sequence[int], num_known: int, num_cached: int) -> None:
        nonlocal reusable, reused
        could_be = min(num_known, len(prompt) - 1) // block_tokens * block_tokens
        reusable, reused = reusable + could_be, reused + min(could_be, num_cached)

    async with _opened(machine) as engines:
        draft, target = engines["draft"], engines["target"]
        question = prompts.score_question(target.tokenizer)
        for problem in machine.problems[:4]:
            chain, _ = prompts.opening(draft.tokenizer, problem)
            written = judged = 0
            for step in range(6):
                reply = await draft.generate(chain, Sampling(48, temperature=0.6, seed=step))
                count(chain, written, reply.cached_tokens)
                chain = [*chain, *reply.completions[0].token_ids]
                written = len(chain) - 1  # the last token was sampled but not computed
                verdict = await target.choose([*chain, *question.ids], question.option_ids)
                count([*chain, *question.ids], judged, verdict.cached_tokens)
                judged = len(chain)
    return [Measured("cached share of reusable tokens", reused / max(1, reusable), f"of {reusable} tokens", ">=", 0.9)]


async def check_lossless(machine: Machine, proposing: Proposer) -> list[Measured]:
    """Compare greedy generations in float32 with and without speculation.

    If vLLM counts proposed tokens, some must be accepted and some rejected; otherwise nothing was tested.
    """
    if reason := unsupported_reason(machine.kind, machine.device, 0.0, proposing):
        raise NotPossible(reason)
    written: list[list[Completion]] = []
    for proposer in (None, proposing):
        async with _opened(machine, ("target",), dtype="float32", proposing=proposer) as engines:
            openings = _openings(engines["target"], machine.problems)
            replies = await asyncio.gather(*(engines["target"].generate(ids, Sampling(64)) for ids in openings))
            written.append([reply.completions[0] for reply in replies])
    plain, now = written
    changed = sum(a.token_ids != b.token_ids for a, b in zip(plain, now, strict=True))
    found = [Measured("changed", changed, f"of {len(now)}", "=", 0)]
    if proposed := sum(completion.proposed_tokens or 0 for completion in now):
        accepted = sum(completion.accepted_tokens or 0 for completion in now)
        found.append(Measured("accepted tokens", accepted, "", ">=", 1))
        found.append(Measured("rejected tokens", proposed - accepted, "", ">=", 1))
    return found


def _openings(engine: Engine, problems: Sequence[Problem]) -> list[list[int]]:
    """Return prompts; in every other one, the words are shuffled.

    On the unchanged bundled problems, the bundled draft initially agrees with the target, so nothing would be rejected.
    """
    openings, random = [], Random(0)
    for number, problem in enumerate(problems):
        words = problem.text.split()
        random.shuffle(words)
        ids, _ = prompts.opening(engine.tokenizer, problem)
        openings.append(engine.tokenizer.encode(" ".join(words)) if number % 2 else ids)
    return openings


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "unknown" if value is None else str(value)
