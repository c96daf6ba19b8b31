"""Scores of a finished chain: step rewards from a process reward model, and the chain's likelihood under the target.

A reward rates a step, given the problem and the previous steps. Stored steps and candidates are scored after a run, so
methods do not see the scores. The prompt format is that of Math-Shepherd (Wang et al., arXiv 2312.08935, section 3),
SpecReason (section 5.5) and SpecCoT (appendix A.1): a tag ends each step, followed by "+" or "-". A reward is the
probability of "+" against "-" in one forward pass, which every engine supports.

Likelihood is the log-probability of each accepted step given all previous text. The target reads the chain as if it had
written it alone: first the target's prompt, without the rubric for verdicts, then every accepted step in the target's
token ids (`ModelContext`). One request for the whole chain returns the log-probability of every token under the
target's distribution, at temperature 1 without truncation. Only generated tokens count: no text added by the harness
(the bridge to the answer, a closing `</think>`), and no end-of-sequence token, which is not part of a chain.
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
"""Version of the prompt format; scores of different versions are not comparable. Version 1 showed unfinished steps."""


@dataclass(frozen=True)
class Written:
    """A stored piece of a chain, which may begin or end in the middle of a step."""

    text: str
    finish: Finish


@dataclass(frozen=True)
class WholeSteps:
    """The whole steps that contain a stored piece of a chain."""

    before: tuple[str, ...]
    """The previous steps."""
    begun: str
    """Text in previous pieces that begins the piece's first step; empty if the piece starts with a step."""
    rest: str
    """Text in later pieces that completes the piece's last step; empty if there is nothing to complete."""


def whole_steps(pieces: Sequence[Written], separator: str) -> list[WholeSteps]:
    """Return, for each piece of a chain, the whole steps to show to a reward model.

    A piece may end in the middle of a step: guidance has a fixed number of tokens, and other pieces may reach the token
    limit of a step. The next pieces then complete the step.
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
    """Return the unfinished step at the end of a text; empty if the text ends with a whole step."""
    _, found, tail = text.rpartition(separator)
    return tail if tail.strip() and (finish == "length" or (finish == "stop" and found)) else ""


def _rest(unfinished: str, behind: Sequence[Written], separator: str) -> str:
    """Return the completion of an unfinished step: the following text up to the first separator."""
    step = unfinished
    for piece in behind:
        head, found, _ = (step + piece.text).partition(separator)
        step = head + found
        if found or piece.finish != "length":
            break
    return step.removeprefix(unfinished)


_TAG, _GOOD, _BAD = "ки", "+", "-"
"""Tag that ends a step (a word that occurs in no solution), and the two judgments after it, as in Math-Shepherd."""


def judgment_ids(tokenizer: Tokenizer, problem: str, steps: Sequence[str]) -> list[int]:
    """Return the ids of the prompt whose next token judges the last step."""
    ids, _ = verdict_options(tokenizer, _TAG, (_GOOD, _BAD))
    behind_tag = ids[len(tokenizer.encode_template(_TAG)) :]  # often none
    return [*tokenizer.opening, *tokenizer.encode(reward_prompt(problem, steps)), *behind_tag]


def reward_prompt(problem: str, steps: Sequence[str]) -> str:
    """Return the problem and its steps, each followed by the tag; tags written by a model are removed."""
    texts = [" ".join(step.replace(_TAG, " ").split()) for step in steps]
    return f"{problem} " + "\n".join(f"Step {number}: {text} {_TAG}" for number, text in enumerate(texts, 1))


class RewardModel:
    """An engine that scores the quality of steps."""

    def __init__(self, engine: Engine) -> None:
        """Raises ValueError if the tokenizer cannot distinguish the two judgments."""
        self._engine = engine
        _, self._options = verdict_options(engine.tokenizer, _TAG, (_GOOD, _BAD))

    @property
    def context_tokens(self) -> int:
        """Maximum number of tokens of a judgment's prompt plus the generated token."""
        return self._engine.context_tokens

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Return the probability that the last step is good. Raises EngineError."""
        ids = judgment_ids(self._engine.tokenizer, problem, steps)
        choice = await self._engine.choose(ids, self._options)
        return choice.probabilities[0]


LIKELIHOOD_VERSION = 1
"""Version of the prompt and the selection of tokens; results of different versions are not comparable."""


@dataclass(frozen=True, slots=True)
class StepLikelihood:
    """The log-probability of one step's generated tokens, in the target's tokenization."""

    num_tokens: int
    """Number of tokens read; fewer than generated if the target's context ends inside the step."""
    logprob: float | None
    """Sum over the `num_tokens` tokens (nats); None if one of them has no finite value."""
    lowest_logprob: float | None
    """Log-probability of the least probable token (nats); None if there are no tokens or `logprob` is None."""


@dataclass(frozen=True, slots=True)
class ReadChain:
    """A stored chain in the target's token ids."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    """The whole chain after the prompt."""
    generated: tuple[tuple[int, int], ...]
    """Start and end of each step's generated tokens among `ids`."""


def read_chain(
    problem: Problem, steps: Sequence[Step], tokenizers: Mapping[Role, Tokenizer], wording: Prompts = BUILT_IN
) -> ReadChain:
    """Return a chain as the target reads it. `tokenizers`: by role, for the target and all authors of steps."""
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

    An engine may compute a long chain in several passes. Tokens beyond the engine's context are not read, nor is the
    last token of a chain that fills the context. Raises EngineError.
    """
    room = engine.context_tokens - 1 - len(chain.prompt)
    ids = chain.ids[: max(0, room)]
    reply = await engine.log_probabilities(chain.prompt, ids) if ids else None
    logprobs = reply.token_logprobs if reply else ()
    return [_of_step(logprobs[first:last]) for first, last in chain.generated]


def _of_step(logprobs: Sequence[float]) -> StepLikelihood:
    if not all(map(math.isfinite, logprobs)):
        return StepLikelihood(len(logprobs), None, None)
    known = [min(0.0, logprob) for logprob in logprobs]  # rounding may give a certain token a slightly positive one
    return StepLikelihood(len(known), math.fsum(known), min(known, default=None))


def _generated(
    step: Step, ids: Sequence[int], author: Tokenizer, target: Tokenizer, wording: Prompts
) -> tuple[int, int]:
    """Return start and end of a step's generated tokens among the target's ids of the step."""
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
    """Return the text added by the harness at the beginning and at the end of a step.

    If a step has more ids than its author generated, the harness added the others.
    """
    num_added = len(step.token_ids) - (step.num_tokens - (step.finish == "eos"))
    own_text, bridge, separator = author.decode(step.token_ids), author.thought.closing, wording.step_separator
    behind = ""
    if step.text.endswith(bridge) and not own_text.endswith(bridge):
        return "", bridge  # a plain author, whose ids have no `</think>`
    if num_added <= 0:
        return "", ""
    if step.text.endswith(bridge):
        behind = bridge
    elif step.text.endswith(separator) and step.finish != "stop" and not step.text.startswith(wording.answer_bridge):
        behind = separator  # see `kept_open`
    num_before = num_added - len(author.encode(behind)) if behind else num_added
    return author.decode(step.token_ids[: max(0, num_before)]), behind
