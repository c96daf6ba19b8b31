"""`python -m tools.bench.warehouse`: measure loading and views on this machine and print the results as Markdown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from harness import environment
from harness.cli.command import OneLineErrors, OutputFile
from tools.bench.table import Table, measured_on

GOAL_RATIO = 0.7
GOAL_SECONDS = 2.0
_SLOWEST = 6


def _sizes(context: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    try:
        sizes = [int(float(size)) for size in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: expected numbers separated by commas, such as 1e5,1e6") from error
    if min(sizes) < 1000:
        raise click.BadParameter(f"{text!r}: at least 1000 steps are required")
    return sizes


@click.command(cls=OneLineErrors, context_settings={"show_default": True})
@click.option("--steps", default="1e5,1e6", callback=_sizes, help="Approximate numbers of step rows, comma-separated.")
@click.option("--cores", type=click.IntRange(1), default=2, help="Number of cores to use.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder for runs and databases, which are kept.  [default: a temporary folder]",
)
@click.option("--output", type=OutputFile(".json"), help="Also write the numbers as JSON.")
def main(steps: list[int], cores: int, folder: Path | None, output: Path | None) -> None:
    """Measure loading, relative to bare DuckDB, and every view, as the warehouse grows."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    load_before = os.getloadavg()[0]
    work_folder = folder or Path(tempfile.mkdtemp(prefix="warehouse-bench-"))
    try:
        sizes = {size: _measure(work_folder / f"steps-{size}", size) for size in steps}
    finally:
        if folder is None:
            shutil.rmtree(work_folder, ignore_errors=True)
    heading = _heading(cores, load_before)
    tables = [_loading(sizes), _growth(sizes), _slowest(sizes)]
    click.echo("\n".join([heading, *(table.markdown() for table in tables)]))
    if output is not None:
        output.write_text(json.dumps({"heading": heading, "sizes": sizes}, indent=2), encoding="utf-8")


def _measure(folder: Path, size: int) -> dict[str, Any]:
    from jobs.run.folder import run_folders
    from tools.bench.warehouse.synthetic import create

    runs = folder / "runs"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        runs.mkdir(parents=True)
        started_at = time.monotonic()
        create(runs, size)
        (folder / "complete").touch()
        _log(f"{size} steps: written in {time.monotonic() - started_at:.0f} s")
    measurements: dict[str, Any] = {
        "num_runs": len(run_folders([runs])),
        "file_bytes": sum(path.stat().st_size for path in runs.glob("*/traces/*.parquet")),
    }
    for name, database in (
        ("bare", "bare.duckdb"), ("load", "warehouse.duckdb"), ("bare_kept", "bare.duckdb"),
        ("unchanged", "warehouse.duckdb"), ("views", "warehouse.duckdb"),
    ):  # fmt: skip
        command = [sys.executable, "-m", "tools.bench.warehouse.measure", name, str(runs), str(folder / database)]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if process.returncode != 0:
            raise click.ClickException(f"measurement {name!r} with {size} steps failed: exit code {process.returncode}")
        measurements[name] = json.loads(process.stdout)
        _log(f"{size} steps: {name} {measurements[name]['seconds']:.1f} s")
    return measurements


def _loading(sizes: dict[int, dict[str, Any]]) -> Table:
    table = Table(
        "Loading, relative to bare `CREATE TABLE AS SELECT * FROM read_parquet` of the same trace files",
        ["step rows", "runs", "files, MB", "bare, s", "load, s", "step rows per second", "rate of bare",
         "by processor time", "rate of bare without token ids", "by processor time", "peak memory, MB",
         "of bare, MB", "database, MB", "of bare, MB", "nothing new, s"],
        notes=[f"Goal: at least {GOAL_RATIO} of the rate of bare. Loading checks and fingerprints every file, splits "
               "the traces into steps, candidates and calls, and aggregates them for the views. Like bare, it reads "
               'the token ids with the steps, but it leaves them in the trace files. "Without token ids" is a bare '
               'statement that also omits them. "Nothing new" repeats the same load. From the third cycle of methods '
               "on, the runs are copies, under other names, of the runs of the first two cycles."],
    )  # fmt: skip
    for size in sizes.values():
        bare, kept, load, rows = size["bare"], size["bare_kept"], size["load"], size["views"]["rows"]
        table.rows.append([
            rows["step"], size["num_runs"], size["file_bytes"] / 1e6, bare["seconds"], load["seconds"],
            rows["step"] / load["seconds"], bare["seconds"] / load["seconds"],
            bare["processor_seconds"] / load["processor_seconds"], kept["seconds"] / load["seconds"],
            kept["processor_seconds"] / load["processor_seconds"], load["peak_bytes"] / 1e6, bare["peak_bytes"] / 1e6,
            load["database_bytes"] / 1e6, bare["database_bytes"] / 1e6, size["unchanged"]["seconds"],
        ])  # fmt: skip
    return table


def _growth(sizes: dict[int, dict[str, Any]]) -> Table:
    table = Table(
        "All views, all rows fetched",
        ["step rows", "candidates", "calls", "samples", "views", "slowest", "slowest, s", "median of the views, s",
         "over 2 s", "peak memory, MB"],
        notes=[f"Goal: every view under {GOAL_SECONDS:g} s with ten million step rows on two cores."],
    )  # fmt: skip
    for size in sizes.values():
        rows, views = size["views"]["rows"], size["views"]["views"]
        ordered = sorted(views, key=views.__getitem__)
        slow = [name for name in ordered if views[name] > GOAL_SECONDS]
        table.rows.append([
            rows["step"], rows["candidate"], rows["call"], rows["sample"], len(views), ordered[-1], views[ordered[-1]],
            views[ordered[len(ordered) // 2]], ", ".join(slow) or "none", size["views"]["peak_bytes"] / 1e6,
        ])  # fmt: skip
    return table


def _slowest(sizes: dict[int, dict[str, Any]]) -> Table:
    largest = sizes[max(sizes)]["views"]["views"]
    names = sorted(largest, key=lambda name: -largest[name])[:_SLOWEST]
    table = Table("The slowest views, seconds", ["view", *(str(f["views"]["rows"]["step"]) for f in sizes.values())])
    table.rows += [[name, *(f["views"]["views"][name] for f in sizes.values())] for name in names]
    return table


def _heading(cores: int, load_before: float) -> str:
    from warehouse.database import memory_mebibytes

    return (
        f"{measured_on(cores)}, DuckDB {environment.versions().get('duckdb', '?')} limited to "
        f"at most {memory_mebibytes()} MiB; load average of the machine before the benchmark {load_before:.1f}. "
        "Synthetic runs.\n"
    )


def _log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.warehouse")
