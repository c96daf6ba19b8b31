"""A model on an externally managed server, as an Engine of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.engine import (
    Choice,
    Completion,
    EngineDied,
    Generation,
    Json,
    Likelihood,
    Rating,
    Role,
    Sampling,
    VerdictUnavailable,
)
from harness.engines import calls
from harness.engines.calls import NUM_RANKED, Batches, Calls, gather_or_cancel, ranked_entropy
from harness.engines.served import discovery
from harness.engines.served.address import ServerAddress, api_key
from harness.engines.served.connection import Connection
from harness.engines.served.discovery import Found
from harness.engines.served.interfaces import Asked, BadReply, Judged, NotFinite, Written
from harness.engines.settings import EngineSettings
from harness.weights.tokenizer import HFTokenizer

_VERDICT_ATTEMPTS = 4
"""Maximum number of attempts per verdict. vLLM's V1 runner (0.32) returns minus infinity for specific tokens if another
client requests the most probable ones in the same batch; the next batch may be different."""


class ServedEngine:
    """An Engine whose requests go to a server, possibly shared with other users."""

    has_head = False
    kv_tokens: int | None = None
    """None, because the server itself admits requests to its cache."""

    def __init__(
        self, role: Role, settings: EngineSettings, connection: Connection, tokenizer: HFTokenizer, found: Found
    ) -> None:
        """Raises EngineDied if neither the server nor the settings give the maximum context."""
        self.role, self.settings, self.found = role, settings, found
        self.connection, self.tokenizer = connection, tokenizer
        self.vocabulary = tokenizer.num_tokens + discovery.PADDED_TOKENS
        limits = [limit for limit in (found.context_tokens, settings.max_context) if limit is not None]
        if not limits:
            raise EngineDied(f"{connection.name} does not report its maximum context: set --max-context")
        self.context_tokens = min(limits)
        self.reports_cached_tokens: bool | None = None
        """Whether replies contain the number of cached prompt tokens; None before the first reply."""
        self._salt = secrets.token_hex(8)
        self._calls = Calls()
        self._batches = Batches()

    @classmethod
    async def start(
        cls,
        model_path: str,
        role: Role,
        settings: EngineSettings,
        log_path: Path | None = None,
        revision: str | None = None,
    ) -> ServedEngine:
        """Connect to the server and try every kind of request. Raises EngineDied.

        `model_path`: the tokenizer's path.
        """
        if settings.server is None:
            raise ValueError("the engine kind 'served' requires a server")
        try:
            address = ServerAddress.parse(f"--{role}", settings.server.address)
            tokenizer = await asyncio.to_thread(HFTokenizer, model_path, revision, settings.conventions)
            connection = Connection(address, role, api_key(role), reply_seconds=calls.limit_seconds() or None)
        except (OSError, ValueError) as error:
            raise EngineDied(f"the {role} engine did not start: {error}") from error
        try:
            return await cls.connected(role, settings, connection, tokenizer)
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def connected(
        cls, role: Role, settings: EngineSettings, connection: Connection, tokenizer: HFTokenizer
    ) -> ServedEngine:
        """Discover the server's model and features. Raises EngineDied if they do not match the run's."""
        server = settings.server
        assert server is not None
        try:
            found = await discovery.find(connection, server.model)
            if server.kind not in (None, found.kind):
                raise discovery.ServerUnfit(
                    f"{connection.name} runs {found.kind}, but the run was planned with {server.kind}"
                )
            if server.fingerprint not in (None, discovery.fingerprint(found.model, tokenizer)):
                raise discovery.ServerUnfit(f"the tokenizer of {found.model} has changed since the run was planned")
            await discovery.check(connection, found, tokenizer)
        except (discovery.ServerUnfit, BadReply) as error:
            raise EngineDied(f"the {role} engine did not start: {error}") from error
        return cls(role, settings, connection, tokenizer, found)

    @property
    def restarts(self) -> int:
        """Number of requests sent again. Samples running at that time have no valid latency (see Engine.restarts)."""
        return self.connection.num_resent

    @property
    def report(self) -> dict[str, Json]:
        """Description of the server, for the record of an attempt."""
        return {
            "kind": self.found.kind,
            "model": self.found.model,
            "version": self.found.version or "unknown",
            "context_tokens": self.found.context_tokens,
            "separates_caches": self.found.interface.salts_caches,
        }

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        room = self._room(prompt)
        limited = replace(sampling, max_tokens=min(room, sampling.max_tokens))
        apart = self._batches.of("ranked") if sampling.entropies else contextlib.nullcontext()
        async with self._calls.clocked() as clock, apart:
            all_written = await gather_or_cancel([self._write(prompt, limited, i) for i in range(sampling.n)])
        completions = tuple(self._completion(written, sampling) for written in all_written)
        cached = min(self._cached(written.cached_tokens, prompt) for written in all_written)
        return Generation(completions, len(prompt), cached, clock.timing())

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        calls.check_options(options)
        self._room(prompt)
        async with self._calls.clocked() as clock, self._batches.of("named"):
            for attempt in range(1, _VERDICT_ATTEMPTS + 1):
                try:
                    judged = await self._judge(prompt, options)
                    break
                except BadReply as error:
                    if attempt == _VERDICT_ATTEMPTS:
                        raise VerdictUnavailable(f"{self.connection.name}: {error}") from error
        logprobs = tuple(judged.logprobs[option] for option in options)
        return Choice(logprobs, len(prompt), self._cached(judged.cached_tokens, prompt), clock.timing())

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        calls.check_continuation(prompt, continuation)
        whole = [*prompt, *continuation]
        self._room(whole)
        async with self._calls.clocked() as clock, self._batches.of("named"):
            try:
                logprobs = await self._read(prompt, continuation)
            except NotFinite as error:
                raise VerdictUnavailable(f"{self.connection.name}: {error}") from error
            except BadReply as error:
                raise EngineDied(f"{self.connection.name}: {error}") from error
        return Likelihood(logprobs, len(whole), 0, clock.timing())

    async def rate(self, prompt: Sequence[int]) -> Rating:
        """Raise NotImplementedError: servers only return text and log-probabilities."""
        raise NotImplementedError

    async def reset_prefix_cache(self) -> bool:
        """Use a new salt for later requests; returns False if requests are still running.

        Some servers do not separate caches by salt.
        """
        if self._calls.in_flight:
            return False
        self._salt = secrets.token_hex(8)
        return True

    async def close(self) -> None:
        """Close the connections; the server continues. May be called more than once."""
        await self.connection.close()

    @property
    def _asked(self) -> Asked:
        return Asked(self.found.model, self.vocabulary, self._salt)

    def _room(self, prompt: Sequence[int]) -> int:
        return calls.room_behind(prompt, self.context_tokens, self.vocabulary)

    async def _write(self, prompt: Sequence[int], sampling: Sampling, index: int) -> Written:
        interface, asked = self.found.interface, self._asked
        stop = tuple(self.tokenizer.native(text) for text in sampling.stop)
        sampling = replace(sampling, stop=stop, seed=sampling.seed + index)
        reads_logprobs = sampling.mean_logprob or sampling.token_logprobs or sampling.entropies
        listed = NUM_RANKED if sampling.entropies else 0 if reads_logprobs else None
        request = interface.writing(asked, prompt, sampling, logprobs=listed)
        control = interface.writing(asked, prompt[:1], replace(sampling, max_tokens=1), logprobs=listed)
        reply = await self.connection.post(interface.path, request, control)
        try:
            written = interface.written(reply, asked, sampling.max_tokens)
            if reads_logprobs:
                return await self._with_all_logprobs(prompt, written)
        except BadReply as error:
            raise EngineDied(f"{self.connection.name}: {error}") from error
        return written

    async def _with_all_logprobs(self, prompt: Sequence[int], written: Written) -> Written:
        """Request the log-probabilities that the server omitted: llama.cpp omits those of a stop string's tokens."""
        logprobs, ranked = list(written.logprobs or ()), list(written.ranked or ())
        for place in range(len(logprobs), len(written.token_ids)):
            before, token = [*prompt, *written.token_ids[:place]], written.token_ids[place]
            judged = await self._judge(before, [token])
            logprobs.append(judged.logprobs[token])
            ranked.append(tuple(judged.logprobs.values()))
        return replace(written, logprobs=tuple(logprobs), ranked=tuple(ranked))

    async def _judge(self, prompt: Sequence[int], options: Sequence[int]) -> Judged:
        interface, asked = self.found.interface, self._asked
        _, judged = await discovery.judge(self.connection, interface, asked, prompt, options)
        return judged

    async def _read(self, prompt: Sequence[int], continuation: Sequence[int]) -> tuple[float, ...]:
        interface, asked = self.found.interface, self._asked
        request = interface.reading(asked, prompt, continuation)
        control = interface.reading(asked, prompt[:1], continuation[:1])
        if request is not None and control is not None:
            reply = await self.connection.post(interface.path, request, control)
            return interface.read(reply, [*prompt, *continuation], len(prompt))
        befores = [[*prompt, *continuation[:place]] for place in range(len(continuation))]
        asks = [self._judge(before, [token]) for before, token in zip(befores, continuation, strict=True)]
        judged = await gather_or_cancel(asks)
        return tuple(one.logprobs[token] for one, token in zip(judged, continuation, strict=True))

    def _completion(self, written: Written, sampling: Sampling) -> Completion:
        ids, number, logprobs = written.token_ids, len(written.token_ids), written.logprobs
        kept = ids[:-1] if written.finish == "eos" else ids
        ranked = (written.ranked or ()) if sampling.entropies else None
        if ranked is not None and len(ranked) != number:
            raise VerdictUnavailable(f"the server sent {len(ranked)} lists of most probable tokens instead of {number}")
        return Completion(
            *(kept, self.tokenizer.decode(kept), written.finish, number),
            mean_logprob=sum(logprobs) / number if logprobs and sampling.mean_logprob else None,
            token_logprobs=logprobs if sampling.token_logprobs else None,
            entropies=None if ranked is None else tuple(ranked_entropy(of_token, NUM_RANKED) for of_token in ranked),
        )

    def _cached(self, cached: int | None, prompt: Sequence[int]) -> int:
        self.reports_cached_tokens = cached is not None
        return min(cached or 0, len(prompt))
