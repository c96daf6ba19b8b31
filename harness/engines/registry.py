"""The engines by name, their capabilities, and their start.

An engine is a class with a `start` method in a separate module, and an entry in `_ENGINES`. Most code outside this
folder depends on capabilities instead of engine names. A module is imported only when its engine starts.
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
"""Name of the engine for served models. It is selected by a server address as the model, not by this name."""


@dataclass(frozen=True)
class Capabilities:
    """Capabilities and requirements of an engine, read by launches, checks and reports."""

    place: str
    """`module:Class`."""
    runs_models: bool = True
    """Whether it uses the models of the launch, with their tokenizers and chat templates."""
    counts_as_result: bool = True
    """Whether its texts are valid results for a method or model."""
    runs_here: bool = True
    """Whether it computes on the worker's machine instead of a server."""
    max_cards: int | None = None
    """Maximum number of GPUs per engine: None for any number, 0 for none."""
    is_planned: bool = False
    """Whether its tensor-parallel size and its share of a GPU's memory are planned (harness.sizing)."""
    takes_arguments: bool = False
    """Whether it accepts arguments of vLLM's engine (`--target.engine`)."""
    speculates: bool = False
    """Whether it verifies proposed tokens (`--spec-decode`)."""
    adapter_packages: tuple[str, ...] | None = None
    """Packages required for verdicts with an adapter; None if adapters are unsupported."""
    has_processes: bool = False
    """Whether it has its own processes and, on a CPU, its own cores. Starting it takes as long as many samples do."""
    has_prefix_cache: bool = True
    is_reference: bool = False
    """Whether other engines' verdicts are compared with its verdicts."""
    packages: tuple[str, ...] = ()
    """Required packages in addition to the project's."""


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
"""Values of `--engine`, besides `auto`, which selects the first installed engine that runs models."""
AUTO = "auto"


class ModelSource(Protocol):
    """Location of a model's files."""

    @property
    def path(self) -> str:
        """A local folder, or a hub id in the cache."""

    @property
    def revision(self) -> str | None:
        """The commit of a hub id; None for a local folder."""


class EngineClass(Protocol):
    """Interface of an engine's class."""

    async def start(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> Engine:
        """Start an engine that logs to `log_path`. Raises EngineDied.

        `model_path`: a folder, or a hub id with a `revision`; empty for an engine without a model.
        """


def engine_class(name: str) -> EngineClass:
    """Return the class of an engine. Raises ValueError, in one line, if the name is unknown."""
    module, _, attribute = capabilities(name).place.partition(":")
    return cast(EngineClass, getattr(import_module(module), attribute))


def capabilities(name: str) -> Capabilities:
    """Return an engine's capabilities; `auto` is resolved for this machine. Raises ValueError."""
    if (known := _ENGINES.get(resolved(name))) is None:
        raise ValueError(f"unknown engine {name!r}; valid: {', '.join(CHOICES)}")
    return known


def resolved(name: str, *, is_here: bool = True) -> str:
    """Resolve an engine name: `auto` is the first installed engine that runs models.

    If none is installed, `auto` is the last engine in CHOICES that runs models. If the engine runs in another Python
    environment (`is_here` is false), `auto` is the first engine that runs models, and the worker reports missing
    packages.
    """
    if name != AUTO:
        return name
    names = [name for name in CHOICES if capabilities(name).runs_models]
    return next((name for name in names if not missing_packages(name)), names[-1]) if is_here else names[0]


def missing_packages(name: str) -> list[str]:
    """Return the engine's required packages that are missing from this Python environment."""
    return [package for package in capabilities(name).packages if find_spec(package) is None]


def uncounted() -> list[str]:
    """Return the engines whose answers do not count as results."""
    return [name for name in CHOICES if not capabilities(name).counts_as_result]


@contextlib.asynccontextmanager
async def open_engines(
    draft: ModelSource | None,
    target: ModelSource | None,
    roles: tuple[Role, ...],
    settings: Mapping[Role, EngineSettings],
    log_dir: Path,
) -> AsyncIterator[dict[Role, Engine]]:
    """Yield engines by role, and close all of them on exit. Raises EngineDied if an engine does not start.

    Scoring, the doctor and benchmarks use it; runs share engines (harness.engines.pool). Only the roles draft and
    target are opened. The engines start one after the other, the large one first: each start measures the free memory,
    which a parallel start would change. Even if both roles have the same model, there are two engines.
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
    """Start one engine that logs to `log_path`. Raises EngineDied, and ValueError if a required model is missing."""
    if source is None and capabilities(settings.kind).runs_models:
        raise ValueError(f"this method needs a {role} model")
    path, revision = (source.path, source.revision) if source is not None else ("", None)
    revision = None if Path(path).is_dir() else revision
    return await engine_class(settings.kind).start(path, role, settings, log_path, revision)
