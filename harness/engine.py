"""The seam between a method and a model: what an engine is asked and what it answers. Nothing else is here.

A method knows two engines and these types. Prompts are token ids, never strings: step-wise continuation through a chat
endpoint would lose the reasoning, and ids keep the prefix identical from step to step so that the prefix cache hits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["draft", "target"]
"""Which of the two cooperating models: the small one or the large one."""
Finish = Literal["stop", "eos", "length"]
"""Why a completion ended: a stop string, the model's own end-of-sequence token, or `max_tokens`."""


class EngineError(Exception):
    """Base of what an engine may raise to its caller."""


class EngineDied(EngineError):
    """The engine's processes are gone and cannot be brought back; the message ends with the engine's own last lines."""


class RequestRefused(EngineError):
    """This one request is invalid for the engine (too long, unknown token); the engine itself is well."""


class VerdictUnavailable(EngineError):
    """`choose` did not get a finite log-probability for every option: a silent failure of the engine made loud."""


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
    """Mean log-probability of the generated tokens, in nats, where the engine gives it."""
    proposed_tokens: int | None = None
    """Tokens that token-level speculation proposed; None where there is none, or the engine does not count them."""
    confirmed_tokens: int | None = None
    """How many of these became part of the completion."""


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
    """Requests of this engine under way when this one was submitted, itself included."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one `generate`: `n` completions of one prompt."""

    completions: tuple[Completion, ...]
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that the prefix cache held."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one `choose`: one forward pass, one token, the probabilities of all options."""

    logprobs: tuple[float, ...]
    """Log-probability (nats) of each option, in the order asked, before any mask: exp() of them sums to at most 1."""
    prompt_tokens: int
    cached_tokens: int
    timing: Timing

    @property
    def mass(self) -> float:
        """Probability that the model gave to the options together; low means that the question was not understood."""
        return sum(math.exp(x) for x in self.logprobs)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probabilities normalised over the options."""
        return normalized(self.logprobs)

    @property
    def best(self) -> int:
        """Index of the most probable option; the first of equals."""
        return max(range(len(self.logprobs)), key=lambda i: self.logprobs[i])


def normalized(logprobs: Sequence[float]) -> tuple[float, ...]:
    """Probabilities that sum to 1, from log-probabilities (nats)."""
    top = max(logprobs)
    weights = [math.exp(x - top) for x in logprobs]
    return tuple(w / sum(weights) for w in weights)


class Tokenizer(Protocol):
    """What prompts need of a model's tokenizer and chat template."""

    def __hash__(self) -> int:
        """By identity: what was made with a tokenizer is kept for it."""

    @property
    def fingerprint(self) -> str:
        """Equal for two tokenizers that give every token id the same meaning."""

    @property
    def thinks(self) -> bool:
        """True for a reasoning model: its replies open with a chain inside `<think>…</think>`."""

    @property
    def opening(self) -> list[int]:
        """Ids that a text without any chat template begins with: the beginning of sequence, where there is one."""

    def encode(self, text: str) -> list[int]:
        """Ids of a model's or a benchmark's text. Control tokens written in it stay plain text; nothing is added.

        `<think>` and `</think>` are the exception: they are part of a chain and keep their meaning.
        """

    def encode_template(self, text: str) -> list[int]:
        """Ids of text that `open_reply` or `ask_again` made: control tokens are control tokens; nothing is added."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens included, nothing cleaned up."""

    def open_reply(self, question: str) -> str:
        """The chat template's text up to where the assistant's reply to the user's `question` starts.

        For a reasoning model it ends inside an open `<think>`.
        """

    def ask_again(self, question: str) -> str:
        """Text that closes the assistant's unfinished reply, asks `question` as the user and opens the next reply.

        The new reply is open for plain text: a reasoning model's `<think>` is opened and closed at once.
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
        """Times that its processes died and were brought back; samples under way then have no true latency."""

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Draw `sampling.n` completions. Raises EngineError; a cancelled call frees its request at once."""

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """One forward pass: log-probabilities of `options` (distinct single token ids) as the next token."""

    async def close(self) -> None:
        """End the engine and every process of it. May be called twice."""
