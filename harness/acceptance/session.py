"""The engines of the checks: opened when a check first needs them, and kept for the checks that follow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.acceptance import sizes
from harness.acceptance.outcome import CheckFailed, NotApplicable
from harness.acceptance.plan import Plan, PlannedModel
from harness.engine import Engine, EngineDied, Role
from harness.engines.factory import open_engines
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import DEFAULT_TOKENS, Speculation
from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.sizing.job_cards import cards_here
from harness.sizing.plan import DoesNotFit
from harness.sizing.plan import Plan as SizingPlan
from harness.weights import models

PAIR, REAL, PLAIN = "pair", "real sizes", "float32"
"""Both models as a run opens them; models of real size with random weights; the target alone in float32."""
CANDIDATES = 3
"""Candidates of a step, in every check that drafts several."""
_CONTEXT_TOKENS = 1024
_IN_FLIGHT = {"gpu": 256, "cpu": 64}
_SMALL_CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class Opened:
    """What a set of engines is started with."""

    models: Mapping[Role, PlannedModel]
    settings: Mapping[Role, EngineSettings]
    plan: SizingPlan | None = None
    """What was chosen for the cards; None on a CPU, and where nothing is known of the models."""
    engines: Mapping[Role, Engine] = field(default_factory=dict)


class Session:
    """One set of engines at a time, under its name: `pair`, `real sizes`, `float32`, or who proposes tokens."""

    def __init__(self, plan: Plan, announce_start: Callable[[], None], say: Callable[[str], None]) -> None:
        """`announce_start` is called before engines start, and `say` with lines of progress."""
        self.plan, self.announce_start = plan, announce_start
        self.start_seconds: list[tuple[str, float]] = []
        """Name and seconds of every start."""
        self.found: dict[str, Any] = {}
        """What one check leaves for a later one."""
        self._say = say
        self._name: str | None = None
        self._opened: Opened | None = None
        self._stack = contextlib.AsyncExitStack()
        self._failed: set[str] = set()

    @property
    def pair_dtype(self) -> str:
        """The pair's data type: on a CPU float32, so that one start serves the checks that need float32, too."""
        return "float32" if self.plan.device == "cpu" and self.plan.kind == "vllm" else "auto"

    @property
    def plain(self) -> str:
        """The engines in which the target writes in float32 without speculation."""
        return PAIR if self.pair_dtype == "float32" else PLAIN

    @property
    def problems(self) -> list[Problem]:
        """The bundled problems: they need no network."""
        return benchmarks.load("demo")

    async def engines(self, name: str) -> Mapping[Role, Engine]:
        """Return the engines of this name. Raises as `opened` does."""
        return (await self.opened(name)).engines

    async def opened(self, name: str) -> Opened:
        """Return the engines of this name with their settings; others are closed before they start.

        Raises CheckFailed where they do not start, and NotApplicable where they cannot fit or did not start before.
        """
        if self._name == name and self._opened is not None:
            return self._opened
        if name in self._failed:
            raise NotApplicable(f"the engines ({name}) did not start")
        await self.close()
        prepared = self.prepared(name)
        self.announce_start()
        self._say(f"starting the engines ({name})")
        roles, logs, begun = tuple(prepared.settings), self.log_folder(name), time.monotonic()
        sources = (prepared.models.get("draft"), prepared.models.get("target"))
        try:
            engines = await self._stack.enter_async_context(open_engines(*sources, roles, prepared.settings, logs))
        except EngineDied as death:
            self._failed.add(name)
            raise CheckFailed(str(death).splitlines()[0]) from death
        self.start_seconds.append((name, time.monotonic() - begun))
        self._name, self._opened = name, replace(prepared, engines=engines)
        return self._opened

    async def close(self) -> None:
        """Close the engines that are open."""
        self._name, self._opened = None, None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        await stack.aclose()

    def log_folder(self, name: str) -> Path:
        """Return the folder of the output of these engines."""
        return self.plan.logs / name.replace(" ", "-")

    def prepared(self, name: str) -> Opened:
        """Return models and settings of the engines of this name, which are not started.

        Raises CheckFailed where the pair does not fit on the cards, and NotApplicable where others do not.
        """
        try:
            return self._pair(name) if name in (PAIR, REAL) else self._target_alone(name)
        except DoesNotFit as problem:
            raise (CheckFailed if name == PAIR else NotApplicable)(str(problem)) from problem

    def _pair(self, name: str) -> Opened:
        plan, width = self.plan, _IN_FLIGHT[self.plan.device]
        cards = cards_here() if plan.device == "gpu" else []
        pair: dict[Role, PlannedModel] = {"draft": plan.draft, "target": plan.target}
        if name == REAL:
            folder, tokenizer = Path(plan.work) / "models", models.pair_folder("demo-target")
            pair = sizes.real_pair(folder, tokenizer, cards, _CONTEXT_TOKENS, width, CANDIDATES)
        chosen = sizes.plan_for(cards, sizes.sizing(pair, _CONTEXT_TOKENS, width, CANDIDATES))
        settings = pair_settings(
            plan.kind,
            ("draft", "target"),
            dtype=self.pair_dtype,
            max_context=_CONTEXT_TOKENS,
            concurrency=width,
            candidates=CANDIDATES,
            device=plan.device,
            **_chosen(chosen),
        )
        if name == REAL:
            settings = {role: replace(own, load_format="dummy") for role, own in settings.items()}
        return Opened(pair, settings, chosen)

    def _target_alone(self, name: str) -> Opened:
        plan, width = self.plan, _IN_FLIGHT[self.plan.device]
        cards = cards_here() if plan.device == "gpu" else []
        speculation = self._speculation(name)
        wanted = sizes.sizing(
            {"target": plan.target},
            _CONTEXT_TOKENS,
            width,
            1,
            dtype="float32",
            speculator=plan.draft if name == "draft" else None,
            speculative_tokens=speculation.tokens if speculation else 0,
        )
        chosen = sizes.plan_for(cards, wanted)
        settings = pair_settings(
            plan.kind,
            ("target",),
            dtype="float32",
            max_context=_CONTEXT_TOKENS,
            concurrency=width,
            device=plan.device,
            speculation=speculation,
            **_chosen(chosen),
        )
        small = _SMALL_CACHE_BYTES if plan.device == "cpu" else None
        # Compared with and without speculation, where a GPU samples.
        has_logprobs = plan.device == "gpu"
        alone = {r: replace(own, kv_cache_bytes=small, mean_logprobs=has_logprobs) for r, own in settings.items()}
        return Opened({"target": plan.target}, alone, chosen)

    def _speculation(self, name: str) -> Speculation | None:
        if name == "ngram":
            return Speculation("ngram", DEFAULT_TOKENS["ngram"])
        if name == "draft":
            return Speculation("draft", DEFAULT_TOKENS["draft"], self.plan.draft.path, self.plan.draft.revision)
        return None


def _chosen(plan: SizingPlan | None) -> dict[str, Any]:
    """Return the arguments of `pair_settings` for the widths and shares of a plan."""
    if plan is None:
        return {}
    engines = plan.engines
    return {
        "tensor_parallel": {role: engine.width for role, engine in engines.items()},
        "memory": {role: engine.share for role, engine in engines.items()},
    }
