"""Checks of single calls: every purpose, verdicts against a reference, the prefix cache, a mixed load."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean

from harness import prompts
from harness.acceptance.outcome import CheckFailed, Goal, Measurement, NotApplicable
from harness.acceptance.questions import Asked, questions
from harness.acceptance.session import CANDIDATES, PAIR, PLAIN, Session
from harness.candidates import as_candidates
from harness.chain import Chain, Limits, Stop
from harness.engine import Choice, Engine, EngineDied, EngineError, Generation, Role, Sampling, VerdictUnavailable
from harness.problems.problem import Problem
from harness.recording import Model, recording_models
from harness.trace import Trace

_STEP_TOKENS = 24
_LIMITS = Limits(temperature=0.6, top_p=1.0, token_budget=256)
_LIKELY = 0.01
"""Options of at least this probability count where numbers are rounded to bfloat16: less likely ones, whose
log-probabilities are large, are rounded by up to 0.06 each."""
_GOAL_ROUNDED, _GOAL_FLOAT32 = Goal("<", 0.05), Goal("<", 1e-3)
_GOAL_MASS = Goal(">=", 0.9)

Act = Callable[[Chain, Model, Model], Awaitable[object]]


async def _lookahead(chain: Chain, draft: Model, target: Model) -> None:
    ids, _ = prompts.opening(draft.tokenizer, chain.problem)
    draft.begin(ids, Sampling(_STEP_TOKENS, temperature=0.6), step=1)
    draft.discard()
    await draft.finish_discarded()


async def _choice(chain: Chain, draft: Model, target: Model) -> None:
    await chain.choose(target, as_candidates(await chain.propose(draft, CANDIDATES, max_tokens=_STEP_TOKENS)))


async def _separate_scores(chain: Chain, draft: Model, target: Model) -> None:
    proposed = await chain.propose(draft, CANDIDATES, max_tokens=_STEP_TOKENS)
    await chain.score_each(target, as_candidates(proposed), proposed, draft)


async def _chain_choice(chain: Chain, draft: Model, target: Model) -> None:
    proposed = await chain.propose(draft, CANDIDATES, max_tokens=_STEP_TOKENS)
    await chain.choose_chain(target, as_candidates(proposed), may_reject=True)


async def _score(chain: Chain, draft: Model, target: Model) -> None:
    [proposed] = await chain.propose(draft, 1, max_tokens=_STEP_TOKENS)
    await chain.score(target, proposed, draft)


ACTS: Mapping[str, Act] = {
    "guidance": lambda chain, draft, target: chain.write(target, "guidance", max_tokens=8, stop=()),
    "draft": lambda chain, draft, target: chain.propose(draft, CANDIDATES, max_tokens=_STEP_TOKENS),
    "verdict (score)": _score,
    "verdict (separate scores)": _separate_scores,
    "verdict (choice)": _choice,
    "verdict (choice of chains)": _chain_choice,
    "fallback": lambda chain, draft, target: chain.write(target, "fallback", max_tokens=_STEP_TOKENS),
    "rethink": lambda chain, draft, target: chain.write(target, "rethink", max_tokens=_STEP_TOKENS, stop=()),
    "chain": lambda chain, draft, target: chain.write(target, "chain", max_tokens=_STEP_TOKENS, stop=()),
    "answer": lambda chain, draft, target: chain.answer(target),
    "lookahead": _lookahead,
}
"""How a call of each purpose is made; the purpose is what stands before a parenthesis."""


async def check_purposes(session: Session) -> list[Measurement]:
    """Make a call of every purpose."""
    engines = await session.engines(PAIR)
    return await purposes(engines, session.problems[0])


async def purposes(engines: Mapping[Role, Engine], problem: Problem) -> list[Measurement]:
    """Return how many of the calls were answered, and which were not."""
    unanswered = []
    for name, act in ACTS.items():
        trace = Trace("acceptance", problem.id, 0, seed=1)
        purpose = name.partition(" (")[0]
        try:
            async with recording_models(engines, ("draft", "target"), trace) as models:
                chain = Chain(problem, list(models.values()), trace, _LIMITS, rubric=name.endswith("scores)"))
                with contextlib.suppress(Stop):  # whatever was written, the call was answered
                    await act(chain, models["draft"], models["target"])
        except EngineError as error:
            unanswered.append(f"{name} ({type(error).__name__}: {error})")
            continue
        if not any(c.purpose == purpose and c.output_tokens and c.end_seconds > 0 for c in trace.calls):
            unanswered.append(name)
    return [
        Measurement("answered", len(ACTS) - len(unanswered), f"of {len(ACTS)}"),
        Measurement("unanswered", "; ".join(unanswered) or "none", goal=Goal("=", "none")),
    ]


async def check_verdicts(session: Session) -> list[Measurement]:
    """Compare the pair's verdicts with the reference, in the data type that runs have on this machine."""
    engines = await session.engines(PAIR)
    return await _against_reference(session, PAIR, engines["draft"], engines["target"])


async def check_float32_verdicts(session: Session) -> list[Measurement]:
    """Compare verdicts in float32 with the reference."""
    if session.plan.kind == "transformers" and session.plan.device == "cpu":
        raise NotApplicable("the reference is this engine")
    if session.plain == PAIR:
        raise NotApplicable("the pair computes in float32 here, and its verdicts were compared")
    target = (await session.engines(PLAIN))["target"]
    return await _against_reference(session, PLAIN, target, target)


