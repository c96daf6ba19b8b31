"""The interface between methods and models: an engine's requests and replies.

A method depends only on engines and these types. Prompts are token ids, never strings: stepwise continuation through a
chat endpoint would lose the reasoning, and identical prefix ids from step to step lead to prefix-cache hits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from harness.weights.templates import Thought

Role = Literal["draft", "target", "reward"]
"""A model's role: draft (the small model), target (the large model) or reward (a third model, which rates steps)."""
Finish = Literal["stop", "eos", "length"]
"""Reason why a completion ended: a stop string, the model's end-of-sequence token, or `max_tokens`."""
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value, such as a server's reply or a model's configuration."""


class EngineError(Exception):
    """Base class of an engine's errors."""


class EngineDied(EngineError):
    """The engine did not start, or cannot answer further requests; the message may end with its last output."""


class RequestRefused(EngineError):
    """This request is invalid for the engine (too long, unknown token); other requests are not affected."""


class VerdictUnavailable(EngineError):
    """An answer lacks a finite number for a requested option, token or output, but the engine reported no error."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of completions."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    """Generation ends after the first of these strings, which remains part of the completion."""
    seed: int = 0
    """Completion i of `n` uses seed + i, so results do not depend on scheduling."""
    n: int = 1
    top_k: int = 0
    """Number of most probable tokens to sample from; 0: all."""
    min_p: float = 0.0
    """Minimum probability of sampled tokens, relative to the most probable one; 0: no minimum."""
    repetition_penalty: float = 1.0
    """Divides the positive logits of tokens in prompt or completion, and multiplies the negative ones (CTRL, arXiv
    1909.05858, section 4.1); 1: none. Applies at temperature 0 too, but never to `choose` requests."""
    mean_logprob: bool = False
    """Requests `Completion.mean_logprob`, which costs vLLM's client 50 µs per token."""
    token_logprobs: bool = False
    """Requests `Completion.token_logprobs`."""
    entropies: bool = False
    """Requests `Completion.entropies`."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One continuation of a prompt."""

    token_ids: tuple[int, ...]
    """The generated tokens without the end-of-sequence token."""
    text: str
    """decode(token_ids). The last token may extend past the stop string; it is kept, so text and ids agree."""
    finish: Finish
    num_tokens: int
    """Number of generated tokens, including the end-of-sequence token."""
    mean_logprob: float | None = None
    """Mean log-probability of the generated tokens, in nats; None if not requested."""
    proposed_tokens: int | None = None
    """Tokens proposed by token-level speculation; None without it, or if the engine does not count them."""
    accepted_tokens: int | None = None
    """Proposed tokens that were accepted and are part of the completion."""
    token_logprobs: tuple[float, ...] | None = None
    """Log-probability (nats) of each of the `num_tokens` generated tokens under the model's own distribution, at
    temperature 1 and before any truncation; None if not requested."""
    entropies: tuple[float, ...] | None = None
    """Entropy (nats) of the model's own distribution at each generated token; None if not requested. Engines that only
    return the most probable tokens count all others as one, which gives a lower bound (docs/engines.md)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one request. Durations are in seconds since `submitted_at`."""

    submitted_at: float
    """UTC, seconds since the epoch."""
    queued_seconds: float
    """Time in the engine's queue before the request was first scheduled."""
    first_token_seconds: float
    end_seconds: float
    in_flight: int
    """Requests of this engine that were running or queued at submission, including this one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one `generate` call: `n` completions of one prompt."""

    completions: tuple[Completion, ...]
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens read from the prefix cache."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one `choose` call: the probabilities of all options for the next token, from one forward pass."""

    logprobs: tuple[float, ...]
    """Log-probability (nats) of each option, in the request's order, before any mask; their exp() sums to at most 1."""
    prompt_tokens: int
    cached_tokens: int
    timing: Timing

    @property
    def mass(self) -> float:
        """Total probability of all options; if it is low, the model did not understand the question."""
        return sum(math.exp(x) for x in self.logprobs)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each option, normalized over the options."""
        return normalized(self.logprobs)

    @property
    def best(self) -> int:
        """Index of the most probable option; the first one in a tie."""
        return max(range(len(self.logprobs)), key=lambda i: self.logprobs[i])


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The answer to one `log_probabilities` call: how probable a model considers a given text."""

    token_logprobs: tuple[float, ...]
    """Log-probability (nats) of each token of the continuation, given the prompt and the tokens before it."""
    prompt_tokens: int
    """Number of tokens of prompt and continuation."""
    cached_tokens: int
    timing: Timing


@dataclass(frozen=True, slots=True)
class Rating:
    """The answer to one `rate` call: the output of a model's rating head for a text."""

    outputs: tuple[float, ...]
    """Output at the text's last token, before any activation: a number per class of a classifier, or a single value."""
    prompt_tokens: int
    cached_tokens: int
    timing: Timing

    @property
    def probability(self) -> float:
        """Probability of the last class (good), from 0 to 1. A single value is treated as a logit."""
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
        """Equal for two tokenizers if every token id has the same meaning in both."""

    @property
    def thinks(self) -> bool:
        """True for a reasoning model, whose replies start with a chain inside `<think>…</think>`."""

    @property
    def thought(self) -> Thought:
        """The texts that open and close a thought in a reasoning model's prompts."""

    @property
    def opening(self) -> list[int]:
        """Ids that start a text without a chat template: the beginning-of-sequence token, if any."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a model's or a benchmark's text, with control tokens as plain text.

        `<think>` and `</think>` are the exception: they are part of a chain and keep their meaning.
        """

    def encode_template(self, text: str) -> list[int]:
        """Return the ids of text from `open_reply` or `ask_again`, including its control tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, including control tokens, without any clean-up."""

    def open_reply(self, question: str, system: str = "") -> str:
        """Return the chat template's text up to where the assistant's reply to the user's `question` starts.

        For a reasoning model, the text ends with `thought.opening`. `system`: system prompt before the question. Raises
        ValueError if the template does not support one.
        """

    def ask_again(self, question: str) -> str:
        """Return text that closes the unfinished reply, asks `question` as the user and opens the next reply.

        The new reply starts with plain text: for a reasoning model the returned text ends with `thought.empty`.
        """


class Engine(Protocol):
    """One model that continues token ids."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def context_tokens(self) -> int:
        """Maximum length of prompt plus completion."""

    @property
    def kv_tokens(self) -> int | None:
        """Size of the KV cache in tokens, for admission; None if there is no such limit."""

    @property
    def restarts(self) -> int:
        """Number of times the engine's processes died and were replaced.

        Samples that were running at such a time have no valid latency.
        """

    @property
    def has_head(self) -> bool:
        """True if the model has a value head or a classifier.

        Such a model supports only `rate`; other models do not support `rate`.
        """

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Generate `sampling.n` completions. Raises EngineError; cancelling a call frees its request immediately."""

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
        """Return the rating head's output for a text. Raises EngineError."""

    async def reset_prefix_cache(self) -> bool:
        """Clear the prefix cache, so no tokens of earlier requests count as cached from now on.

        Returns False if requests are still running; their entries are kept. Raises EngineDied.
        """

    async def close(self) -> None:
        """End the engine and all of its processes. May be called more than once."""
