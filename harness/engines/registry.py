"""The engines by name, what each can do, and how they are started.

An engine is a class with `start` in a module of its own, and an entry in `_ENGINES`. Nothing outside this folder asks
for an engine's name. A module is imported when its engine starts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from harness.engine import Engine, Role

if TYPE_CHECKING:
    from harness.engines.settings import EngineSettings

SERVED = "served"
"""The engine of models that servers run. Nobody chooses it by name: a model is named by its server's address."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine needs and can do, as launch, checks and reports ask for it."""

    place: str
    """Module and class."""
    runs_models: bool = True
    """It loads the models that a launch names, with their tokenizers and chat templates."""
    counts_as_result: bool = True
    """What is written says something of a method or a model."""
    runs_here: bool = True
    """The worker's machine computes, and not a server."""
    max_cards: int | None = None
    """Most GPUs of one engine: None for any number, 0 where it uses none."""
    is_planned: bool = False
    """Its width and its share of a GPU's memory are planned (harness.sizing)."""
    takes_arguments: bool = False
    """It takes arguments of vLLM's engine (`--target.engine`)."""
    speculates: bool = False
    """It verifies proposed tokens (`--spec-decode`)."""
    adapter_packages: tuple[str, ...] | None = None
    """Packages that it needs to give verdicts with an adapter; None where it cannot."""
    has_processes: bool = False
    """It runs in processes of its own, with cores of their own on a CPU, and takes as long to start as many samples."""
    has_prefix_cache: bool = True
    is_reference: bool = False
    """Other engines' verdicts are compared with its own."""
    packages: tuple[str, ...] = ()
    """Packages that it needs beside those of the project."""


_ENGINES: Mapping[str, Capabilities] = {
    "vllm": Capabilities(
        "harness.engines.vllm:VLLMEngine",
        is_planned=True,
        takes_arguments=True,
        speculates=True,
        adapter_packages=(),
        has_processes=True,
        packages=("vllm",),
    ),
    "transformers": Capabilities(
        "harness.engines.transformers:TransformersEngine",
        max_cards=1,
        adapter_packages=("peft",),
        has_prefix_cache=False,
        is_reference=True,
        packages=("transformers", "torch"),
    ),
    "scripted": Capabilities(
        "harness.engines.scripted:ScriptedEngine", runs_models=False, counts_as_result=False, max_cards=0
    ),
    SERVED: Capabilities("harness.engines.served.served_engine:ServedEngine", runs_here=False, max_cards=0),
}
CHOICES = tuple(name for name in _ENGINES if name != SERVED)
"""What `--engine` takes; `auto` takes the first one that runs models and is installed."""
AUTO = "auto"


class ModelSource(Protocol):
    """Where a model is stored."""

    @property
    def path(self) -> str:
        """A local folder, or a hub id that the cache holds."""

    @property
    def revision(self) -> str | None:
        """The commit of a hub id; None for a local folder."""


class EngineClass(Protocol):
    """How an engine is started."""

    async def start(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> Engine:
        """Start an engine whose output goes to `log_path`. Raises EngineDied.

        `model_path`: a folder or a hub id with its `revision`; empty for an engine that runs no model.
        """


def engine_class(name: str) -> EngineClass:
    """Return the class of an engine. Raises ValueError, in one line, where there is none of that name."""
    module, _, attribute = capabilities(name).place.partition(":")
    return cast(EngineClass, getattr(import_module(module), attribute))


def capabilities(name: str) -> Capabilities:
    """Return what an engine can do; for `auto`, the one that it stands for on this machine. Raises ValueError."""
    if (known := _ENGINES.get(resolved(name))) is None:
        raise ValueError(f"no engine is called {name!r}; valid: {', '.join(CHOICES)}")
    return known


def resolved(name: str, *, is_here: bool = True) -> str:
    """Return the engine that a name stands for: `auto` is the first that runs models and is installed, or the last.

    Where the engine does not run in this Python it is the first: a worker says so where its own lacks it.
    """
    if name != AUTO:
        return name
    names = [name for name in CHOICES if capabilities(name).runs_models]
    return next((name for name in names if not missing_packages(name)), names[-1]) if is_here else names[0]


def missing_packages(name: str) -> list[str]:
    """Return the packages of an engine that this Python lacks."""
    return [package for package in capabilities(name).packages if find_spec(package) is None]


def uncounted() -> list[str]:
    """Return the engines whose answers are no results."""
    return [name for name in CHOICES if not capabilities(name).counts_as_result]


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
            if role in roles:
                engines[role] = await start(source, role, settings[role], log_dir / f"{role}.log")
        yield engines
    finally:
        outcomes = await asyncio.gather(*(engine.close() for engine in engines.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


async def start(source: ModelSource | None, role: Role, settings: EngineSettings, log_path: Path) -> Engine:
    """Start one engine, whose output goes to `log_path`. Raises EngineDied, and ValueError where it lacks a model."""
    if source is None and capabilities(settings.kind).runs_models:
        raise ValueError(f"this method needs a {role} model")
    path, revision = (source.path, source.revision) if source is not None else ("", None)
    revision = None if Path(path).is_dir() else revision
    return await engine_class(settings.kind).start(path, role, settings, log_path, revision)