async def _against_reference(session: Session, name: str, writer: Engine, target: Engine) -> list[Measurement]:
    problems = session.problems[: session.plan.sizes.verdict_problems]
    asked = await questions(writer, problems)
    given = await asyncio.gather(*(target.choose(one.prompt, one.options) for one in asked))
    dtype = _dtype(session, name)
    if session.plan.kind == "transformers" and session.plan.device == "cpu" and dtype == "float32":
        raise NotApplicable("the reference is this engine")
    reference = await _reference(session, name)
    try:
        expected = [await reference.choose(one.prompt, one.options) for one in asked]
    finally:
        await reference.close()
    return [Measurement("data type", dtype), *deviations(given, expected, is_float32=dtype == "float32")]


def deviations(given: Sequence[Choice], expected: Sequence[Choice], *, is_float32: bool) -> list[Measurement]:
    """Return how far log-probabilities (nats) are from those of the reference."""
    pairs = [both for a, b in zip(given, expected, strict=True) for both in zip(a.logprobs, b.logprobs, strict=True)]
    distances = [abs(mine - its) for mine, its in pairs]
    likely = [abs(mine - its) for a, b in zip(given, expected, strict=True) for mine, its, probability
              in zip(a.logprobs, b.logprobs, b.probabilities, strict=True) if probability >= _LIKELY]  # fmt: skip
    same = sum(a.best == b.best for a, b in zip(given, expected, strict=True))
    return [
        Measurement("mean |Δ|, likely options", fmean(likely), goal=None if is_float32 else _GOAL_ROUNDED),
        Measurement("largest |Δ|", max(distances), goal=_GOAL_FLOAT32 if is_float32 else None),
        Measurement("same decision", same, f"of {len(given)}"),
    ]


async def _reference(session: Session, name: str) -> Engine:
    """Return the target on transformers: as the engine computes, or in float32 on the CPU to check transformers."""
    from harness.engines.settings import EngineSettings
    from harness.engines.transformers import TransformersEngine

    own, model = session.prepared(name).settings["target"], session.plan.target
    settings = EngineSettings("transformers", own.device, own.dtype, max_context=own.max_context)
    if session.plan.kind == "transformers":
        settings = EngineSettings("transformers", "cpu", "float32", max_context=own.max_context)
    try:
        return await TransformersEngine.start(model.path, "target", settings, model.revision)
    except EngineDied as death:
        if "out of memory" in str(death):
            raise NotApplicable("the reference does not fit beside the engines; name smaller models") from death
        raise CheckFailed(str(death).splitlines()[0]) from death


def _dtype(session: Session, name: str) -> str:
    """Return the data type that the target computes in."""
    from transformers import AutoConfig

    settings, model = session.prepared(name).settings["target"], session.plan.target
    if settings.dtype != "auto":
        return settings.dtype
    config = AutoConfig.from_pretrained(model.path, revision=model.revision, trust_remote_code=False)
    return str(config.get_text_config().dtype).removeprefix("torch.")


async def check_mixed_load(session: Session) -> list[Measurement]:
    """Ask for many verdicts while many completions are written, all by the target."""
    engines = await session.engines(PAIR)
    asked = await questions(engines["draft"], session.problems[: session.plan.sizes.verdict_problems])
    sizes = session.plan.sizes
    openings = [prompts.opening(engines["target"].tokenizer, problem)[0] for problem in session.problems]
    writers = list(itertools.islice(itertools.cycle(openings), sizes.mixed_writers))
    verdicts = list(itertools.islice(itertools.cycle(asked), sizes.mixed_verdicts))
    return await mixed_load(
        engines["target"], writers, verdicts, sizes.mixed_tokens, is_mass_known=session.plan.is_bundled
    )


async def mixed_load(
    target: Engine, writers: Sequence[Sequence[int]], verdicts: Sequence[Asked], tokens: int, *, is_mass_known: bool
) -> list[Measurement]:
    """Return how many verdicts were unavailable, and the lowest mass of the others."""
    samplings = [Sampling(tokens, temperature=0.6, seed=number) for number in range(len(writers))]
    requests: list[Awaitable[Generation | Choice]] = [
        target.generate(prompt, sampling) for prompt, sampling in zip(writers, samplings, strict=True)
    ]
    requests += [target.choose(one.prompt, one.options) for one in verdicts]
    replies = await asyncio.gather(*requests, return_exceptions=True)
    errors = [reply for reply in replies if isinstance(reply, BaseException)]
    unavailable = sum(isinstance(error, VerdictUnavailable) for error in errors)
    masses = [reply.mass for reply in replies if isinstance(reply, Choice)]
    return [
        Measurement("verdicts", len(verdicts)),
        Measurement("writers", len(writers)),
        Measurement("unavailable", unavailable, goal=Goal("=", 0)),
        Measurement("other errors", len(errors) - unavailable, goal=Goal("=", 0)),
        Measurement("lowest mass", min(masses, default=None), goal=_GOAL_MASS if is_mass_known else None),
    ]
