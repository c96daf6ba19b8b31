"""The engines of one worker over several runs: opened when first needed, and shared by all runs that can use them.

An engine stays open during runs that do not use it, until another engine needs the memory. An idle engine costs less
than 2 % of a core. Engines start one after the other, each within its own share of the memory, so open engines do not
affect a start.

One engine serves two runs if both would start it with the same settings, except for:

- the context: the engine is opened with the longest context, and a run's own limit applies to its requests
  (`LeasedEngine`);
- the number of sequences, on a CPU: the engine is opened with the largest number. This does not change the latency of
  one concurrent sample, and no run sends more parallel requests than its own number. On a GPU, the numbers must be
  equal, because vLLM also sizes CUDA graphs and buffers by them, with an unmeasured effect on latency;
- the memory: a run with one concurrent sample uses the smallest cache, which always fits one sample. To avoid slowing a
  baseline, a run with several concurrent samples uses a cache smaller than its own only if all samples fit;
- mean log-probabilities, which each request sets;
- prompt conventions, because each run uses its own tokenizer.

All other settings must be equal: they affect speed or text, and vLLM cannot change them while it runs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from harness.engine import Choice, Engine, EngineDied, Generation, Likelihood, Rating, Role, Sampling
from harness.engines import placement, registry
from harness.engines.calls import EngineWrapper, room_behind
from harness.engines.settings import EngineSettings
from harness.weights.templates import NO_CONVENTIONS
from harness.weights.tokenizer import HFTokenizer


@dataclass(frozen=True)
class EngineNeed:
    """An engine that a run needs, with the settings that the run would use if it did not share engines."""

    role: Role
    path: str
    """The model: a local folder, or a hub id in the cache."""
    revision: str | None
    settings: EngineSettings
    mean_logprobs: bool = field(default=False, compare=False)
    """Whether mean log-probabilities of all generated text are requested."""
    one_in_flight: bool = field(default=False, compare=False)
    """True if the run has one concurrent sample, which fits in the cache of any engine that starts."""
    kv_tokens: int | None = field(default=None, compare=False)
    """Size of the cache in tokens; None before the engine has started."""

    @property
    def memory(self) -> tuple[float, int | None]:
        """The engine's share of the memory, and the size of its cache in bytes if set."""
        return self.settings.memory_fraction, self.settings.kv_cache_bytes


def may_share(one: EngineNeed, other: EngineNeed) -> bool:
    """Return whether one engine can serve both needs, whatever its cache size."""
    is_any_cache_enough = one.memory == other.memory or one.one_in_flight or other.one_in_flight
    return is_any_cache_enough and _in_common(one) == _in_common(other)


def _in_common(need: EngineNeed) -> EngineNeed:
    most = need.settings.max_num_seqs if need.settings.device == "gpu" else 1
    settings = replace(need.settings, max_context=None, max_num_seqs=most, conventions=NO_CONVENTIONS)
    return replace(need, settings=replace(settings, memory_fraction=1.0, kv_cache_bytes=None))


def _serves(opened: EngineNeed, need: EngineNeed) -> bool:
    context, limit, most = need.settings.max_context, opened.settings.max_context, need.settings.max_num_seqs
    if most > opened.settings.max_num_seqs or not (limit is None or (context is not None and context <= limit)):
        return False
    if need.one_in_flight or opened.memory == need.memory:
        return _in_common(opened) == _in_common(need)
    holds_all = context is not None and opened.kv_tokens is not None and opened.kv_tokens >= most * context
    return holds_all and opened.memory <= need.memory and _in_common(opened) == _in_common(need)


def _fit(needs: Sequence[EngineNeed]) -> bool:
    """Return whether the engines' memory shares fit on every GPU or, if no GPUs are listed, on this machine."""
    own = [need.settings for need in needs if registry.capabilities(need.settings.kind).runs_here]
    together = placement.on_each_card({number: one.visible_devices for number, one in enumerate(own)})
    return all(sum(own[number].memory_fraction for number in numbers) <= 1 + 1e-9 for numbers in together)


@dataclass(frozen=True)
class EngineStart:
    """One start of an engine, which may serve several runs."""

    start_id: str
    """Unique id: time, host, process and role."""
    seconds: float


