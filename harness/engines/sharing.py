"""Which settings of an engine two runs must have in common to use one engine, and how each keeps its own limits.

An engine serves two runs where nothing but these settings differs from what each would have alone:

- the context: a run's own limit holds for its requests (`LeasedEngine`), and the engine is opened with the longest. On
  a CPU a context beyond one batch of vLLM also sets the size of a batch, so there it must be equal;
- the number of sequences, on a CPU: it only limits how many requests run at once, and memory is set separately. It must
  be equal for a run that may send more requests than its own number, because alone they would wait. On a GPU vLLM also
  sizes its CUDA graphs and buffers by it, so there it must always be equal.

Everything else must be equal: it decides speed or what is written, and vLLM cannot change it while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.engine import Choice, Engine, Generation, Likelihood, RequestRefused, Role, Sampling
from harness.engines.settings import EngineSettings
from harness.engines.vllm_arguments import batched_tokens
from harness.engines.wrapper import EngineWrapper


@dataclass(frozen=True)
class EngineNeed:
    """One engine of a run, as the run would start it alone."""

    role: Role
    path: str
    """The model: a local folder, or a hub id that the cache holds."""
    revision: str | None
    settings: EngineSettings
    may_queue: bool = field(default=False, compare=False)
    """True if the run may send more requests at a time than `settings.max_num_seqs`."""


def may_share(one: EngineNeed, other: EngineNeed) -> bool:
    """Return True if one engine can serve both needs."""
    must_be_equal = one.settings.device != "cpu" or one.may_queue or other.may_queue
    if must_be_equal and one.settings.max_num_seqs != other.settings.max_num_seqs:
        return False
    return _in_common(one) == _in_common(other)


def serving_all(needs: Sequence[EngineNeed]) -> EngineSettings:
    """Return the settings of an engine that serves all of these needs, which may share one."""
    settings = needs[0].settings
    return replace(
        settings,
        max_context=_largest(need.settings.max_context for need in needs),
        max_num_seqs=max(need.settings.max_num_seqs for need in needs),
    )


def _in_common(need: EngineNeed) -> EngineNeed:
    """Return the need without what may differ."""
    settings = need.settings
    batched = batched_tokens(settings, settings.max_context) if settings.kind == "vllm" else None
    common = replace(
        settings,
        max_context=None,
        max_num_batched_tokens=batched,
        max_num_seqs=1,
    )
    return replace(need, settings=common)


def _largest(contexts: Iterable[int | None]) -> int | None:
    """Return the largest context; None, the model's limit, is larger than any."""
    known = list(contexts)
    return None if None in known else max(context for context in known if context is not None)


@dataclass(frozen=True)
class EngineStart:
    """One start of an engine, which may serve several runs."""

    start_id: str
    """Time, host, process and role: unique."""
    seconds: float


class LeasedEngine(EngineWrapper):
    """A shared engine as one run uses it: with the run's own context, and without closing it."""

    def __init__(self, engine: Engine, role: Role, max_context: int | None, start: EngineStart, *, is_warm: bool):
        super().__init__(engine, role)
        self._max_context = max_context
        self.start = start
        self.is_warm = is_warm
        """True if an earlier run has used this start."""

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus completion that the engine would accept if the run had started it alone."""
        limit = self._engine.context_tokens
        return limit if self._max_context is None else min(limit, self._max_context)

    @property
    def draft_sample_method(self) -> str | None:
        """How the engine samples the tokens that a model proposes; None where no model proposes any."""
        method: str | None = getattr(self._engine, "draft_sample_method", None)
        return method

    @property
    def model_runner(self) -> str | None:
        """Which of vLLM's model runners computes, `v1` or `v2`; None for other engines, and where vLLM does not say."""
        runner: str | None = getattr(self._engine, "model_runner", None)
        return runner

    @property
    def server_report(self) -> dict[str, object] | None:
        """What is known of the server that runs the model; None where the worker started the engine."""
        report: dict[str, object] | None = getattr(self._engine, "report", None)
        return report

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Engine.generate within the run's context."""
        room = self._room(prompt)
        return await self._engine.generate(
            prompt, sampling if sampling.max_tokens <= room else replace(sampling, max_tokens=room)
        )

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Engine.choose within the run's context."""
        self._room(prompt)
        return await self._engine.choose(prompt, options)

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """Engine.log_probabilities within the run's context."""
        self._room([*prompt, *continuation])
        return await self._engine.log_probabilities(prompt, continuation)

    async def close(self) -> None:
        """Do nothing: the engine's pool closes it."""

    def _room(self, prompt: Sequence[int]) -> int:
        """Return how many tokens may follow a prompt. Raises RequestRefused where it fills the context."""
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise RequestRefused(f"a prompt of {len(prompt)} tokens in a context of {self.context_tokens}")
        return room
