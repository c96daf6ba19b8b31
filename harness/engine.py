"""The interface between a method and a model: the requests that an engine takes and the replies that it gives.

A method knows two engines and these types, nothing else. Prompts are token ids, never strings: step-wise continuation
through a chat endpoint would lose the reasoning, and ids keep the prefix identical from step to step, so that the
prefix cache hits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from harness.weights.templates import Thought

Role = Literal["draft", "target", "reward"]
"""Which model: the small or the large one of the cooperating pair, or one beside them that rates steps."""
Finish = Literal["stop", "eos", "length"]
"""Why a completion ended: a stop string, the model's own end-of-sequence token, or `max_tokens`."""
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value as JSON holds it: what a server replies and what a model's configuration says."""


class EngineError(Exception):
    """Base class of the errors that an engine raises to its caller."""


class EngineDied(EngineError):
    """The engine's processes have ended and cannot be replaced; the message ends with the engine's last output."""


class RequestRefused(EngineError):
    """This one request is invalid for the engine (too long, unknown token); other requests are not affected."""


class VerdictUnavailable(EngineError):
    """`choose` did not get a finite log-probability for every option, which engines do not report as an error."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    """Generation ends after the first of these strings; the string stays part of the completion."""
    seed: int = 0
    """Completion i of `n` is drawn with seed + i, so results do not depend on scheduling."""
    n: int = 1
    top_k: int = 0
    """Only so many of the most probable tokens are drawn from; 0: all."""
    min_p: float = 0.0
    """Only tokens are drawn that have this share of the most probable token's probability; 0: all."""
    repetition_penalty: float = 1.0
    """Divides the positive logits of tokens that prompt or completion hold already, and multiplies the negative ones
    (CTRL, arXiv 1909.05858, section 4.1); 1: none. It counts at temperature 0 too, and never for a `choose`."""
    mean_logprob: bool = False
    """Asks for `Completion.mean_logprob`, which costs vLLM's client 50 µs a token."""
    token_logprobs: bool = False
    """Asks for `Completion.token_logprobs`."""
    entropies: bool = False
    """Asks for `Completion.entropies`."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One continuation of a prompt."""

    token_ids: tuple[int, ...]
    """The generated tokens without the end-of-sequence token."""
    text: str
    """decode(token_ids). The last token may carry text past the stop string; it is kept, so text and ids agree."""
    finish: Finish
    num_tokens: int
    """Tokens that the engine generated, the end-of-sequence token included."""
    mean_logprob: float | None = None
    """Mean log-probability of the generated tokens, in nats; None where it was not asked for."""
    proposed_tokens: int | None = None
    """Tokens proposed by token-level speculation; None without it, or where the engine does not count them."""
    confirmed_tokens: int | None = None
    """Proposed tokens that became part of the completion."""
    token_logprobs: tuple[float, ...] | None = None
    """Log-probability (nats) of each of the `num_tokens` generated tokens under the model's own distribution, at
    temperature 1 and before any truncation; None where it was not asked for."""
    entropies: tuple[float, ...] | None = None
    """Entropy (nats) of the same distribution at each generated token; None where it was not asked for. An engine that
    sees only the most probable tokens counts all others as one, which gives a lower bound (docs/engines.md)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When one request was handled. Durations are in seconds since `submitted_at`."""

    submitted_at: float
    """UTC, seconds since the epoch."""
    queued_seconds: float
    """Waiting in the engine before the first scheduling."""
    first_token_seconds: float
    end_seconds: float
    in_flight: int
    """Requests of this engine that were running or queued when this one was submitted, itself included."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one `generate`: `n` completions of one prompt."""

    completions: tuple[Completion, ...]
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that were read from the prefix cache."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one `choose`: one forward pass, one token, the probabilities of all options."""

    logprobs: tuple[float, ...]
    """Log-probability (nats) of each option, in the request's order, before any mask; their exp() sums to at most 1."""
    prompt_tokens: int
    cached_tokens: int
    timing: Timing

    @property
    def mass(self) -> float:
        """Probability of all options together; a low mass means that the model did not understand the question."""
        return sum(math.exp(x) for x in self.logprobs)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each option, normalized over the options."""
        return normalized(self.logprobs)

    @property
    def best(self) -> int:
        """Index of the most probable option; the first one of a tie."""
        return max(range(len(self.logprobs)), key=lambda i: self.logprobs[i])


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The answer to one `log_probabilities`: how probable a given text is to a model."""

    token_logprobs: tuple[float, ...]
    """Log-probability (nats) of each token of the continuation, given the prompt and the tokens before it."""
    prompt_tokens: int
    """Tokens of prompt and continuation."""
    cached_tokens: int
    timing: Timing