class LeasedEngine(EngineWrapper):
    """A shared engine as used by one run: requests have the run's settings, and `close` does not end the engine."""

    def __init__(self, opened: _OpenEngine, need: EngineNeed, *, is_warm: bool):
        super().__init__(opened.engine, need.role)
        self.need, self.settings, self.start = need, opened.need.settings, opened.start
        self.is_warm = is_warm
        """True if an earlier run has used the engine since this start."""

    @property
    def context_tokens(self) -> int:
        """Maximum length of prompt plus completion for this run, even if the shared engine allows more."""
        limit = self.inner.context_tokens
        own = self.need.settings.max_context
        return limit if own is None else min(limit, own)

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Call Engine.generate with the run's context limit and requested log-probabilities."""
        max_tokens = min(sampling.max_tokens, room_behind(prompt, self.context_tokens))
        own = replace(sampling, max_tokens=max_tokens, mean_logprob=self.need.mean_logprobs)
        return await self.inner.generate(prompt, own)

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Call Engine.choose with the run's context limit."""
        room_behind(prompt, self.context_tokens)
        return await self.inner.choose(prompt, options)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """Call Engine.log_probabilities with the run's context limit."""
        room_behind([*prompt, *continuation], self.context_tokens)
        return await self.inner.log_probabilities(prompt, continuation)

    async def rate(self, prompt: Sequence[int]) -> Rating:
        """Call Engine.rate with the run's context limit."""
        room_behind(prompt, self.context_tokens)
        return await self.inner.rate(prompt)

    async def close(self) -> None:
        """Do nothing: the pool closes the engine."""


START_ORDER: tuple[Role, ...] = ("target", "draft", "reward")
"""Order of engine starts, with the large engine first."""
_RESET_SECONDS = 10.0
"""Maximum time for the last requests of the previous run to end."""
_RESET_POLL_SECONDS = 0.05


@dataclass(eq=False)
class _OpenEngine:
    need: EngineNeed
    """The need for which the engine was opened, with the settings used."""
    engine: Engine
    start: EngineStart
    is_used: bool = False
    """True once a run has used the engine; a run canceled while its engines start does not count."""

    async def talk_as(self, need: EngineNeed) -> None:
        """Use a run's tokenizer in the engine, which serves one run at a time."""
        conventions = need.settings.conventions
        if conventions != self.need.settings.conventions and registry.capabilities(need.settings.kind).runs_models:
            revision = None if Path(need.path).is_dir() else need.revision
            tokenizer = await asyncio.to_thread(HFTokenizer, need.path, revision, conventions)
            setattr(self.engine, "tokenizer", tokenizer)  # noqa: B010 - the protocol only reads it
            self.need = replace(self.need, settings=replace(self.need.settings, conventions=conventions))


@dataclass(frozen=True)
class _Arranged:
    kept: Mapping[Role, EngineNeed]
    """The open engines that serve a run."""
    staying: Sequence[EngineNeed]
    """The engines that stay open during the run."""
    starting: Sequence[EngineNeed]


