"""`python -m tools.bench.grading`: measure the grader on this machine and print the results as Markdown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from grading.records import Gold, grader_version
from harness.cli.command import OneLineErrors, OutputFile

if TYPE_CHECKING:
    from tools.bench.table import Table

TIME_LIMIT_SECONDS = 10.0
"""Time limit of one grade in processor seconds; equals the default of `grade_many`."""
_GOAL = 0.9
"""Smallest acceptable rate, as a share of the rate of bare math-verify."""


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option("--dataset", default="math500", help="Dataset with the gold answers.")
@click.option(
    "--data-dir",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of <dataset>.jsonl files; can also be set with HARNESS_DATA_DIR.",
)
@click.option("--problems", type=click.IntRange(2), default=500, help="Number of problems of the dataset to use.")
@click.option("--samples", type=click.IntRange(1), default=16, help="Answers per problem in the run of `grade_many`.")
@click.option(
    "--ratio-samples",
    type=click.IntRange(1),
    default=4,
    help="Answers per problem in the comparison with bare math-verify.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, help="Number of repeats of the comparison with bare math-verify."
)
@click.option("--workers", default="1,2", help="Numbers of grader processes to compare, separated by commas.")
@click.option("--output", type=OutputFile(".json"), help="Write the numbers as JSON as well.")
def main(
    dataset: str,
    data_dir: Path | None,
    problems: int,
    samples: int,
    ratio_samples: int,
    repeats: int,
    workers: str,
    output: Path | None,
) -> None:
    """Measure the grader: its rate compared with bare math-verify, scaling with workers, memory, and longest pause."""
    from harness.problems import benchmarks
    from jobs.finished.grading import gold_of

    try:
        counts = [int(count) for count in workers.split(",")]
        if min(counts) < 1:
            raise ValueError
    except ValueError as error:
        raise click.UsageError(f"--workers {workers}: expected numbers of at least 1, separated by commas") from error
    try:
        golds = [gold_of(problem) for problem in benchmarks.load(dataset, data_dir)[:problems]]
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, ValueError) as error:
        raise click.UsageError(str(error)) from error
    load_before = os.getloadavg()[0]
    started = time.monotonic()
    ratio = _ratio(golds, ratio_samples, repeats)
    scaling = _scaling(golds, samples, counts)
    heading = _heading(dataset, len(golds), load_before, time.monotonic() - started)
    click.echo("\n".join([heading, ratio.markdown(), scaling.markdown()]))
    if output is not None:
        content = {"heading": heading, "grader": grader_version(), "tables": [ratio.data(), scaling.data()]}
        output.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _ratio(golds: Sequence[Gold], samples: int, repeats: int) -> Table:
    from tools.bench.table import Table

    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "bare math-verify: parse gold, parse answer, verify": ("bare", {"remembers_golds": False}),
        "bare math-verify, each gold parsed once": ("bare", {"remembers_golds": True}),
        "`grading.grade`, same process": ("in_process", {}),
        "`grading.grade_many`, in its worker": ("pool", {"workers": 1, "time_limit_seconds": TIME_LIMIT_SECONDS}),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    accepted: dict[str, int] = {}
    for turn in range(repeats):
        for way, (name, parameters) in ways.items():
            measurement = _measure(name, golds, samples=samples, **parameters)
            rates[way].append(measurement["answers"] / measurement["cpu_seconds"])
            accepted[way] = measurement["correct"]
            _log(f"{turn + 1} of {repeats}: {way}: {rates[way][-1]:.0f} per second")
    first, second = (median(rates[way]) for way in list(ways)[:2])
    table = Table(
        f"Ordinary answers per second of one core ({len(golds)} problems × {samples}, median of {repeats})",
        ["what", "answers per processor second", "range", "of bare", "of bare, golds parsed once", "accepted"],
        notes=[f"Goal: at least {_GOAL} of bare. Half of the answers are the gold, a quarter an equivalent form of it, "
               "and a quarter the gold of another problem."],
    )  # fmt: skip
    for way, way_rates in rates.items():
        rate = median(way_rates)
        span = f"{min(way_rates):.0f} to {max(way_rates):.0f}"
        table.rows.append([way, rate, span, rate / first, rate / second, accepted[way]])
    return table


def _scaling(golds: Sequence[Gold], samples: int, counts: Sequence[int]) -> Table:
    from tools.bench.table import Table

    table = Table(
        f"Whole run: {len(golds)} problems × {samples} = {len(golds) * samples} answers through `grade_many`",
        ["workers", "seconds", "answers per second", "of the first row", "longest gap between two grades, s",
         "peak memory, all processes, MB", "largest worker, MB", "verdicts"],
        notes=[f"Goal: no gap longer than one time limit ({TIME_LIMIT_SECONDS:g} s). Memory is the proportional set "
               "size: pages that processes share are counted once."],
    )  # fmt: skip
    base: float | None = None
    for count in counts:
        measurement = _measure("pool", golds, samples=samples, workers=count, time_limit_seconds=TIME_LIMIT_SECONDS)
        rate = measurement["answers"] / measurement["wall_seconds"]
        base = base or rate
        verdicts = ", ".join(f"{verdict} {number}" for verdict, number in sorted(measurement["verdicts"].items()))
        gap = f"{measurement['longest_gap_seconds']:.2f}"
        memory = [f"{measurement[name] / 1e6:.0f}" for name in ("peak_bytes", "peak_worker_bytes")]
        table.rows.append([count, measurement["wall_seconds"], rate, rate / base, gap, *memory, verdicts])
        _log(f"{count} workers: {rate:.0f} per second, longest gap {gap} s")
    return table


def _measure(name: str, golds: Sequence[Gold], **parameters: Any) -> dict[str, Any]:
    """Run one measurement in a separate process."""
    request = json.dumps({"golds": [asdict(gold) for gold in golds], **parameters})
    command = [sys.executable, "-m", "tools.bench.grading.measurements", name]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"the measurement {name} ended with exit status {done.returncode}")
    measurement: dict[str, Any] = json.loads(done.stdout)
    return measurement


def _heading(dataset: str, problems: int, load_before: float, seconds: float) -> str:
    from tools.bench.table import measured_on

    return (
        f"{measured_on()}; golds of {dataset} ({problems}); grader {grader_version()}; "
        f"load average of the machine {load_before:.1f} before; {seconds / 60:.1f} minutes.\n"
    )


def _log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.grading")