@dataclass(frozen=True, slots=True)
class Rating:
    """The answer to one `rate`: what a model's own head says of a text."""

    outputs: tuple[float, ...]
    """One number per class of a classifier, one of a value head, at the text's last token and before any activation."""
    prompt_tokens: int
    cached_tokens: int
    timing: Timing

    @property
    def probability(self) -> float:
        """Probability of the last class, from 0 to 1: of two classes that the text is good. A value is a logit."""
        values = self.outputs if len(self.outputs) > 1 else (0.0, *self.outputs)
        return normalized(values)[-1]


def normalized(logprobs: Sequence[float]) -> tuple[float, ...]:
    """Return probabilities that sum to 1, from log-probabilities (nats)."""
    top = max(logprobs)
    weights = [math.exp(x - top) for x in logprobs]
    return tuple(w / sum(weights) for w in weights)


class Tokenizer(Protocol):
    """A model's tokenizer and chat template, as far as prompts need them."""

    def __hash__(self) -> int:
        """Hash by identity: prompts are cached per tokenizer."""

    @property
    def fingerprint(self) -> str:
        """Equal for two tokenizers that give every token id the same meaning."""

    @property
    def thinks(self) -> bool:
        """True for a reasoning model: its replies open with a chain inside `<think>…</think>`."""

    @property
    def thought(self) -> Thought:
        """How a reasoning model's prompts open a thought, and close one."""

    @property
    def opening(self) -> list[int]:
        """Ids that start a text without a chat template: the beginning-of-sequence token, where there is one."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a model's or a benchmark's text. Control tokens in it stay plain text; nothing is added.

        `<think>` and `</think>` are the exception: they are part of a chain and keep their meaning.
        """

    def encode_template(self, text: str) -> list[int]:
        """Return the ids of text from `open_reply` or `ask_again`, with its control tokens; nothing is added."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens included, without any clean-up."""

    def open_reply(self, question: str, system: str = "") -> str:
        """Return the chat template's text up to where the assistant's reply to the user's `question` starts.

        For a reasoning model it ends in `thought.opening`. `system` is a system prompt before the question; raises
        ValueError where the template has no place for one.
        """

    def ask_again(self, question: str) -> str:
        """Return text that closes the unfinished reply, asks `question` as the user and opens the next reply.

        The new reply is open for plain text: for a reasoning model it ends in `thought.empty`.
        """


class Engine(Protocol):
    """One model that continues token ids."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus completion that the engine accepts."""

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that fit in the KV cache, for admission; None where there is no such limit."""

    @property
    def restarts(self) -> int:
        """Number of times that its processes died and were replaced; samples running then have no true latency."""

    @property
    def has_head(self) -> bool:
        """True where the model ends in a value head or a classifier: it answers `rate` alone, and others all else."""

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Generate `sampling.n` completions. Raises EngineError; a cancelled call frees its request at once."""

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Return the log-probabilities of `options` (distinct token ids) as the next token, in one forward pass.

        Raises EngineError.
        """

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """Return the log-probability of each token of a given, nonempty continuation of a prompt.

        An engine may compute a long text in several passes. The distribution is that of `Completion.token_logprobs`.
        Raises EngineError.
        """

    async def rate(self, prompt: Sequence[int]) -> Rating:
        """Return what the model's head says of a text. Raises EngineError."""

    async def reset_prefix_cache(self) -> bool:
        """Forget the prompts of earlier requests, so that none of their tokens counts as cached from now on.

        Returns False where requests are still running, which keep what they use. Raises EngineDied.
        """

    async def close(self) -> None:
        """End the engine and all of its processes. May be called more than once."""