class EnginePool:
    """Opens engines for consecutive runs; use it as an asynchronous context manager, which closes them."""

    def __init__(self) -> None:
        self._planned: list[EngineNeed] = []
        self._open: list[_OpenEngine] = []

    def plan(self, runs: Sequence[Sequence[EngineNeed]]) -> list[int]:
        """Return the indices of the runs in an order with few engine starts.

        The next run is always the one with the largest part of its engines open; in a tie, the first one. Each
        engine is then opened with settings that suit all planned needs that can share it.
        """
        self._planned += itertools.chain(*runs)
        opened, order = [one.need for one in self._open], list[int]()
        while left := [number for number in range(len(runs)) if number not in order]:
            arranged = {number: self._arranged(opened, runs[number]) for number in left}
            order.append(max(left, key=lambda number: len(arranged[number].kept) / max(1, len(runs[number]))))
            opened = [*arranged[order[-1]].staying, *arranged[order[-1]].starting]
        return order

    async def __aenter__(self) -> EnginePool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def lease(self, needs: Iterable[EngineNeed], log_dir: Path) -> dict[Role, LeasedEngine]:
        """Return the engines of the next run by role; other engines are closed if their memory is needed.

        The prefix caches of reused engines are cleared. Raises EngineDied if an engine does not start.
        """
        ordered = sorted(needs, key=lambda need: START_ORDER.index(need.role))
        while True:
            opened = {one.need: one for one in self._open}
            arranged = self._arranged(list(opened), ordered)
            kept = {role: opened[need] for role, need in arranged.kept.items()}
            spent = [one for one in kept.values() if not await _is_as_new(one.engine)]
            if not spent:
                break
            await self._close(spent)
        await self._close([one for need, one in opened.items() if need not in arranged.staying])
        used = {need: kept.get(need.role) or await self._start(need, log_dir / f"{need.role}.log") for need in ordered}
        leased: dict[Role, LeasedEngine] = {}
        for need, one in used.items():
            is_warm, one.is_used = one.is_used, True
            await one.talk_as(need)
            leased[need.role] = LeasedEngine(one, need, is_warm=is_warm)
        return leased

    async def close(self) -> None:
        """Close all engines, after the last run or after a failed one, which may leave them in an unknown state."""
        await self._close(list(self._open))

    def _arranged(self, opened: Sequence[EngineNeed], needs: Sequence[EngineNeed]) -> _Arranged:
        """Return, for a run, which open engines to keep and which engines to start."""
        kept = {need.role: one for need in needs for one in opened if _serves(one, need)}
        starting = [self._serving(need) for need in needs if need.role not in kept]
        for staying in (opened, list(kept.values())):
            if not starting or _fit([*staying, *starting]):
                return _Arranged(kept, staying, starting)
        return _Arranged({}, [], [self._serving(need) for need in needs])

    def _serving(self, need: EngineNeed) -> EngineNeed:
        """Return `need` with settings that also suit every planned need that may share its engine."""
        together = [need.settings, *(planned.settings for planned in self._planned if may_share(need, planned))]
        contexts = [settings.max_context for settings in together]
        known = [context for context in contexts if context is not None]
        longest = max(known) if len(known) == len(contexts) else None  # None is the model's limit, the longest context
        most = max(settings.max_num_seqs for settings in together)
        smallest = min(together, key=lambda one: one.memory_fraction) if need.one_in_flight else need.settings
        settings = replace(need.settings, max_context=longest, max_num_seqs=most)
        settings = replace(settings, memory_fraction=smallest.memory_fraction, kv_cache_bytes=smallest.kv_cache_bytes)
        return replace(need, settings=settings)

    async def _start(self, need: EngineNeed, log_path: Path) -> _OpenEngine:
        started, started_at = time.monotonic(), datetime.now(UTC)
        wanted = self._serving(need)
        try:
            engine = await registry.start(wanted, need.role, wanted.settings, log_path)
        except EngineDied:
            if wanted == need:
                raise
            self._planned.clear()  # the longest context may not fit into the smallest memory: use the run's settings
            wanted = need
            engine = await registry.start(wanted, need.role, wanted.settings, log_path)
        start_id = f"{started_at:%Y%m%dT%H%M%S.%f}-{socket.gethostname()}-{os.getpid()}-{need.role}"
        start = EngineStart(start_id, time.monotonic() - started)
        self._open.append(_OpenEngine(replace(wanted, kv_tokens=engine.kv_tokens), engine, start))
        return self._open[-1]

    async def _close(self, engines: Sequence[_OpenEngine]) -> None:
        self._open = [opened for opened in self._open if opened not in engines]
        outcomes = await asyncio.gather(*(opened.engine.close() for opened in engines), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


async def _is_as_new(engine: Engine) -> bool:
    """Clear the prefix cache left by the previous run; return False if the engine must not be reused.

    An engine with a restart is not reused, because it would not be replaced a second time.
    """
    if engine.restarts:
        return False
    try:
        async with asyncio.timeout(_RESET_SECONDS):  # a dying engine may not answer
            while not await engine.reset_prefix_cache():
                await asyncio.sleep(_RESET_POLL_SECONDS)
    except (EngineDied, TimeoutError):
        return False
    return not engine.restarts
