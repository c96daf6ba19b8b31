"""Scores of a finished chain: rewards of its steps by a process reward model, and how probable it is to the target.

Rewards: how good is a step, given the problem and the steps before it? Stored steps and candidates are scored after a
run; no method sees the scores. The prompt format is Math-Shepherd's (Wang et al., arXiv 2312.08935, section 3), which
SpecReason (section 5.5) and SpecCoT (appendix A.1) measure with: a tag ends each step, and after the tag the model says
"+" or "-". That is one forward pass over two options, which any engine can do.

Likelihood: the log-probability of each accepted step given all before it. The chain is read as the target would have
read it while it wrote alone: its own prompt, without the explanations that a judge is given, then every accepted step
in its own token ids (`ModelContext`). One request for the whole chain gives the log-probability of every token under
the target's own distribution, at temperature 1 and before any truncation. Only tokens that a model generated count:
text that the harness added (the bridge to the answer, a closing `</think>`) was nobody's choice. The end-of-sequence
token is not part of a chain and does not count either.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.chain.chain import ModelContext
from harness.engine import Engine, Finish, Role, Tokenizer
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts
from harness.trace import Step
from harness.weights.tokenizer import verdict_options

REWARDS_VERSION = 2
"""Version of the prompt format: another format gives other scores. 1 showed halves of steps."""


@dataclass(frozen=True)
class Written:
    """A piece of a chain as it is stored: a step, which may begin or end inside a step of the text."""

    text: str
    finish: Finish


@dataclass(frozen=True)
class WholeSteps:
    """The whole steps of the text that one stored piece belongs to."""

    before: tuple[str, ...]
    """The steps before it."""
    begun: str
    """The beginning of the piece's first step, in pieces before it; empty where the piece begins with a step."""
    rest: str
    """The end of its last step, in pieces behind it; empty where the piece, or the chain, ends with a step."""


def whole_steps(pieces: Sequence[Written], separator: str) -> list[WholeSteps]:
    """Return for each piece of a chain the whole steps that a reward model is to be shown.

    Guidance is a fixed number of tokens and a step may reach its limit: both may end in the middle of a step, which
    the next piece completes.
    """
    before: list[str] = []
    found: list[WholeSteps] = []
    begun = ""
    for number, piece in enumerate(pieces):
        joined = begun + piece.text
        unfinished = _unfinished(joined, piece.finish, separator)
        rest = _rest(unfinished, pieces[number + 1 :], separator) if unfinished else ""
        found.append(WholeSteps(tuple(before), begun, rest))
        if len(unfinished) < len(joined):
            before.append(joined[: len(joined) - len(unfinished)])
        begun = unfinished
    return found


def _unfinished(text: str, finish: Finish, separator: str) -> str:
    """Return the beginning of the unfinished step that a text ends in; empty where it ends with a whole step."""
    _, found, tail = text.rpartition(separator)
    return tail if tail.strip() and (finish == "length" or (finish == "stop" and found)) else ""


def _rest(unfinished: str, behind: Sequence[Written], separator: str) -> str:
    """Return what completes an unfinished step: the text behind it up to the first separator."""
    step = unfinished
    for piece in behind:
        head, found, _ = (step + piece.text).partition(separator)
        step = head + found
        if found or piece.finish != "length":
            break
    return step.removeprefix(unfinished)


_TAG, _GOOD, _BAD = "ки", "+", "-"
"""What ends a step, a word that no solution contains, and the two judgments behind it, as Math-Shepherd has them."""


def judgment_ids(tokenizer: Tokenizer, problem: str, steps: Sequence[str]) -> list[int]:
    """Return the ids of the prompt whose next token judges the last of these steps."""
    ids, _ = verdict_options(tokenizer, _TAG, (_GOOD, _BAD))
    behind_tag = ids[len(tokenizer.encode_template(_TAG)) :]  # often none
    return [*tokenizer.opening, *tokenizer.encode(reward_prompt(problem, steps)), *behind_tag]


def reward_prompt(problem: str, steps: Sequence[str]) -> str:
    """Return the problem and its steps, each with its tag; a tag that a model wrote itself is removed."""
    texts = [" ".join(step.replace(_TAG, " ").split()) for step in steps]
    return f"{problem} " + "\n".join(f"Step {number}: {text} {_TAG}" for number, text in enumerate(texts, 1))


class RewardModel:
    """An engine that scores the quality of steps."""

    def __init__(self, engine: Engine) -> None:
        """Raises ValueError where the tokenizer cannot tell the two judgments apart."""
        self._engine = engine
        _, self._options = verdict_options(engine.tokenizer, _TAG, (_GOOD, _BAD))

    @property
    def context_tokens(self) -> int:
        """Longest judgment plus its one token."""
        return self._engine.context_tokens

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Return the probability, from 0 to 1, that the last of the steps is good. Raises EngineError."""
        ids = judgment_ids(self._engine.tokenizer, problem, steps)
        choice = await self._engine.choose(ids, self._options)
        return choice.probabilities[0]


LIKELIHOOD_VERSION = 1
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


def read_chain(
    problem: Problem, steps: Sequence[Step], tokenizers: Mapping[Role, Tokenizer], wording: Prompts = BUILT_IN
) -> ReadChain:
    """Return a chain as the target reads it. `tokenizers`: of the target and of every author of a step, by role."""
    context = ModelContext(tokenizers["target"], problem, wording)
    start, places = len(context.ids), []
    for step in steps:
        author, before = tokenizers[step.author], len(context.ids)
        context.append(step.token_ids, step.text, author)
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
