"""Grade and load what the runs' own jobs have not, because they died: the verdict needs every grade.

Done in the verdict job, at most twice per run: what dies over one run must not take the verdict of the others with it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from jobs.after import warehouse
from jobs.after.conclude import report
from jobs.nights.record import NightRecord
from jobs.nights.recovery import Gap
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunDamaged, RunFolder

_MOST_TRIES = 2
_WAIT_SECONDS = 600.0


def complete(runs: Sequence[RunFolder], database: Path, record: NightRecord) -> list[Gap]:
    """Grade and load every run whose finished samples the warehouse lacks; returns what could not be."""
    graded = warehouse.num_graded(database, [run.path.name for run in runs])
    gaps = []
    for run in runs:
        try:
            ended = by_shard(run, read_endings(run)) if run.exists() else None
        except (RunDamaged, OSError):
            ended = None  # named among the gaps of recovery
        if ended is None or sum(ended.finished) <= graded.get(run.path.name, -1):
            continue
        tries = sum(event["run"] == run.path.name for event in record.events("grading"))
        if tries >= _MOST_TRIES:
            why = f"grading or loading it was begun {tries} times and never ended"
        else:
            record.append("grading", run=run.path.name)
            why = _grade(run, database)
        if why:
            now = warehouse.num_graded(database, [run.path.name]).get(run.path.name, 0)
            missing = sum(ended.finished) - max(0, now)
            gaps.append(Gap(run.path.name, missing, sum(ended.planned), (), why))
    return gaps


def _grade(run: RunFolder, database: Path) -> str:
    """Grade and load a run; returns what went wrong, empty where nothing did."""
    try:
        report(run, Console(highlight=False), database, _WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 one damaged run must not keep the night from its verdict
        traceback.print_exc()
        return f"it could not be graded or loaded: {next(iter(str(error).splitlines()), type(error).__name__)}"
    return ""
