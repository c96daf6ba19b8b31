"""A deterministic engine without a model, for tests and dry runs: texts and choices come from a script.

Everything else is real: ids, stop strings, limits, seeds, a prefix cache with its counts, parallel requests.

The default script of a dry run is a simulated model that solves small sums in a few steps, sometimes wrongly. It reads
the chain in its prompt, so it can continue after any accepted step of either model. Its random numbers depend on the
seed, so a run without models is as reproducible as a run with models.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.engine import (
    Choice,
    Completion,
    EngineError,
    Finish,
    Generation,
    Likelihood,
    Rating,
    RequestRefused,
    Role,
    Sampling,
    Timing,
)
from harness.engines.calls import Calls, check_continuation
from harness.engines.settings import EngineSettings
from harness.weights.templates import Thought

WriteScript = Callable[[str, Sampling], Sequence[str]]
"""(prompt text, sampling) -> `sampling.n` texts, each up to the model's end of sequence."""
JudgeScript = Callable[[str, tuple[str, ...]], Sequence[float]]
"""(prompt text, option labels) -> the probability of each option."""
HeadScript = Callable[[str], Sequence[float]]
"""(prompt text) -> the outputs of a model's rating head."""
TokenScript = Callable[[str, str], tuple[float, float]]
"""(all text before a token, the token's text) -> its log-probability and the entropy of its distribution, in nats."""

SCRIPTED_SECONDS = "HARNESS_SCRIPTED_SECONDS"
"""Environment variable: seconds per call of a scripted engine, to test a cluster without models."""
_CONTEXT_TOKENS, _BLOCK_TOKENS = 1 << 16, 16
_SPECIALS = ("<|end|>", "<think>", "</think>")
_EOS = 256
_MIN_PROBABILITY = 1e-12


class ByteTokenizer:
    """A tokenizer with one token per UTF-8 byte, and three control tokens."""

    def __init__(self, *, thinks: bool = False) -> None:
        self._thinks = thinks

    @property
    def fingerprint(self) -> str:
        """See Tokenizer.fingerprint; equal for all byte tokenizers."""
        return hashlib.sha256(b"bytes").hexdigest()

    @property
    def thinks(self) -> bool:
        return self._thinks

    @property
    def thought(self) -> Thought:
        return Thought()

    @property
    def opening(self) -> list[int]:
        return []

    def encode(self, text: str) -> list[int]:
        return _encode(text, _SPECIALS[1:])

    def encode_template(self, text: str) -> list[int]:
        return _encode(text, _SPECIALS)

    def decode(self, ids: Sequence[int]) -> str:
        data = b"".join(bytes([i]) if i < _EOS else _SPECIALS[i - _EOS].encode() for i in ids)
        return data.decode("utf-8", "replace")

    def open_reply(self, question: str, system: str = "") -> str:
        before = f"System: {system}\n" if system else ""
        return f"{before}User: {question}\nAssistant: " + (self.thought.opening if self._thinks else "")

    def ask_again(self, question: str) -> str:
        return f"<|end|>\nUser: {question}\nAssistant: " + (self.thought.empty if self._thinks else "")


