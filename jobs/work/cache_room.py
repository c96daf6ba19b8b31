"""What a sample of a run holds in the KV cache of each engine, for admission."""

from __future__ import annotations

from collections.abc import Mapping

from harness.engine import Engine, Role
from harness.engines.admission import Cache
from harness.methods import Method
from harness.trace import Trace

_STEP_TOKENS = 128
"""Likely length of a step until some have been seen; most are shorter."""
_SELECTION_SHARE = 0.1
"""Upper estimate of the share of a sample's time that the choice among whole chains takes. Nothing of that prompt is
read again, so that only as much of it counts."""


def caches(method: Method, engines: Mapping[Role, Engine], token_budget: int) -> dict[str, Cache]:
    """Return every engine's KV cache, and what is known of its use before any step has been seen."""
    used: dict[str, Cache] = {}
    for role, engine in engines.items():
        if not method.drafts_whole_chains:
            at_once = method.parallel if role == "draft" else max(method.parallel, method.target_parallel)
            used[role] = Cache(
                engine.kv_tokens, step_tokens=float(at_once * _STEP_TOKENS) if len(method.roles) > 1 else 0.0
            )
        elif role == "draft":
            used[role] = Cache(engine.kv_tokens, width=method.parallel)
        else:
            used[role] = Cache(engine.kv_tokens, step_tokens=_SELECTION_SHARE * method.verdict_tokens(token_budget) / 2)
    return used


def step_tokens(method: Method, trace: Trace, prompt_tokens: Mapping[str, int]) -> dict[str, int]:
    """Return by role the tokens that the last step of a trace held besides the prompt and the chain before it.

    That is what was written for the step (the accepted candidate counts as chain only from the next step on), and in
    the cache of a model that judges the question of the verdict.
    """
    number, step = len(trace.steps) - 1, trace.steps[-1]
    chain_tokens = trace.emitted_tokens - step.num_tokens
    written: dict[Role, int] = {"draft": 0, "target": 0}
    asked: dict[Role, int] = dict.fromkeys(method.roles, 0)
    for call in reversed(trace.calls):
        if call.step < number:
            break
        if call.purpose == "verdict":
            # Verdicts asked in parallel share the chain, which the prefix cache holds once.
            context_tokens = prompt_tokens.get(call.model, 0) + chain_tokens
            asked[call.model] = max(asked.get(call.model, 0), call.prompt_tokens - call.n * context_tokens)
        else:
            written[call.model] += call.output_tokens
    if method.drafts_whole_chains:
        choice = asked.get("target", 0)
        return {"target": int(_SELECTION_SHARE * choice)} if choice else {}
    return {role: written.get(role, 0) + asked.get(role, 0) for role in dict.fromkeys([*written, *asked])}
