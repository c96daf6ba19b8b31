"""The probes of a suite: runs that judge drafts are probed once they are finished, where the suite asks for it.

The target is the same in all of them, so that probes with the same settings of it follow each other in one engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from harness.engines import registry
from harness.methods import build
from harness.plural import counted
from harness.settings.launch_settings import Launch, PartialLaunch
from harness.settings.roles import ModelSettings
from jobs import costs, launching, launching_several
from jobs.after import warehouse
from jobs.preparation import PreparedLaunch
from jobs.probing import launch
from jobs.probing.points import NothingToProbe
from jobs.probing.settings import ProbeSettings
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder

_WHERE = (
    "output", "cluster", "profile", "slurm", "shards", "shards_per_task", "workers_per_task",
    "accept_code_change",
)  # fmt: skip
"""Flags of a run that its probe has, too."""
_OF_THE_PAIR = ("take_turns", "spec_decode", "spec_model", "spec_sampling", "spec_tokens")
"""Settings that the target alone does not have."""


def probed(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Return the launches whose runs are probed: of methods with both models, each once.

    Of runs that differ in their number of samples in flight, and in how many problems and samples they have, that is
    the first: a table `[latency]` adds the others.
    """
    found: dict[Any, PreparedLaunch] = {}
    for prepared in launches:
        if {"draft", "target"} <= set(build(prepared.launch.method, dict(prepared.launch.parameters)).roles):
            found.setdefault(_setting(prepared.launch), prepared)
    return list(found.values())


def _setting(asked: Launch) -> str:
    size = ("concurrency", "limit", "problems", "samples", "latency_sample", "target_logprobs")
    return repr({name: value for name, value in vars(asked).items() if name not in size})


def in_words(launches: Sequence[PreparedLaunch], settings: ProbeSettings) -> str:
    """Say what the probes of these launches look at, and the most that they are likely to take."""
    forecasts = []
    for prepared in probed(launches):
        alone = _target_alone(prepared).changed(concurrency=settings.concurrency)
        spec = launching.prepare(alone.changed(latency_sample=None)).plan.spec
        forecasts.append(warehouse.forecast(prepared.run, alone, spec, settings.num_continuations, None))
    told = f"Then a probe of {counted(len(forecasts), 'run')}: {settings.in_words}."
    return f"{told} It takes at most as much as whole chains of the target alone. {costs.total_of(forecasts)}"


def _target_alone(own: PreparedLaunch) -> Launch:
    """Return the launch of the target alone with everything else as another launch has it."""
    launch, target = own.launch, own.plan.spec.target
    alone = replace(launch.target, adapter=None)
    if target is not None and registry.capabilities(launch.engine).runs_models and alone.model is None:
        alone = replace(alone, model=target.name)  # each method has a default of its own
    none = ModelSettings()
    of_pair = {name: getattr(PartialLaunch, name) for name in _OF_THE_PAIR}
    return launch.changed(method="vanilla", parameters={}, draft=none, reward=none, target=alone, **of_pair)


def follow(
    launches: Sequence[PreparedLaunch],
    settings: ProbeSettings | None,
    console: Console,
) -> list[RunFolder]:
    """Probe the runs of a suite that asks for it, or say how to, where they are not finished yet; see `start`."""
    if settings is None:
        return []
    if any(num_unfinished(prepared.run) for prepared in probed(launches)):
        console.print("Its runs are probed once they are finished: run the same command again then.", soft_wrap=True)
        return []
    return start(launches, settings, console)


def start(
    launches: Sequence[PreparedLaunch],
    settings: ProbeSettings,
    console: Console,
) -> list[RunFolder]:
    """Probe those of these launches that judge drafts, and return the runs of the probes; started again, it goes on.

    A run without a decision to look at is named and left out. Raises what planning and starting a probe raise.
    """
    planned = list(_planned(probed(launches), settings, console))
    prepared = [probe.prepared for probe in planned]
    launching.check(prepared)
    for probe in planned:
        launch.create(probe)
    return launching_several.carry_out_several(prepared, console) if prepared else []


def _planned(launches: Sequence[PreparedLaunch], settings: ProbeSettings, console: Console) -> Iterator[launch.Probe]:
    for prepared in launches:
        asked = prepared.launch
        flags = {**{name: getattr(asked, name) for name in _WHERE}, **asked.sbatch, "concurrency": settings.concurrency}
        try:
            yield launch.plan(prepared.run, settings.points, settings.rollouts, settings.seed, flags)
        except NothingToProbe as reason:
            console.print(f"Not probed: {reason}", style="bold yellow", markup=False, soft_wrap=True)
