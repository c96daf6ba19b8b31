"""Estimate the cost of suites' runs from recorded runs of the same settings, otherwise from published values.

Suites may share a run: one may publish its latency, another its token counts. So a published value is assigned to the
setting that was measured, not to the row in which it is printed. Latencies depend on the generated text, the samples in
flight and the machine. Token counts depend only on the generated text.

Published latencies are for one sample in flight. They are also used for runs in full batches, to estimate the time of
their samples timed one at a time (`--latency-sample`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from harness.engines import placement
from harness.engines.speculation import proposer, tokens_at_a_time
from harness.methods import build, run_identity, sample_identity
from harness.settings.launch_settings import Launch
from harness.sizing.memory import cards_of_worker
from harness.weights import models
from jobs.forecast import Forecast, check_forecasts
from jobs.preparation import PreparedLaunch
from warehouse.suites import published, run_cost
from warehouse.suites.comparability import run_columns
from warehouse.suites.published import Planned, Reproduction, Suite, SuiteRun, every_sample_alone, num_samples

START_SECONDS = 240.0
"""Assumed start time of a worker's engines; papers do not state it."""
_TOKENS = {"emitted_tokens": "whole", "thinking_tokens": "thought", "target_thinking_tokens": "target"}
_RATIO_NAMES = {"latency_saved": "share saved", "latency_saved_seconds": "seconds saved", "ratio_of_means": "speed-up"}
"""Names, used in `Value.source`, of measures that relate a latency to the baseline's."""
_MEAN_OF = "mean of "


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a sample's latency depends on."""

    text: Hashable
    """What determines the generated text: method, parameters, models, dataset and sampling."""
    speed: Hashable
    """What determines latency in addition: samples in flight, token-level speculation, speed-only parameters, the
    machine.
    """


@dataclass(frozen=True, slots=True)
class Value:
    """A published number, or a number derived from published ones."""

    number: float
    source: str
    """Suite that contains the number, and the ratio used to derive it, if any."""
    includes: str = "sample"


_Ratio = tuple[str, float, str, Setting, Setting]
"""A measure in _RATIO_NAMES, its published value, the suite's name, and the settings of the run and its baseline."""


