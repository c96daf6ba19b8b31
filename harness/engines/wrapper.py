"""A wrapper around an engine, to change or to observe its requests."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine import Choice, Engine, Generation, Likelihood, Role, Sampling, Tokenizer


class EngineWrapper:
    """Passes every request on to the inner engine; subclasses override what they change."""

    def __init__(self, engine: Engine, role: Role) -> None:
        self._engine = engine
        self._role: Role = role

    @property
    def tokenizer(self) -> Tokenizer:
        """See Engine."""
        return self._engine.tokenizer

    @property
    def context_tokens(self) -> int:
        """See Engine."""
        return self._engine.context_tokens

    @property
    def kv_tokens(self) -> int | None:
        """See Engine."""
        return self._engine.kv_tokens

    @property
    def restarts(self) -> int:
        """See Engine."""
        return self._engine.restarts

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """See Engine."""
        return await self._engine.generate(prompt, sampling)

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """See Engine."""
        return await self._engine.choose(prompt, options)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """See Engine."""
        return await self._engine.log_probabilities(prompt, continuation)

    async def reset_prefix_cache(self) -> bool:
        """See Engine."""
        return await self._engine.reset_prefix_cache()

    async def close(self) -> None:
        """See Engine."""
        await self._engine.close()
