"""Opens the engines of one worker one after the other, and closes them together whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol

from harness.engine import Engine, Role
from harness.engines.settings import EngineSettings


class ModelSource(Protocol):
    """Where a model is stored."""

    @property
    def path(self) -> str:
        """A local folder, or a hub id that the cache holds."""

    @property
    def revision(self) -> str | None:
        """The commit of a hub id; None for a local folder."""


@contextlib.asynccontextmanager
async def open_engines(
    draft: ModelSource | None,
    target: ModelSource | None,
    roles: tuple[Role, ...],
    settings: Mapping[Role, EngineSettings],
    log_dir: Path,
) -> AsyncIterator[dict[Role, Engine]]:
    """Yield engines by role, and close all of them on exit. Raises EngineDied where an engine does not start.

    The engines start one after the other, the large one first: engines that start together misjudge each other's
    memory. The same model in both roles gets two engines, so that all methods of a comparison share the machine alike.
    """
    sources: dict[Role, ModelSource | None] = {"target": target, "draft": draft}
    engines: dict[Role, Engine] = {}
    try:
        for role, source in sources.items():
            if role not in roles:
                continue
            if source is None and settings[role].kind != "scripted":
                raise ValueError(f"this method needs a {role} model")
            engines[role] = await start(source, role, settings[role], log_dir / f"{role}.log")
        yield engines
    finally:
        outcomes = await asyncio.gather(*(engine.close() for engine in engines.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


async def start(source: ModelSource | None, role: Role, settings: EngineSettings, log_path: Path) -> Engine:
    """Start one engine, whose output goes to `log_path`. Raises EngineDied."""
    if settings.kind == "scripted" or source is None:
        return _scripted(role, settings)
    revision = None if Path(source.path).is_dir() else source.revision
    if settings.kind == "served":
        from harness.engines.served.served_engine import ServedEngine

        return await ServedEngine.start(source.path, role, settings, revision)
    if settings.kind == "transformers":
        from harness.engines.transformers import TransformersEngine

        return await TransformersEngine.start(source.path, role, settings, revision)
    from harness.engines.vllm import VLLMEngine

    return await VLLMEngine.start(source.path, role, settings, log_path, revision)


def _scripted(role: Role, settings: EngineSettings) -> Engine:
    from harness.engines.scripted import SCRIPTED_SECONDS, ScriptedEngine, SimulatedModel

    model = SimulatedModel(skill=0.7 if role == "draft" else 0.95)
    engine = ScriptedEngine(model.write, model.judge, seconds_per_call=float(os.environ.get(SCRIPTED_SECONDS, "0")))
    engine.mean_logprobs = settings.mean_logprobs
    engine.weigh = model.weigh
    if settings.max_context is not None:
        engine.context_tokens = settings.max_context
    return engine
