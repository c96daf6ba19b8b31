"""Which runs of a report are over the same problems, by id and content: only these are drawn side by side."""

from __future__ import annotations

from collections.abc import Sequence

from harness.plural import counted
from warehouse.report.facts import RunFacts


def dataset_titles(runs: Sequence[RunFacts]) -> list[str]:
    """Return the title that each own dataset's TOML file gives, and otherwise the dataset's name, each once, sorted."""
    return sorted({run.conditions["dataset_title"] or run.summary.dataset for run in runs})


def titled_datasets(runs: Sequence[RunFacts]) -> list[str]:
    """Return the name of each dataset, with the titles that TOML files give it behind it in brackets, sorted."""
    titles: dict[str, set[str]] = {}
    for run in runs:
        titles.setdefault(run.summary.dataset, set()).update(filter(None, [run.conditions["dataset_title"]]))
    return [f"{name} ({'; '.join(sorted(titles[name]))})" if titles[name] else name for name in sorted(titles)]


def by_regime(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Return the runs by regime, latency first; all of them as one group unless each regime has runs to compare."""
    regimes: dict[str, list[RunFacts]] = {}
    for run in sorted(runs, key=lambda run: run.summary.regime != "latency"):
        regimes.setdefault(run.summary.regime, []).append(run)
    if any(len(group) < 2 for group in regimes.values()):
        return {"": list(runs)}
    return regimes


def over_the_same_problems(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Return the runs in groups over the same problems, by a short name of these; a figure has one group's runs."""
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
    """Return a warning for each dataset whose runs, of one regime, are not over the same problems."""
    return [line for group in by_regime(runs).values() for line in _other_problems(group)]


def _other_problems(runs: Sequence[RunFacts]) -> list[str]:
    lines = []
    for dataset in dict.fromkeys(run.summary.dataset for run in runs):
        groups = over_the_same_problems([run for run in runs if run.summary.dataset == dataset]).values()
        if len(groups) > 1:
            sets = "; ".join(f"{', '.join(r.label for r in group)}: {len(group[0].problems)}" for group in groups)
            shared = len(frozenset.intersection(*(group[0].problems for group in groups)))
            lines.append(
                f"OTHER PROBLEMS: not all runs on {dataset} are over the same problems ({sets}; {shared} in all). "
                "Each has figures beside runs over the same problems only; results in one table are not comparable."
            )
    return lines
