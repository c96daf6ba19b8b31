"""The runs of a folder, newest first: what they are and how far they are, from their files alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console

from harness.cli.number_format import duration
from harness.cli.screen import Column, Screen, Table
from jobs.run import timing as timings
from jobs.run.endings import ShardEndings, by_shard, read_endings
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder

_COLUMNS = ("run", "models", "tag", "state", "samples", "failed", "age")


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
    run_id: str = ""
    """Name of the run folder, as the warehouse has it."""
    to_time: int = 0
    """Samples that run again, one at a time, once all have ended; until they have, the run is under way."""
    timed: int = 0
    """Number of these that have ended."""


def listed(runs: Iterable[RunFolder]) -> list[ListedRun]:
    """Return the runs, the newest first."""
    found = [_listed(run) for run in runs]
    return sorted(found, key=lambda run: (run.age_seconds is None, run.age_seconds or 0.0, run.run))


def print_runs(runs: Iterable[ListedRun], console: Console) -> None:
    """Print one row for each run; in a pipe no column is cut."""
    rows = [_row(run) for run in runs]
    columns = [
        # A name is to be copied, so the models' are folded instead where not all fits.
        Column(name, is_right=name in {"samples", "failed", "age"}, is_folded=name == "models")
        for name in _COLUMNS
        if any(row[name] for row in rows)
    ]
    Screen(console).table(Table(columns, [[row[column.name] for column in columns] for row in rows]))


def _row(run: ListedRun) -> dict[str, str]:
    timing = f", {run.timed}/{run.to_time} timed" if run.timed < run.to_time else ""
    return {
        "run": run.run,
        "models": " → ".join(name for name in (run.draft, run.target) if name),
        "tag": run.tag or "",
        "state": run.state,
        "samples": "" if run.state == "damaged" else f"{run.finished}/{run.planned}{timing}",
        "failed": str(run.failed) if run.failed else "",
        "age": "" if run.age_seconds is None else duration(run.age_seconds),
    }


def _listed(run: RunFolder) -> ListedRun:
    try:
        spec, ended = run.spec(), by_shard(run, read_endings(run, whole=False))
        timing = timings.progress(run)
        age = max(0.0, time.time() - run.spec_path.stat().st_mtime)
    except (FileDamaged, OSError) as error:
        return ListedRun(str(run.path), run_id=run.path.name, state="damaged", error=" ".join(str(error).split()))
    state = _state(run, ended)
    return ListedRun(
        run=str(run.path),
        run_id=run.path.name,
        method=spec.method,
        dataset=spec.dataset,
        draft=spec.draft.name if spec.draft else None,
        target=spec.target.name if spec.target else None,
        tag=spec.tag,
        state=state,
        finished=sum(ended.finished),
        planned=sum(ended.planned),
        failed=sum(ended.failed),
        age_seconds=round(age, 1),
        to_time=timing.asked,
        timed=timing.done,
    )


def _state(run: RunFolder, ended: ShardEndings) -> str:
    if not ended.num_left:
        return "finished"
    return "under way" if sum(ended.finished) or run.journals() else "not begun"
