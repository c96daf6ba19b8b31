"""What the papers publish about the cost of a run, gathered from all suites.

Several suites may share a run, and one suite may publish its latency, another its token counts. So a value belongs to
the run that it was measured on, not to the row that prints it. Latencies belong to a setting: what is generated, how
many samples are in flight and on which machine. Token counts belong to the text alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from harness.engines import placement
from harness.engines.speculation import proposer, tokens_at_a_time
from harness.methods import build, run_identity, sample_identity
from harness.settings.launch_settings import Launch
from harness.sizing.memory import cards_of_worker
from harness.weights import models
from jobs.run.forecast import Forecast
from warehouse.suites import published_suites
from warehouse.suites.comparability import num_problems
from warehouse.suites.published_suites import Measure, Planned, Suite

_TOKENS: dict[Measure, str] = {
    "emitted_tokens": "whole",
    "thinking_tokens": "thought",
    "answer_tokens": "answer",
    "target_thinking_tokens": "target",
}
_RATIO_NAMES: dict[Measure, str] = {
    "latency_saved": "share saved",
    "latency_saved_seconds": "seconds saved",
    "ratio_of_means": "speed-up",
}
"""Measures that tie a latency to that of the baseline."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the latency of a sample depends on."""

    text: Hashable
    """Method, parameters, models, dataset, sampling: what is generated."""
    speed: Hashable
    """Samples in flight, token-level speculation, parameters that change the speed alone, and the machine."""


@dataclass(frozen=True, slots=True)
class Value:
    """A published number, or what follows from published numbers."""

    number: float
    source: str
    """Where it is printed, and by which ratio it follows from what is printed there."""
    includes: str = "sample"


