"""The runs of a folder, newest first: what they are and how far they are, from their files alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.run.digest import FileDamaged
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.watch.show import duration

_DAY_SECONDS = 86_400.0
_MOST_HOURS_AS_HOURS = 48
_LONGEST_KEPT = 0.6
"""Share of the width up to which the longest name of a run stays on one line."""


@dataclass(frozen=True)
class ListedRun:
    """A run as it is listed; the fields are the keys of `--json`."""

    run: str
    """Path of the run folder."""
    method: str = ""
    dataset: str = ""
    draft: str | None = None
    target: str | None = None
    tag: str | None = None
    state: str = ""
    """"finished", "under way" (whether or not anything works on it now), "not begun", or "damaged"."""
    finished: int = 0
    planned: int = 0
    failed: int = 0
    age_seconds: float | None = None
    """Time since the run was planned."""
    error: str | None = None
    """Why a damaged run cannot be read, in one line."""


def listed(runs: Iterable[RunFolder]) -> list[ListedRun]:
    """Return the runs, the newest first."""
    found = [_listed(run) for run in runs]
    return sorted(found, key=lambda run: (run.age_seconds is None, run.age_seconds or 0.0, run.run))


def print_runs(runs: Iterable[ListedRun], console: Console) -> None:
    """Print one row for each run; its name begins with dataset and method."""
    found = list(runs)
    # A name is to be copied, so the models' are folded instead where not all fits.
    is_kept = max((len(run.run) for run in found), default=0) <= _LONGEST_KEPT * console.width
    table = Table(box=None, pad_edge=False)
    for column in ("run", "models", "tag", "samples", "age"):
        side: Literal["left", "right"] = "right" if column in {"samples", "age"} else "left"
        table.add_column(column, justify=side, overflow="fold", no_wrap=is_kept and column == "run")
    for run in found:
        models = " → ".join(name for name in (run.draft, run.target) if name)
        samples = run.state if run.state == "damaged" else f"{run.finished}/{run.planned}"
        samples += f", {run.failed} failed" if run.failed else ""
        age = "" if run.age_seconds is None else _age(run.age_seconds)
        table.add_row(*map(Text, (run.run, models, run.tag or "", samples, age)))
    console.print(table, soft_wrap=not console.is_terminal)


def _listed(run: RunFolder) -> ListedRun:
    try:
        spec, ended = run.spec(), by_shard(run, read_endings(run, whole=False))
        age = max(0.0, time.time() - run.spec_path.stat().st_mtime)
    except (FileDamaged, OSError) as error:
        return ListedRun(str(run.path), state="damaged", error=" ".join(str(error).split()))
    is_begun = bool(sum(ended.finished) or run.journals())
    return ListedRun(
        run=str(run.path),
        method=spec.method,
        dataset=spec.dataset,
        draft=spec.draft.name if spec.draft else None,
        target=spec.target.name if spec.target else None,
        tag=spec.tag,
        state="under way" if is_begun and ended.num_unfinished else "not begun" if ended.num_unfinished else "finished",
        finished=sum(ended.finished),
        planned=sum(ended.planned),
        failed=sum(ended.failed),
        age_seconds=round(age, 1),
    )


def _age(seconds: float) -> str:
    days = seconds / _DAY_SECONDS
    return f"{days:.0f} days" if days >= _MOST_HOURS_AS_HOURS / 24 else duration(seconds)
