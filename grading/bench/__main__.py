"""`python -m grading.bench`: measure the grader on this machine, as Markdown on stdout."""

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

from grading.grade import Gold, grader_version
from harness.command import OneLineErrors

if TYPE_CHECKING:
    from harness.bench.table import Table

TIME_LIMIT_SECONDS = 10.0
"""Of one grade in processor seconds: the default of `grade_many`."""
_GOAL = 0.9


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option("--dataset", default="math500", help="Whose golds the answers are made of.")
@click.option("--data-dir", type=click.Path(exists=True, path_type=Path), help="Folder of <dataset>.jsonl.")
@click.option("--problems", type=click.IntRange(2), default=500)
@click.option("--samples", type=click.IntRange(1), default=16, help="Answers to each problem in the whole run.")
@click.option(
    "--ratio-samples", type=click.IntRange(1), default=4, help="Answers to each problem against bare math-verify."
)
@click.option("--repeats", type=click.IntRange(1), default=3, help="Bare and grader in turn so many times.")
@click.option("--workers", default="1,2", help="Numbers of grader processes, with commas.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers as JSON too.")
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
    """Measure ordinary answers per second and core against bare math-verify, scaling, memory, and the longest pause."""
    from harness import benchmarks
    from jobs.after.grading import gold_of

    try:
        counts = [int(count) for count in workers.split(",")]
        if min(counts) < 1:
            raise ValueError
    except ValueError as error:
        raise click.UsageError(f"--workers {workers}: expected numbers from 1 up, with commas") from error
    try:
        golds = [gold_of(problem) for problem in benchmarks.load(dataset, data_dir)[:problems]]
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, ValueError) as error:
        raise click.UsageError(str(error)) from error
    load_before = os.getloadavg()[0]
    begun = time.monotonic()
    ratio = _ratio(golds, ratio_samples, repeats)
    scaling = _scaling(golds, samples, counts)
    heading = _heading(dataset, len(golds), load_before, time.monotonic() - begun)
    click.echo("\n".join([heading, ratio.markdown(), scaling.markdown()]))
    if output is not None:
        content = {"heading": heading, "grader": grader_version(), "tables": [ratio.data(), scaling.data()]}
        output.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _ratio(golds: Sequence[Gold], samples: int, repeats: int) -> Table:
    from harness.bench.table import Table

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
            found = _measured(name, golds, samples=samples, **parameters)
            rates[way].append(found["answers"] / found["cpu_seconds"])
            accepted[way] = found["correct"]
            _say(f"{turn + 1} of {repeats}: {way}: {rates[way][-1]:.0f} a second")
    first, second = (median(rates[way]) for way in list(ways)[:2])
    table = Table(
        f"Ordinary answers a second of one core ({len(golds)} problems × {samples}, median of {repeats})",
        ["what", "answers a processor second", "least to most", "of bare", "of bare, golds parsed once", "accepted"],
        notes=[f"Goal: at least {_GOAL} of bare. Half of the answers are the gold, a quarter is the gold written in "
               "another way, a quarter is another problem's gold."],
    )  # fmt: skip
    for way, found_rates in rates.items():
        middle = median(found_rates)
        span = f"{min(found_rates):.0f} to {max(found_rates):.0f}"
        table.rows.append([way, middle, span, middle / first, middle / second, accepted[way]])
    return table


def _scaling(golds: Sequence[Gold], samples: int, counts: Sequence[int]) -> Table:
    from harness.bench.table import Table

    table = Table(
        f"The whole of it: {len(golds)} problems × {samples} = {len(golds) * samples} answers through `grade_many`",
        ["workers", "seconds", "answers a second", "of the first row", "longest gap between two grades, s",
         "peak memory, all processes, MB", "largest worker, MB", "verdicts"],
        notes=[f"Goal: no gap longer than one time limit ({TIME_LIMIT_SECONDS:g} s). Memory is the proportional set "
               "size: pages that processes share are counted once."],
    )  # fmt: skip
    base: float | None = None
    for count in counts:
        found = _measured("pool", golds, samples=samples, workers=count, time_limit_seconds=TIME_LIMIT_SECONDS)
        rate = found["answers"] / found["wall_seconds"]
        base = base or rate
        verdicts = ", ".join(f"{verdict} {number}" for verdict, number in sorted(found["verdicts"].items()))
        gap = f"{found['longest_gap_seconds']:.2f}"
        memory = [f"{found[name] / 1e6:.0f}" for name in ("peak_bytes", "peak_worker_bytes")]
        table.rows.append([count, found["wall_seconds"], rate, rate / base, gap, *memory, verdicts])
        _say(f"{count} workers: {rate:.0f} a second, longest gap {gap} s")
    return table


def _measured(name: str, golds: Sequence[Gold], **parameters: Any) -> dict[str, Any]:
    given = json.dumps({"golds": [asdict(gold) for gold in golds], **parameters})
    command = [sys.executable, "-m", "grading.bench.measure", name]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"the measurement {name} ended with exit status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _heading(dataset: str, problems: int, load_before: float, seconds: float) -> str:
    from harness.bench.table import measured_on

    return (
        f"{measured_on()}; golds of {dataset} ({problems}); grader {grader_version()}; "
        f"load average of the machine {load_before:.1f} before; {seconds / 60:.1f} minutes.\n"
    )


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(prog_name="python -m grading.bench")
