"""`python -m tools.bench.slurm`: run a large array with scripted engines on the cluster of SLURM_CONF.

Measures the time of a launch and a status query, and the number of files on the shared filesystem. Prints Markdown.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import environment
from harness.cli.command import OneLineErrors
from tools.bench.planning import write_problems
from tools.bench.table import Cell, Table

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

_DATASET = "gsm8k"
_PROBLEMS = 500


@dataclass
class _State:
    """The state of a run at one time."""

    minutes: float
    finished: int
    tasks: int
    """Number of trace files, which equals the number of ended tasks."""
    files: int
    mebibytes: float
    status_seconds: float


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option("--samples", type=click.IntRange(1), default=2000, help="Samples per problem; the run has 500 problems.")
@click.option("--tasks", type=click.IntRange(1), default=1000, help="Number of tasks in the array; each has one shard.")
@click.option("--method", default="vanilla", help="Method of the run.")
@click.option("--minutes", type=click.FloatRange(0), default=30, help="Time after which the run is canceled.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Parent folder of the run folder.")
def main(samples: int, tasks: int, method: str, minutes: float, output: Path) -> None:
    """Measure a large array on a Slurm cluster."""
    from jobs.run.endings import by_shard, read_endings
    from jobs.run.folder import RunFolder

    if "SLURM_CONF" not in os.environ:
        raise click.UsageError(
            "SLURM_CONF is not set: run a benchmark of this size on a local cluster (docs/cluster.md)"
        )
    data = output / "data"
    data.mkdir(parents=True, exist_ok=True)
    write_problems(data, _DATASET)
    arguments = ["--method", method, "--dataset", _DATASET, "--limit", str(_PROBLEMS), "--data-dir", str(data)]
    arguments += ["--samples", str(samples), "--shards", str(tasks), "--engine", "scripted", "--cluster", "slurm"]
    arguments += ["--mem", "1G", "--cpus-per-task", "4", "--concurrency", "64", "--output", str(output)]
    launch_seconds = _timed("harness.launch", *arguments)
    [path] = output.glob(f"{_DATASET}-*")
    run = RunFolder(path)
    relaunch_seconds = _timed("harness.launch", *arguments)
    states = _watch(run, minutes)
    ended = by_shard(run, read_endings(run))
    if ended.num_unfinished:
        _timed("jobs", "cancel", str(path))
    hardware = environment.hardware()
    machine = f"{hardware['cpu']}, {hardware['usable_cores']} logical cores, {_slurm_version()}"
    click.echo(f"{sum(ended.planned):,} samples, {len(ended.planned):,} tasks; {machine}\n")
    click.echo(f"launch {launch_seconds:.1f} s, the same command again {relaunch_seconds:.1f} s\n")
    click.echo(_table(states).markdown())


def _timed(module: str, *arguments: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def _watch(run: RunFolder, minutes: float) -> list[_State]:
    started, states = time.monotonic(), []
    while True:
        elapsed = (time.monotonic() - started) / 60
        states.append(_state(run, elapsed))
        if elapsed > minutes or states[-1].finished == run.units_by_shard().num_rows:
            return states
        time.sleep(max(10.0, minutes * 60 / 12))


def _state(run: RunFolder, elapsed: float) -> _State:
    from jobs.run.endings import by_shard, read_endings

    seconds = _timed("jobs", "status", str(run.path))
    sizes = []
    for path in run.path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a journal that became a trace file in the meantime
            sizes += [path.stat().st_size] if path.is_file() else []
    finished = sum(by_shard(run, read_endings(run)).finished)
    tasks = len(run.trace_files())
    return _State(elapsed, finished, tasks, len(sizes), sum(sizes) / (1 << 20), seconds)


def _slurm_version() -> str:
    return subprocess.run(["sinfo", "--version"], check=True, capture_output=True, text=True).stdout.strip()


def _table(states: list[_State]) -> Table:
    rows: list[Sequence[Cell]] = [
        (f"{x.minutes:.0f}", f"{x.finished:,}", x.tasks, x.files, f"{x.mebibytes:.0f}", f"{x.status_seconds:.1f}")
        for x in states
    ]
    return Table(
        "While it runs", ["minutes", "samples finished", "tasks ended", "files", "MiB", "`jobs status` (s)"], rows
    )


if __name__ == "__main__":
    main()