@dataclass(frozen=True)
class Published:
    """Everything that the suites publish about costs."""

    seconds: defaultdict[Setting, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Latency of a sample."""
    wall_rates: defaultdict[Setting, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Emitted tokens of all samples in flight per second."""
    tokens: defaultdict[tuple[Hashable, str], list[Value]] = field(default_factory=lambda: defaultdict(list))
    """By text and count: `whole`, `thought`, `answer`, and for SCoT's thoughts `target`."""
    baselines: dict[Setting, Setting] = field(default_factory=dict)
    """The run that a suite compares a run with."""

    def count(self, text: Hashable, *names: str) -> Value | None:
        """Return the mean of the published values of the first of these counts that has any."""
        return next((mean(values) for name in names if (values := self.tokens.get((text, name)))), None)

    def target_seconds_per_token(self, own: Setting) -> float | None:
        """Return the time per token of the run's baseline, the target alone, by the length and time of its thought.

        A run that is nobody's is its own baseline. None if one of the two is not published.
        """
        base = self.baselines.get(own, own)
        tokens = self.count(base.text, "thought", "target")
        seconds = [value for value in self.seconds.get(base, []) if value.includes == "thought"]
        return mean(seconds).number / tokens.number if seconds and tokens else None


def mean(values: Iterable[Value]) -> Value:
    """Return the mean of the distinct numbers, with all their sources.

    Where the numbers lie more than 25 % from their mean, the source says that the paper contradicts itself.
    """
    values = list(values)
    numbers = sorted({value.number for value in values})
    average = sum(numbers) / len(numbers)
    sources = ", ".join(dict.fromkeys(value.source for value in values))
    if any(abs(number / average - 1) > 0.25 for number in numbers):
        sources += f"; the paper contradicts itself: {', '.join(f'{number:g}' for number in numbers)}"
    return Value(average, sources, values[0].includes)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """How the latency of a run relates to that of its baseline."""

    measure: Measure
    own: Setting
    base: Setting
    value: Value

    def base_seconds(self, own: float) -> float:
        """Return the baseline's latency from the run's."""
        if self.measure == "latency_saved_seconds":
            return own + self.value.number
        if self.measure == "latency_saved":
            return own / (1 - self.value.number / 100)
        return own * self.value.number

    def own_seconds(self, base: float) -> float:
        """Return the run's latency from the baseline's."""
        if self.measure == "latency_saved_seconds":
            return base - self.value.number
        if self.measure == "latency_saved":
            return base * (1 - self.value.number / 100)
        return base / self.value.number


@lru_cache(maxsize=1)
def everything() -> Published:
    """Return what all suites publish."""
    published = Published()
    ratios: list[_Ratio] = []
    for name in published_suites.names():
        loaded = published_suites.load(name)
        settings = {
            (plan.row.label, plan.column): setting(loaded, plan, published_suites.launch_of(plan.flags))
            for plan in published_suites.planned(loaded)
            if not plan.row.awaits
        }
        for plan in published_suites.planned(loaded):
            # The values stand where the paper prints them; the costs belong to what it must have run.
            column = loaded.columns[plan.column].costs_of or plan.column
            if own := settings.get((plan.row.label, column)):
                _enter(published, loaded, plan, own)
                if base := settings.get((plan.row.baseline or "", column)):
                    published.baselines[own] = base
                ratios += _ratios(loaded, plan, own, {row: of for (row, key), of in settings.items() if key == column})
    _follow(published, ratios)
    return published


def setting(loaded: Suite, plan: Planned, launch: Launch) -> Setting:
    """Return the setting of a suite's run with this launch, which may have other flags than the suite."""
    params = dict(launch.parameters)
    alone = launch.method in ("vanilla", "specdecode")
    roles = ("target",) if launch.method == "specdecode" else build(launch.method, params).roles
    names = {role: models.resolve(name).name for role, name in _models(launch).items() if role in roles and name}
    identity = {} if alone else sample_identity(launch.method, params)
    text = (
        "alone" if alone else launch.method,
        frozenset(identity.items()),
        # One model alone is the same in either role. An aligned draft has the name of what it was aligned from.
        (*(names.values() if alone else sorted(names.items())), plan.row.model_of),
        (launch.dataset, launch.temperature, launch.top_p, launch.token_budget),
    )
    proposing = proposer(launch.method, launch.spec_decode)
    # A width that nodes choose counts as 1 here.
    parallel = {role: settings.tensor_parallel or 1 for role, settings in launch.roles.items()}
    changed = {name: value for name, value in run_identity(launch.method, params).items() if name not in identity}
    speed = (
        launch.concurrency,
        frozenset({} if alone else changed.items()),
        (proposing, tokens_at_a_time(proposing, launch.spec_tokens), launch.spec_model, launch.take_turns),
        (
            num_gpus(launch),
            launch.draft.gpus,
            launch.target.gpus,
            *(parallel[role] for role in roles),
            frozenset(re.findall(r"[AH]\d{2,4}", loaded.devices)),
        ),
    )
    return Setting(text, speed)


def num_gpus(launch: Launch) -> int:
    """Return the GPUs of a worker, by the launch's own flags."""
    roles = build(launch.method, dict(launch.parameters)).roles
    if (asked := cards_of_worker(launch.sbatch, launch.workers_per_task)) is not None:
        return asked.count
    own = {role: launch.roles[role] for role in roles}
    widths = {role: settings.tensor_parallel or 1 for role, settings in own.items()}
    return placement.num_cards({role: settings.gpus for role, settings in own.items()}, widths)


def _models(launch: Launch) -> dict[str, str | None]:
    return {"draft": launch.draft.model, "target": launch.target.model}


def _enter(published: Published, loaded: Suite, plan: Planned, own: Setting) -> None:
    for name, number in plan.row.values.get(plan.column, {}).items():
        metric = loaded.metrics[name]
        includes = plan.row.includes or metric.includes
        value = Value(number, loaded.name, includes)
        if metric.measure == "latency_seconds":
            published.seconds[own].append(value)
        elif metric.measure == "emitted_tokens_per_wall_second":
            published.wall_rates[own].append(value)
        elif metric.measure and (count := _TOKENS.get(metric.measure)):
            published.tokens[own.text, "thought" if (count, includes) == ("whole", "thought") else count].append(value)


def _ratios(loaded: Suite, plan: Planned, own: Setting, settings: Mapping[str, Setting]) -> list[_Ratio]:
    """Return the published ratios of a run; settings: by row of its column."""
    return [
        _Ratio(measure, own, base, Value(number, f"by the {_RATIO_NAMES[measure]} of {loaded.name}"))
        for name, number in plan.row.values.get(plan.column, {}).items()
        if (measure := loaded.metrics[name].measure) in _RATIO_NAMES
        and (base := settings.get(loaded.baseline(plan.row, name) or ""))
    ]


def _follow(published: Published, ratios: list[_Ratio]) -> None:
    """Enter the latencies that follow from others by a published ratio, where none is published itself."""
    while True:
        new: dict[Setting, list[Value]] = defaultdict(list)
        for ratio in ratios:
            for known, other, seconds in (
                (ratio.own, ratio.base, ratio.base_seconds),
                (ratio.base, ratio.own, ratio.own_seconds),
            ):
                if other not in published.seconds and (values := published.seconds.get(known)):
                    first = mean(values)
                    new[other].append(
                        Value(seconds(first.number), f"{first.source} {ratio.value.source}", first.includes)
                    )
        if not new:
            return
        for key, values in new.items():
            published.seconds[key].extend(values)


START_SECONDS = 240.0
"""Until the engines of a worker are up: an assumption, as no paper states it."""


def from_published(launch: Launch, own: Setting, published: Published) -> Forecast | None:
    """Estimate from the latency that the papers have of this run; None where they say nothing of it."""
    seconds = _published_seconds(launch, own, published)
    if seconds is None:
        return None
    number, gpus = _num_samples(launch), num_gpus(launch)
    hours = (START_SECONDS + seconds.number * number / min(launch.concurrency, number)) / 3600
    return Forecast(hours, hours * max(1, gpus), hours * max(1, gpus), gpus, seconds.source)


def _num_samples(launch: Launch) -> int:
    return num_problems(launch) * launch.samples


def _published_seconds(launch: Launch, own: Setting, published: Published) -> Value | None:
    """Return the latency of a whole sample as the papers have it, None where they say nothing of it."""
    if values := published.seconds.get(own):
        latency = mean(values)
        if latency.includes == "thought":
            return _with_answer(own, published, latency)
        return Value(latency.number, f"published: {latency.number:,.4g} s a sample, {latency.source}")
    tokens = published.count(own.text, "whole", "thought")
    if tokens is not None and (values := published.wall_rates.get(own)):
        rate = mean(values)
        words = f"published: {rate.number:g} tokens/s, {rate.source}; {tokens.number:,.5g} tokens, {tokens.source}"
        return Value(launch.concurrency * tokens.number / rate.number, words)
    return None


def _with_answer(own: Setting, published: Published, thought: Value) -> Value:
    """Add the time of the answer to that of the thought where a paper publishes the answer's length.

    The target writes the answer as fast as it writes a thought alone.
    """
    words = f"published: {thought.number:,.4g} s of thought, {thought.source}"
    answer, speed = published.count(own.text, "answer"), published.target_seconds_per_token(own)
    if answer is None or speed is None:
        return Value(thought.number, f"{words}; the answer's time is not published and not in it")
    seconds = answer.number * speed
    words += f", and {seconds:,.4g} s for an answer of {answer.number:g} tokens, {answer.source}"
    return Value(thought.number + seconds, words)