@dataclass(frozen=True)
class Published:
    """All published values that affect costs."""

    seconds: defaultdict[Setting, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Latency per sample."""
    wall_rates: defaultdict[Setting, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Emitted tokens per second over all samples in flight."""
    tokens: defaultdict[tuple[Hashable, str], list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Tokens per sample, by `Setting.text` and the kind of count (a value of `_TOKENS`)."""

    def count(self, text: Hashable, *names: str) -> Value | None:
        """Return the mean published value of the first of these counts that has published values."""
        return next((mean(values) for name in names if (values := self.tokens.get((text, name)))), None)


def mean(values: Iterable[Value]) -> Value:
    """Return the mean of the distinct numbers, with all sources.

    If there are several numbers, the source lists each. If one differs by more than 25 % from the mean, the source
    notes that the paper contradicts itself.
    """
    values = list(values)
    sources: dict[float, dict[str, None]] = {}
    for value in values:
        sources.setdefault(value.number, {})[value.source] = None
    named = {number: ", ".join(of) for number, of in sources.items()}
    average = sum(named) / len(named)
    source = ", ".join(named.values())
    if len(named) > 1:
        source = _MEAN_OF + ", ".join(f"{number:,.5g} ({of})" for number, of in named.items())
    if any(abs(number / average - 1) > 0.25 for number in named):
        source += "; the paper contradicts itself"
    return Value(average, source, values[0].includes)


@lru_cache(maxsize=1)
def everything() -> Published:
    found, ratios = Published(), list[_Ratio]()
    for suite in map(published.load, published.names()):
        plans = list(published.planned(suite))
        settings = {(p.row.label, p.column): setting(suite, p, published.launch_of(p.flags)) for p in plans}
        for plan in plans:
            # Values are listed in the column where the paper prints them. Their runs may belong to another column.
            column = suite.columns[plan.column].costs_of or plan.column
            own = settings[plan.row.label, column]
            for name, number in plan.row.values.get(plan.column, {}).items():
                _enter(found, suite, plan, own, name, number)
                measure, other = (
                    suite.metrics[name].measure,
                    settings.get((suite.baseline(plan.row, name) or "", column)),
                )
                if measure in _RATIO_NAMES and other:
                    ratios.append((measure, number, suite.name, own, other))
    _follow(found, ratios)
    return found


def setting(suite: Suite, plan: Planned, launch: Launch) -> Setting:
    """Return the setting of a suite's run with this launch, whose flags may differ from the suite's."""
    params = dict(launch.parameters)
    alone = launch.method in ("vanilla", "specdecode")
    roles = ("target",) if launch.method == "specdecode" else build(launch.method, params).roles
    names = {role: models.resolve(name).name for role in roles if (name := launch.models[role])}
    identity = {} if alone else sample_identity(launch.method, params)
    text = (
        "alone" if alone else launch.method,
        frozenset(identity.items()),
        # A model alone is the same in either role. An aligned draft has its base model's name, so model_of is needed.
        (*(names.values() if alone else sorted(names.items())), plan.row.model_of),
        (launch.dataset, launch.temperature, launch.top_p, launch.token_budget),
    )
    proposing = proposer(launch.method, launch.spec_decode)
    changed = {name: value for name, value in run_identity(launch.method, params).items() if name not in identity}
    speed = (
        launch.concurrency,
        frozenset({} if alone else changed.items()),
        (proposing, tokens_at_a_time(proposing, launch.spec_tokens), launch.spec_model, launch.take_turns),
        (
            num_gpus(launch),
            launch.draft.gpus,
            launch.target.gpus,
            # A tensor-parallel size chosen by the nodes counts as 1.
            *(launch.roles[role].tensor_parallel or 1 for role in roles),
            frozenset(re.findall(r"[AH]\d{2,4}", suite.devices)),
        ),
    )
    return Setting(text, speed)


def num_gpus(launch: Launch) -> int:
    """Return the number of GPUs per worker, from the launch's flags."""
    if (asked := cards_of_worker(launch.sbatch, launch.workers_per_task)) is not None:
        return asked.count
    own = {role: launch.roles[role] for role in build(launch.method, dict(launch.parameters)).roles}
    widths = {role: settings.tensor_parallel or 1 for role, settings in own.items()}
    return placement.num_cards({role: settings.gpus for role, settings in own.items()}, widths)


def _enter(found: Published, suite: Suite, plan: Planned, own: Setting, name: str, number: float) -> None:
    metric = suite.metrics[name]
    includes = plan.row.includes or metric.includes
    value = Value(number, suite.name, includes)
    if metric.measure == "latency_seconds":
        found.seconds[own].append(value)
    elif metric.measure == "emitted_tokens_per_wall_second":
        found.wall_rates[own].append(value)
    elif count := _TOKENS.get(metric.measure):
        found.tokens[own.text, "thought" if (count, includes) == ("whole", "thought") else count].append(value)


def _follow(found: Published, ratios: Sequence[_Ratio]) -> None:
    """Add latencies derived from published ratios, for settings without a published latency."""
    new: dict[Setting, list[Value]] | None = None
    while new is None or new:
        new = defaultdict(list)
        for measure, number, suite, own, base in ratios:
            for known, other, of_baseline in ((own, base, True), (base, own, False)):
                if other not in found.seconds and (values := found.seconds.get(known)):
                    first = mean(values)
                    comma = "," if first.source.startswith(_MEAN_OF) else ""
                    source = f"{first.source}{comma} with the {_RATIO_NAMES[measure]} of {suite}"
                    seconds = _other_seconds(measure, number, first.number, of_baseline=of_baseline)
                    new[other].append(Value(seconds, source, first.includes))
        for key, values in new.items():
            found.seconds[key].extend(values)


def _other_seconds(measure: str, number: float, seconds: float, *, of_baseline: bool) -> float:
    """Return the latency of a run's baseline from the run's latency, or vice versa."""
    if measure == "latency_saved_seconds":
        return seconds + number if of_baseline else seconds - number
    ratio = 1 / (1 - number / 100) if measure == "latency_saved" else number
    return seconds * ratio if of_baseline else seconds / ratio


def from_published(launch: Launch, own: Setting, known: Published) -> Forecast | None:
    """Estimate the cost from published values; None if they do not determine this launch's latency."""
    seconds = _published_seconds(launch, own, known)
    if seconds is None:
        return None
    number, gpus = num_samples(launch), num_gpus(launch)
    worker_hours = (START_SECONDS + seconds.number * number / min(launch.concurrency, number)) / 3600
    return Forecast(worker_hours, worker_hours * max(1, gpus), worker_hours * max(1, gpus), gpus, seconds.source)


def _published_seconds(launch: Launch, own: Setting, known: Published) -> Value | None:
    if values := known.seconds.get(own):
        latency = mean(values)
        of = "per sample" if latency.includes != "thought" else "for the reasoning only, excluding the answer"
        return Value(latency.number, f"published: {latency.number:,.4g} s {of}, {latency.source}")
    tokens = known.count(own.text, "whole", "thought")
    if tokens is not None and (values := known.wall_rates.get(own)):
        rate = mean(values)
        words = f"published: {rate.number:g} tokens/s, {rate.source}; {tokens.number:,.5g} tokens, {tokens.source}"
        return Value(launch.concurrency * tokens.number / rate.number, words)
    return None


def estimated(asked: Reproduction, launch: Launch, plan: Planned) -> Forecast | None:
    """Estimate the cost of a launch of a planned run, from similar recorded runs or otherwise from published values."""
    if from_runs := run_cost.from_history(launch, run_columns(launch), num_samples(launch), asked.database):
        return from_runs
    return from_published(launch, setting(asked.suite, plan, launch), everything())


def timing_hours(asked: Reproduction, run: SuiteRun) -> float:
    """Return the GPU-hours of the run's timing samples; 0 if it has none, or if the hours are unknown."""
    launch = run.launch
    has_latencies = not asked.suite.times.isdisjoint({"latency_seconds", "speed_up", *_RATIO_NAMES})
    if launch is None or launch.latency_sample is None or not has_latencies:
        return 0.0
    every = estimated(asked, every_sample_alone(launch), run.plan)
    samples_alone = max(0.0, every.gpu_hours - START_SECONDS / 3600 * num_gpus(launch)) if every else 0.0
    return samples_alone * min(1.0, launch.latency_sample / num_samples(launch))


def check_budget(asked: Reproduction, runs: Sequence[SuiteRun], prepared: Sequence[PreparedLaunch]) -> None:
    """Raise ValueError if the estimated remaining cost exceeds `asked.max_gpu_hours` or is unknown."""
    left = {
        planned.run.path.name: _part_left(asked, run, planned)
        for run, planned in zip(runs, prepared, strict=True)
        if planned.is_work_left
    }
    check_forecasts(left, asked.max_gpu_hours or 0.0)


def _part_left(asked: Reproduction, run: SuiteRun, planned: PreparedLaunch) -> Forecast | None:
    """Return the estimated remaining cost of a run."""
    cost = estimated(asked, run.launch, run.plan) if run.launch else None
    if cost is None:
        return None
    share = planned.num_left / planned.plan.spec.num_samples
    timing = timing_hours(asked, run) * planned.num_to_time / (planned.launch.latency_sample or 1)
    return replace(
        cost,
        worker_hours=(cost.hours * share + timing) / max(1, cost.num_gpus),
        low=cost.low * share + timing,
        high=cost.high * share + timing,
    )
