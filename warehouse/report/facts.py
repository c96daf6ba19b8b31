"""The data of a report: one `RunFacts` per run, read from the database.

Metrics with intervals are rows of `estimate`; one problem is one observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.cli.messages import counted
from warehouse.database import Connection, Record, rows
from warehouse.report import budgets
from warehouse.report.charts import Look
from warehouse.report.summary import RunSummary, labels, summaries
from warehouse.statistics.intervals import Interval
from warehouse.suites.run_cost import Cost, costs

_CONDITIONS = """
SELECT created_at, loaded_at, dataset_title, devices, device_kinds, p95_seconds
FROM run JOIN run_conditions USING (run_id) LEFT JOIN latency USING (run_id) WHERE run_id = $run_id
"""
_PROBLEMS = "SELECT problem_id, content_hash FROM problem WHERE run_id = $run_id ORDER BY problem_index"


def scaled(found: Interval, factor: float = 1.0, highest: float = math.inf) -> Interval:
    """Return `factor` × the estimate, with its interval clipped to [0, `highest`] before scaling."""
    low, high = found.low, found.high
    ends = (None, None) if low is None or high is None else (factor * max(0.0, low), factor * min(highest, high))
    return replace(found, estimate=factor * found.estimate, low=ends[0], high=ends[1])


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Data of one run. Shares are fractions, times are in seconds."""

    label: str
    """Label, unique in the report."""
    name: str
    """Short label, unique among runs of one regime (`RunSummary.regime`); a method has the same label in both."""
    look: Look
    summary: RunSummary
    conditions: Record
    """Creation and load times, dataset title, devices and 95th percentile of latency, by column name."""
    costs: Sequence[Cost]
    place: int = 0
    """Index of the run in the report."""
    problems: frozenset[tuple[str, str]] = frozenset()
    """Id and content hash of the planned problems."""
    budgets: Sequence[Record] = ()
    """Rows of `warehouse.report.budgets.POINTS` for the run, by sweep, oldest first."""

    def estimate(self, measure: str) -> Interval | None:
        """Return a metric of the run; None without data."""
        found = self.summary.measures.get(measure)
        return found.as_interval if found else None

    @property
    def accuracy(self) -> Interval | None:
        """pass@1 in percent; None if no sample is graded."""
        return scaled(self.summary.result.as_interval, 100) if self.summary.result else None


def report_facts(connection: Connection, run_ids: Sequence[str]) -> list[RunFacts]:
    """Read the data of runs, in the order of `run_ids`. Raises UnknownRun."""
    found, names, facts = summaries(connection, run_ids), dict[str, str](), list[RunFacts]()
    regimes = {one.regime for one in found}
    for regime in regimes:
        members = [one for one in found if one.regime == regime]
        names |= zip((one.run_id for one in members), labels(members), strict=True)
    order = list(dict.fromkeys(names[one.run_id] for one in found))
    for place, (one, label) in enumerate(zip(found, labels(found), strict=True)):
        name, run_id = names[one.run_id], {"run_id": one.run_id}
        [conditions] = rows(connection, _CONDITIONS, run_id)
        problems = rows(connection, _PROBLEMS, run_id)
        run = RunFacts(
            label=label,
            name=name,
            look=Look(order.index(name), is_hollow=len(regimes) > 1 and one.regime == "load"),
            summary=one,
            conditions=conditions,
            costs=costs(connection, one.run_id),
            place=place,
            problems=frozenset((row["problem_id"], row["content_hash"]) for row in problems),
            budgets=rows(connection, budgets.POINTS, run_id),
        )
        facts.append(run)
    return facts


def over_the_same_problems(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Group the runs by their problems. Keys are short descriptions of the problems."""
    groups: dict[frozenset[tuple[str, str]], list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(run.problems, []).append(run)
    named: dict[str, list[RunFacts]] = {}
    for problems, members in groups.items():
        name = f"{members[0].summary.dataset}, {counted(len(problems), 'problem')}"
        if name in named:
            name += f" ({min(problems)[0]}, …)"
        named[name if name not in named else f"{name} {len(named) + 1}"] = members
    return named


def other_problems(runs: Sequence[RunFacts]) -> list[str]:
    """Return a warning for each dataset and regime with runs on different problems."""
    of_one_kind: dict[tuple[str, str], list[RunFacts]] = {}
    for run in runs:
        of_one_kind.setdefault((run.summary.dataset, run.summary.regime), []).append(run)
    lines = []
    for (dataset, _), members in of_one_kind.items():
        groups = list(over_the_same_problems(members).values())
        if len(groups) > 1:
            sets = "; ".join(f"{', '.join(run.label for run in group)}: {len(group[0].problems)}" for group in groups)
            shared = len(frozenset.intersection(*(group[0].problems for group in groups)))
            lines.append(
                f"DIFFERENT PROBLEMS: the runs on {dataset} use different problems ({sets}; {shared} shared by all). "
                "Each figure contains only runs with the same problems. In tables, results on different problems are "
                "not comparable."
            )
    return lines
