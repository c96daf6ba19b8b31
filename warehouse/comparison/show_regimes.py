"""Runs in both regimes, with one sample in flight and with several: each regime apart, then one line per setting."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from warehouse.comparison.contrasts import Comparison, Row
from warehouse.comparison.show_brief import interval_range
from warehouse.formatting import NOTHING, fixed, percent
from warehouse.labels import labels
from warehouse.summary import RunSummary

LATENCY, THROUGHPUT = "latency", "throughput"
"""The regimes as the view `run_conditions` names them."""
_MEANINGS = {
    LATENCY: "how long one answer takes when nothing else runs, as the papers time it.",
    THROUGHPUT: "how fast answers come when samples share the engines, as in an evaluation of many problems.",
}


@dataclass(frozen=True)
class Regime:
    """The rows of a comparison in one regime."""

    name: str
    rows: Sequence[Row]

    @property
    def in_flight(self) -> str:
        """The number of samples in flight, as `80`; `16 to 80` where runs differ."""
        numbers = sorted({row.run.summary.concurrency for row in self.rows})
        return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"

    @property
    def heading(self) -> str:
        """Name, samples in flight and what times in this regime mean, as one sentence."""
        samples = "sample" if self.in_flight == "1" else "samples"
        return f"{self.name.capitalize()} ({self.in_flight} {samples} in flight): {_MEANINGS[self.name]}"

    @property
    def names(self) -> Mapping[str, str]:
        """Short names of its runs by run id, which need not tell the regimes apart."""
        summaries = list({row.run.run_id: row.run.summary for row in self.rows}.values())
        return dict(zip((summary.run_id for summary in summaries), labels(summaries), strict=True))


def regimes(comparison: Comparison) -> list[Regime]:
    """Return the regimes of a comparison, latency first; none unless both are there, with baselines of their own."""
    if {len(base.regimes) for base in comparison.baselines} != {1}:
        return []
    by_name: dict[str, list[Row]] = {}
    for row in comparison.rows:
        by_name.setdefault(row.run.summary.regime, []).append(row)
    return [Regime(name, by_name[name]) for name in (LATENCY, THROUGHPUT)] if len(by_name) > 1 else []


def headers(found: Sequence[Regime]) -> list[str]:
    """Return the names of the columns of `cells`."""
    speeds = [f"speed-up,\n{regime.in_flight} in flight" for regime in found]
    return ["run", "pass@1 %", "by the\ndraft", "fallback", *speeds]


def cells(found: Sequence[Regime], intervals_of: Collection[str] = (LATENCY, THROUGHPUT)) -> list[list[str]]:
    """Return a row for each setting, with its accuracy over most samples and its speed-up in each regime.

    A setting is a method with its parameters, models and sampling on one dataset. intervals_of: the regimes whose
    speed-ups have their intervals.
    """
    settings = _settings(found)
    largest = [max(rows.values(), key=lambda row: row.outcomes.num_samples) for rows in settings]
    names = labels([replace(row.run.summary, concurrency=0) for row in largest])
    return [
        [
            name,
            f"{fixed(row.result.estimate, 1, 100)} ± {fixed(row.result.standard_error, 1, 100)}",
            *_speculation(row.run.summary),
            *(_speed(rows.get(regime.name), regime.name in intervals_of) for regime in found),
        ]
        for name, row, rows in zip(names, largest, settings, strict=True)
    ]


def legend(found: Sequence[Regime]) -> str:
    """Return how to read `cells`."""
    return (
        f"pass@1{_size(found)} ± standard error over problems. By the draft: its share of the emitted tokens. "
        "Fallback: decisions that refused every draft. Speed-up: over the target alone, at the same number in flight, "
        "geometric mean over problems (95 %); the ratio of mean latencies, which papers print, stands in each run's "
        "result."
    )


def short_legend(found: Sequence[Regime]) -> str:
    """Return how to read `cells` in one sentence per column, for somebody who sees it for the first time."""
    return (
        f"pass@1{_size(found)} ± standard error. By the draft: its share of the emitted tokens. Fallback: decisions "
        "that refused every draft. Speed-up: over the target alone, geometric mean over problems (95 %)."
    )


def _size(found: Sequence[Regime]) -> str:
    """Return of how many problems and samples the accuracies are; empty where they are not of as many."""
    sizes = {
        f"{len(row.run.outcomes.problems)} problems × {int(row.run.outcomes.samples.max())}"
        for rows in _settings(found)
        for row in [max(rows.values(), key=lambda row: row.outcomes.num_samples)]
    }
    return f" of {sizes.pop()}" if len(sizes) == 1 else ""


def _settings(found: Sequence[Regime]) -> list[dict[str, Row]]:
    """Return the rows of pass@1 of each setting by regime; runs that repeat a setting in one regime are kept apart."""
    settings: dict[tuple[str, int], dict[str, Row]] = {}
    for regime in found:
        for row in regime.rows:
            if row.metric.partition("[")[0] == "pass@1":
                own, number = setting(row.run.summary), 0
                while regime.name in settings.get((own, number), {}):
                    number += 1
                settings.setdefault((own, number), {})[regime.name] = row
    return list(settings.values())


def setting(run: RunSummary) -> str:
    """Return what runs of one setting have in common, as text: all but the number of samples in flight."""
    own = (run.dataset, run.method, run.params, run.draft, run.target, run.reward, run.temperature, run.take_turns)
    proposer = run.token_speculation and (run.token_speculation.proposer, run.token_speculation.model)
    return json.dumps([*own, proposer], sort_keys=True)


def _speculation(run: RunSummary) -> list[str]:
    draft = run.tokens.get("draft")
    share = percent(draft.emitted_share) if draft and run.target else NOTHING
    return [share, percent(run.fallback_rate) if run.num_decisions else NOTHING]


def _speed(row: Row | None, has_interval: bool) -> str:
    if row is None:
        return NOTHING
    if row.speed is None:
        return "baseline"
    if row.speed.ratio is None:
        return "refused" if row.speed.unlike else "not timed"
    interval = interval_range(row.speed.ratio, 2) if has_interval else ""
    return f"{fixed(row.speed.ratio.estimate, 2)}×{interval}"