@dataclass
class ScriptedEngine:
    """An Engine whose replies come from script functions."""

    write: WriteScript
    judge: JudgeScript
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    context_tokens: int = _CONTEXT_TOKENS
    kv_tokens: int | None = None
    restarts: int = 0
    seconds_per_call: float = 0.0
    seconds_per_token: float = 0.0
    failures: Mapping[int, EngineError] = field(default_factory=dict)
    """Errors to raise, by call number from 0."""
    requests: list[str] = field(default_factory=list)
    """Kinds of all requests so far: `generate`, `choose`, `log_probabilities` or `rate`."""
    output_tokens: int = 0
    weigh: TokenScript = lambda before, token: (-0.5, 0.5)
    head: HeadScript | None = None
    closed: bool = False
    _cache: set[int] = field(default_factory=set, repr=False)
    calls: Calls = field(default_factory=Calls, repr=False)

    @classmethod
    async def start(
        cls, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> ScriptedEngine:
        """Return the engine of a dry run; no file is read or written."""
        return dry_run_engine(role, settings)

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        self._admit("generate", prompt, sampling.max_tokens)
        texts = self.write(self.tokenizer.decode(prompt), sampling)
        if len(texts) != sampling.n:
            raise ValueError(f"the script returned {len(texts)} texts instead of {sampling.n}")
        room = self.context_tokens - len(prompt)
        limit = min(room, sampling.max_tokens)
        completions = tuple(self._completion(prompt, text, sampling, limit) for text in texts)
        cached = self._cached(prompt)
        timing = await self._served(max(c.num_tokens for c in completions))
        self.output_tokens += sum(c.num_tokens for c in completions)
        for completion in completions:
            self._cached([*prompt, *completion.token_ids])
        return Generation(completions, len(prompt), cached, timing)

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        self._admit("choose", prompt, 1)
        labels = tuple(self.tokenizer.decode([option]) for option in options)
        probabilities = self.judge(self.tokenizer.decode(prompt), labels)
        logprobs = tuple(math.log(max(p, _MIN_PROBABILITY)) for p in probabilities)
        cached = self._cached(prompt)
        timing = await self._served(1)
        self.output_tokens += 1
        return Choice(logprobs, len(prompt), cached, timing)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        whole = [*prompt, *continuation]
        self._admit("log_probabilities", whole, 1)
        check_continuation(prompt, continuation)
        weights = self._weights(prompt, continuation)
        cached = self._cached(whole)
        timing = await self._served(1)
        self.output_tokens += 1
        return Likelihood(tuple(logprob for logprob, _ in weights), len(whole), cached, timing)

    @property
    def has_head(self) -> bool:
        return self.head is not None

    async def rate(self, prompt: Sequence[int]) -> Rating:
        assert self.head is not None  # callers check `has_head`
        self._admit("rate", prompt, 1)
        outputs, cached = tuple(self.head(self.tokenizer.decode(prompt))), self._cached(prompt)
        return Rating(outputs, len(prompt), cached, await self._served(0))

    async def reset_prefix_cache(self) -> bool:
        if self.calls.in_flight:
            return False
        self._cache.clear()
        return True

    async def close(self) -> None:
        self.closed = True

    def _admit(self, request: str, prompt: Sequence[int], tokens: int) -> None:
        self.requests.append(request)
        if (failure := self.failures.get(len(self.requests) - 1)) is not None:
            raise failure
        if not prompt or tokens < 1 or len(prompt) >= self.context_tokens:
            raise RequestRefused(
                f"a prompt of {len(prompt)} tokens with {tokens} tokens to generate is invalid for a context of "
                f"{self.context_tokens} tokens"
            )

    def _completion(self, prompt: Sequence[int], text: str, sampling: Sampling, limit: int) -> Completion:
        finish: Finish = "eos"
        ends = [(text.find(stop) + len(stop)) for stop in sampling.stop if stop in text]
        if ends:
            text, finish = text[: min(ends)], "stop"
        ids = self.tokenizer.encode(text)
        num_tokens = len(ids) + (finish == "eos")
        if num_tokens > limit:
            ids, finish, num_tokens = ids[:limit], "length", limit
        ended = [_EOS] if finish == "eos" else []
        asks = sampling.token_logprobs or sampling.entropies
        weights = self._weights(prompt, [*ids, *ended]) if asks else []
        return Completion(
            *(tuple(ids), self.tokenizer.decode(ids), finish, num_tokens),
            mean_logprob=-0.5 if sampling.mean_logprob else None,
            token_logprobs=tuple(logprob for logprob, _ in weights) if sampling.token_logprobs else None,
            entropies=tuple(entropy for _, entropy in weights) if sampling.entropies else None,
        )

    def _weights(self, prompt: Sequence[int], ids: Sequence[int]) -> list[tuple[float, float]]:
        before, weights = self.tokenizer.decode(prompt), []
        for token in ids:
            text = self.tokenizer.decode([token])
            weights.append(self.weigh(before, text))
            before += text
        return weights

    async def _served(self, tokens: int) -> Timing:
        async with self.calls.clocked() as clock:
            await asyncio.sleep(self.seconds_per_call)
            clock.first_token_seconds = clock.elapsed()
            if self.seconds_per_token:
                await asyncio.sleep(self.seconds_per_token * tokens)
        return clock.timing()

    def _cached(self, ids: Sequence[int]) -> int:
        """Return the number of tokens in the longest cached prefix, and cache all of `ids`.

        Only whole blocks are cached, and never the last token.
        """
        state, num_cached, is_unbroken = 0, 0, True
        for end in range(_BLOCK_TOKENS, len(ids), _BLOCK_TOKENS):
            state = hash((state, tuple(ids[end - _BLOCK_TOKENS : end])))
            is_unbroken = is_unbroken and state in self._cache
            num_cached = end if is_unbroken else num_cached
            self._cache.add(state)
        return num_cached


def _encode(text: str, specials: Sequence[str]) -> list[int]:
    for special in specials:
        before, separator, after = text.partition(special)
        if separator:
            return [*_encode(before, specials), _EOS + _SPECIALS.index(special), *_encode(after, specials)]
    return list(text.encode("utf-8", "replace"))


_SUM = re.compile(r"(-?\d+)\s*([-+*])\s*(-?\d+)")
_NUMBER = re.compile(r"-?\d+")
_WRONG_MARK = "roughly"
"""Word in every wrong step, which tells the simulated judge that the step is wrong."""
_END = "<|end|>"
"""Separates a chain from the question after it."""
_STEPS = (
    "First I write down what is given: {a} and {b}.",
    "The question asks for one number made of these two.",
    "Combining these, {a} and {b}, {how} gives {value}.",
    "Checking this again, {value} is {how} consistent with {a} and {b}.",
    "Nothing else in the question changes the result {value}.",
)
_OPENINGS = tuple(" ".join(step.split()[:2]) for step in _STEPS)


@dataclass(frozen=True)
class SimulatedModel:
    """Writes and judges text. With a higher `skill` (0 to 1) it makes fewer mistakes and judges better."""

    skill: float = 0.9
    thinks: bool = False

    def write(self, prompt: str, sampling: Sampling) -> list[str]:
        """Return `sampling.n` continuations of the prompt, each up to its end of sequence."""
        is_random = sampling.temperature > 0 and sampling.top_k != 1
        return [self._continued(prompt, sampling.seed + i, is_random) for i in range(sampling.n)]

    def judge(self, prompt: str, labels: tuple[str, ...]) -> list[float]:
        """Return each label's probability. Scores and right/wrong verdicts err at rate 1 − `skill`, choices never."""
        subject = prompt.rsplit("\nUser: ", 1)[0] if labels[0] == "0" else prompt.rsplit("\nUser: ", 1)[-1]
        draw = _uniform(prompt, "judge")
        if labels[0] == "0":
            wrong = _WRONG_MARK in subject.rstrip().rsplit("\n\n", 1)[-1]
            favourite = int(draw * 4) if wrong == (draw < self.skill) else 7 + int(draw * 3)
        else:
            shown = [part.split("]", 1)[-1] for part in subject.split("\n\n[")[1:]]
            good = [i for i, text in enumerate(shown) if _WRONG_MARK not in text]
            favourite = good[int(draw * len(good))] if good else len(labels) - 1
            if not shown:  # two labels for the last step: right and wrong
                chain = prompt.rsplit("\nUser: ", 1)[0].removesuffix(_END)
                last_step = chain.rstrip().rsplit("\n\n", 1)[-1]
                favourite = int((_WRONG_MARK in last_step) == (draw < self.skill))
        favourite = min(favourite, len(labels) - 1)
        rest = (0.98 - 0.8) / max(1, len(labels) - 1)
        return [0.8 if i == favourite else rest for i in range(len(labels))]

    def weigh(self, before: str, token: str) -> tuple[float, float]:
        """Return a token's log-probability and its distribution's entropy, in nats; wrong steps are less certain."""
        step = before.rsplit("\n\n", 1)[-1]
        draw = _uniform(before, token, "weigh")
        return (-1.0 - draw, 1.0 + draw) if _WRONG_MARK in step else (-0.2 * draw, 1.5 * draw)

    def _continued(self, prompt: str, seed: int, random: bool) -> str:
        question, _, reply = prompt.partition("\nAssistant: ")
        a, operator, b, value = _parse_question(question)
        if reply.rstrip().endswith("\\boxed{"):
            return f"{value}}}"
        if "</think>" in reply or (not self.thinks and "\\boxed" in reply):
            return f"The answer is \\boxed{{{_result(reply, value)}}}."
        total = 2 + int(_uniform(question, "steps") * (len(_STEPS) - 1))
        written = max((i + 1 for i, opening in enumerate(_OPENINGS) if opening in reply), default=0)
        steps = []
        for i in range(written, total):
            wrong = _uniform(prompt, f"{seed if random else 0}/{i}") > self.skill
            how = _WRONG_MARK if wrong else "exactly"
            steps.append(_STEPS[i].format(a=a, b=b, how=how, value=value + wrong if operator else value))
        chain = "".join(f"{step}\n\n" for step in steps)
        close = "</think>\n\n" if self.thinks else ""
        return f"{chain}{close}The answer is \\boxed{{{_result(reply + chain, value)}}}."


def _result(chain: str, value: int) -> int:
    numbers = re.findall(r"gives (-?\d+)", chain)
    return int(numbers[-1]) if numbers else value


def _parse_question(question: str) -> tuple[int, str, int, int]:
    """Return two numbers, their operator and the result; without an operator, the sum of the first two numbers."""
    if formula := _SUM.search(question):
        a, operator, b = int(formula[1]), formula[2], int(formula[3])
        return a, operator, b, {"+": a + b, "-": a - b, "*": a * b}[operator]
    a, b, *_ = [*(int(n) for n in _NUMBER.findall(question)[:2]), 1, 1]
    return a, "+", b, a + b


def _uniform(*parts: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:8], 16) / 0x1_0000_0000


def dry_run_engine(role: Role, settings: EngineSettings) -> ScriptedEngine:
    """Return an engine with a simulated model, less skilled as a draft than in the other roles."""
    model = SimulatedModel(skill=0.7 if role == "draft" else 0.95)
    return ScriptedEngine(
        model.write,
        model.judge,
        context_tokens=settings.max_context or _CONTEXT_TOKENS,
        seconds_per_call=float(os.environ.get(SCRIPTED_SECONDS, "0")),
        weigh=model.weigh,
    )
