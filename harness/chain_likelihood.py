"""How probable a finished chain is to the target: the log-probability of each accepted step given all before it.

The chain is read as the target would have read it while it wrote alone: its own prompt, without the explanations that a
judge is given, then every accepted step in its own token ids (`ModelContext`). One request for the whole chain gives
the log-probability of every token under the target's own distribution, at temperature 1 and before any truncation. Only
tokens that a model generated count: text that the harness added (the bridge to the answer, a closing `</think>`) was
nobody's choice. The end-of-sequence token is not part of a chain and does not count either.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engine import Engine, Role, Tokenizer
from harness.model_context import ModelContext
from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.trace import Step

VERSION = 1
"""Version of what is counted, and in which prompt: another one gives other numbers."""


@dataclass(frozen=True, slots=True)
class StepLikelihood:
    """The log-probability of one step's generated tokens, as the target's tokenizer splits them."""

    num_tokens: int
    """Tokens that were read: fewer than the step has where the target's context ends in it."""
    logprob: float | None
    """Sum over these tokens (nats); None where the engine's number for one of them is not finite."""
    lowest_logprob: float | None
    """That of the least probable token (nats); None without a token, or where the sum is None."""


@dataclass(frozen=True, slots=True)
class ReadChain:
    """A stored chain in the target's token ids."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    """The whole chain behind the prompt."""
    generated: tuple[tuple[int, int], ...]
    """For each step, where its generated tokens begin and end among `ids`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A model that read or wrote a stored chain: all that is needed of it is its tokenizer."""

    tokenizer: Tokenizer


def read_chain(
    problem: Problem, steps: Sequence[Step], tokenizers: Mapping[Role, Tokenizer], wording: Prompts = BUILT_IN
) -> ReadChain:
    """Return a chain as the target reads it. `tokenizers`: of the target and of every author of a step, by role."""
    context = ModelContext(Reading(tokenizers["target"]), problem, wording)
    start, places = len(context.ids), []
    for step in steps:
        author, before = tokenizers[step.author], len(context.ids)
        context.append(step.token_ids, step.text, Reading(author))
        first, last = _generated(step, context.ids[before:], author, tokenizers["target"], wording)
        places.append((before - start + first, before - start + last))
    return ReadChain(tuple(context.ids[:start]), tuple(context.ids[start:]), tuple(places))


async def step_likelihoods(engine: Engine, chain: ReadChain) -> list[StepLikelihood]:
    """Return the likelihood of each step, in one request for the whole chain.

    An engine may compute a long chain in several passes. What lies beyond the engine's context is not read: of a chain
    that fills it, the last token. Raises EngineError.
    """
    room = engine.context_tokens - 1 - len(chain.prompt)
    ids = chain.ids[: max(0, room)]
    reply = await engine.log_probabilities(chain.prompt, ids) if ids else None
    logprobs = reply.token_logprobs if reply else ()
    return [_of_step(logprobs[first:last]) for first, last in chain.generated]


def _of_step(logprobs: Sequence[float]) -> StepLikelihood:
    if not all(map(math.isfinite, logprobs)):
        return StepLikelihood(len(logprobs), None, None)
    known = [min(0.0, logprob) for logprob in logprobs]  # rounding makes a certain token's a little positive
    return StepLikelihood(len(known), math.fsum(known), min(known, default=None))


def _generated(
    step: Step, ids: Sequence[int], author: Tokenizer, target: Tokenizer, wording: Prompts
) -> tuple[int, int]:
    """Return where among the target's ids of a step what its author generated begins and ends."""
    before, behind = _added_texts(step, author, wording)
    if not before and not behind:
        return 0, len(ids)

    def num_characters(count: int) -> int:
        return len(target.decode(ids[:count]))

    counts = range(len(ids) + 1)
    first = bisect_right(counts, len(before), key=num_characters) - 1 if before else 0
    last = bisect_left(counts, num_characters(len(ids)) - len(behind), key=num_characters) if behind else len(ids)
    return first, max(first, last)


def _added_texts(step: Step, author: Tokenizer, wording: Prompts) -> tuple[str, str]:
    """Return the text at the beginning and at the end of a step that the harness added.

    The step says how many tokens its author generated; the ids that it holds beyond these were added.
    """
    num_added = len(step.token_ids) - (step.num_tokens - (step.finish == "eos"))
    own_text, bridge, separator = author.decode(step.token_ids), author.thought.closing, wording.step_separator
    behind = ""
    if step.text.endswith(bridge) and not own_text.endswith(bridge):
        return "", bridge  # a plain author, whose own ids have no `</think>`
    if num_added <= 0:
        return "", ""
    if step.text.endswith(bridge):
        behind = bridge
    elif step.text.endswith(separator) and step.finish != "stop" and not step.text.startswith(wording.answer_bridge):
        behind = separator  # see `kept_open`
    num_before = num_added - len(author.encode(behind)) if behind else num_added
    return author.decode(step.token_ids[: max(0, num_before)]), behind
