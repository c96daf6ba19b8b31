"""Years of nights, made up: run folders with all their files and a database of them, quickly.

    python -m tests.warehouse.made_up_nights FOLDER --nights 1000

Each night has two runs (speccot, vanilla) of 20 problems × 4 samples. The traces of a run are those of the first night
under other sample ids; the grades are drawn anew, so nights differ by sampling noise alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import click
import numpy as np

from harness.problems.problem import Problem, dataset_hash
from harness.trace import Trace
from jobs.run import events, trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, Unit, units
from tests.warehouse import runs
from warehouse.loading.runs import load_runs

FIRST = date(2023, 1, 1)
PROBLEMS = [Problem(f"toy/{i}", "toy", f"What is {i} + {i}, and why? " * 8, str(2 * i)) for i in range(20)]
_WORDS = ["so", "the", "sum", "is", "two", "and", "wait", "we", "check", "that", "it", "holds", "but", "then", "let"]
_LOG_BYTES = 30_000


def spec_of(method: str, night: date) -> RunSpec:
    return replace(
        runs.SPEC if method == "speccot" else runs.VANILLA,
        dataset_hash=dataset_hash(PROBLEMS),
        dataset_size=len(PROBLEMS),
        num_problems=len(PROBLEMS),
        samples=4,
        tag=night.isoformat(),
    )


def long_trace(rng: np.random.Generator, unit: Unit, method: str) -> Trace:
    """A trace of a chain of 30 steps of 60 words."""
    trace = runs.speculative(unit) if method == "speccot" else runs.vanilla(unit)
    sort = trace.steps[-1]
    texts = [" ".join(rng.choice(_WORDS, 60)) + ".\n\n" for _ in range(30)]
    trace.steps = [*(replace(step, text=text) for text in texts for step in trace.steps[:1]), sort]
    return trace


def make_run(folder: Path, spec: RunSpec, traces: list[Trace], rng: np.random.Generator) -> RunFolder:
    """One finished and graded run, with a log and an archive of code as a job leaves them."""
    run = RunFolder(folder / spec.run_id)
    planned = units(spec, PROBLEMS)
    run.create(spec, PROBLEMS, [planned[::2], planned[1::2]])
    path = runs.write_part(run, traces)
    with trace_files.opened(path) as file:
        table, metadata = file.read(), trace_files.metadata_of(file)
    ids = trace_files.TRACES.get_field_index("sample_id")
    planned_ids = [unit.sample_id for unit in planned]
    events.write_announced(path, trace_files.content_of(table.set_column(ids, "sample_id", [planned_ids]), metadata))
    chances = np.random.default_rng(len(spec.method)).beta(0.5, 0.5, 20)
    verdicts = rng.random(len(planned)) < np.array([chances[int(unit.problem_id.split("/")[1])] for unit in planned])
    runs.write_grades(
        run, {u.sample_id: "correct" if right else "wrong" for u, right in zip(planned, verdicts, strict=True)}
    )
    (run.logs_dir / "jobs").mkdir(parents=True, exist_ok=True)
    (run.logs_dir / "jobs" / "1_0_log.out").write_bytes(b"x" * _LOG_BYTES)
    return run


def make_nights(folder: Path, nights: int) -> Iterator[RunFolder]:
    """Make the run folders of nights, oldest first."""
    rng = np.random.default_rng(1)
    traces: dict[str, list[Trace]] = {}
    for index in range(nights):
        night = FIRST + timedelta(index)
        for method in ("speccot", "vanilla"):
            spec = spec_of(method, night)
            if method not in traces:
                traces[method] = [long_trace(rng, unit, method) for unit in units(spec, PROBLEMS)]
            yield make_run(folder, spec, traces[method], rng)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--nights", default=1000, show_default=True)
def main(folder: Path, nights: int) -> None:
    """Make nights and load them."""
    began = time.monotonic()
    made = list(make_nights(folder, nights))
    click.echo(f"{len(made)} runs made in {time.monotonic() - began:.1f} s")
    for number, (_, outcome) in enumerate(load_runs(made, folder / "warehouse.duckdb"), 1):
        if number % 500 == 0:
            click.echo(f"{number} loaded, {time.monotonic() - began:.1f} s: {outcome}")


if __name__ == "__main__":
    main()
