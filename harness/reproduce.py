"""`python -m harness.reproduce SUITE`: the runs behind a published table or figure, ours beside the published values.

Every run goes through `harness.launch` with the suite's flags and, on top, those given here; what is finished is not
run again. Then the table is printed from the warehouse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from harness import benchmarks, hardware, launch, models, options
from harness.command import OneLineErrors
from warehouse.papers import conditions, suite

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.run.folder import RunFolder
    from warehouse.database import Connection
    from warehouse.papers.estimate import Estimate
    from warehouse.papers.table import Entry

_OWN = {
    "help",
    "method",
    "dataset",
    "preset",
    "config",
    "samples",
    "limit",
    "problems",
    "take_turns",
    "dry_run",
    "listing",
}
"""Options of the launcher that a suite decides, that are spelt out below, or that not every method takes."""
_DEFAULT_HARDWARE = "a100x4.toml"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the suite, as the paper has it and as it is asked for here."""

    plan: suite.Planned
    paper: Mapping[str, Any] | None
    """The launcher's options by the suite's flags alone; None where the harness lacks what the row needs."""
    chosen: dict[str, Any] | None
    """With the flags of this command on top."""
    awaits: str | None


@click.command(cls=OneLineErrors)
@click.argument("name", metavar="SUITE", required=False)
@click.option("--list", "listing", is_flag=True, help="List the suites, and stop.")
@click.option("--dry-run", is_flag=True, help="Say what would be run and what it would take, and stop.")
@click.option("--table", "only_table", is_flag=True, help="Run nothing; print the table from the warehouse.")
@click.option(
    "--scale",
    metavar="PROBLEMSxSAMPLES",
    help="The first problems of each dataset and samples of each, e.g. 30x2; `paper`: the paper's.  [default: paper]",
)
@click.option("--column", "columns", multiple=True, help="Only this column, e.g. gsm8k; may be repeated.")
@click.option("--aligned", help="SCoT's aligned draft (python -m harness.train align), for the rows that need it.")
@click.option("--hardware", "file", type=click.Path(exists=True, path_type=Path), help="Speeds for the estimate.")
@click.option("--database", type=click.Path(path_type=Path), help="Warehouse.  [default: in the output folder]")
@click.pass_context
def main(context: click.Context, /, **given: Any) -> None:
    """Run a suite and print its table, ours beside the published values. Flags of harness.launch go on top."""
    if given["listing"]:
        for name in suite.names():
            found = suite.load(name)
            click.echo(f"{name:22} {len(list(suite.planned(found))):3} runs  {found.title} ({found.place})")
        return
    if given["name"] is None:
        raise click.UsageError("SUITE is missing; python -m harness.reproduce --list names them")
    try:
        _reproduce(suite.load(given["name"]), given, _forwarded(context))
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, models.ModelUnavailable, ValueError) as wrong:
        raise click.UsageError(str(wrong)) from wrong


def _reproduce(chosen: suite.Suite, given: Mapping[str, Any], forwarded: list[str]) -> None:
    from rich.console import Console

    from warehouse.database import DatabaseError, WarehouseError, one_line

    console = Console(highlight=False)
    columns = given["columns"] or tuple(chosen.columns)
    if unknown := sorted(set(columns) - set(chosen.columns)):
        raise click.UsageError(f"--column {unknown[0]}: {chosen.name} has {', '.join(chosen.columns)}")
    extra = forwarded + _scale(given["scale"])
    runs = [_run(plan, extra, given["aligned"]) for plan in suite.planned(chosen) if plan.column in columns]
    database = given["database"] or given["output"] / "warehouse.duckdb"
    exact = given["scale"] not in (None, "paper")
    if given["dry_run"]:
        _print_plan(console, chosen, runs, database, given["file"])
        return
    if not given["only_table"]:
        todo = _distinct(runs)
        for number, settled in enumerate(todo, 1):
            console.rule(f"{chosen.name}: run {number} of {len(todo)}")
            run = launch.launch(settled)
            if any(metric.measure in suite.OF_GRADED_DRAFTS for metric in chosen.metrics.values()):
                _grade_drafts(run, database)
    if not given["only_table"] and not database.is_file():
        again = f"python -m harness.reproduce {chosen.name} --table"
        console.print(f"Nothing is finished yet. The table, once something is, by the same flags and:  {again}")
        return
    try:
        _print_table(console, chosen, runs, database, exact)
    except (WarehouseError, DatabaseError) as wrong:
        raise click.UsageError(one_line(wrong)) from wrong


def _grade_drafts(run: RunFolder, database: Path) -> None:
    from warehouse.candidates import grade_candidates
    from warehouse.load import load_run

    if grade_candidates(run):
        load_run(run, database)


def _run(plan: suite.Planned, extra: list[str], aligned: str | None) -> Run:
    flags = dict(plan.flags)
    awaits = plan.row.awaits
    if plan.row.model_of == "aligned":
        awaits = awaits or (None if aligned else "SCoT's aligned draft: train it and give it by --aligned")
        flags |= {"draft": aligned} if aligned else {}
        extra = [word for word in extra if not word.startswith("--draft=")]  # it names the draft of the other rows
    adapter = [word for word in extra if word.startswith("--selection-adapter=")]
    if plan.row.adapter == "needed" and not adapter:
        awaits = awaits or "SCoT's selection adapter: train it and give it by --selection-adapter"
    if plan.row.adapter == "never" or flags["method"] != "scot":
        extra = [word for word in extra if word not in adapter]
    if awaits:
        return Run(plan, None, None, awaits)
    own = options.arguments(flags)
    return Run(plan, suite.settled(own), suite.settled([*own, *_applicable(own, extra)]), None)


def _applicable(own: list[str], extra: list[str]) -> list[str]:
    """The given flags without hyper-parameters that are another method's: a suite may hold several methods."""
    from harness import options
    from harness.methods import METHODS, defaults

    method = own[own.index("--method") + 1]
    foreign = {name for other in METHODS for name in defaults(other)} - set(defaults(method))
    names = {options.flag(name) for name in foreign} | {"--no-" + name.replace("_", "-") for name in foreign}
    pairs = [word.split("=", 1) for word in extra]
    return [word for word, (name, *_) in zip(extra, pairs, strict=True) if name not in names]


def _forwarded(context: click.Context) -> list[str]:
    """What was typed for the launcher, as single words `--flag=value`."""
    words: list[str] = []
    for option in launch.main.params:
        if option.name in _OWN or option.name is None:
            continue
        if context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[option.name]
        flag = option.opts[0]
        if isinstance(value, bool):
            words.append(flag if value else option.secondary_opts[0])
        else:
            words += [f"{flag}={one}" for one in (value if isinstance(value, tuple) else (value,))]
    return words


def _scale(given: str | None) -> list[str]:
    if given in (None, "paper"):
        return []
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})", str(given))
    if found is None:
        raise click.UsageError(f"--scale {given}: expected PROBLEMSxSAMPLES, e.g. 30x2, or paper")
    return [f"--limit={found[1]}", f"--samples={found[2]}"]


def _distinct(runs: list[Run]) -> list[dict[str, Any]]:
    """The options of every run once: a baseline may stand in several rows."""
    found: list[dict[str, Any]] = []
    for run in runs:
        if run.chosen is not None and run.chosen not in found:
            found.append(run.chosen)
    return found


def _print_plan(console: Console, chosen: suite.Suite, runs: list[Run], database: Path, file: Path | None) -> None:
    from warehouse.papers.table import about

    bundled = Path(str(resources.files("harness.papers") / "hardware" / _DEFAULT_HARDWARE))
    machine = hardware.read(file or bundled)
    console.print(f"{chosen.name}: {chosen.title} ({chosen.paper}, {chosen.place})", style="bold", soft_wrap=True)
    total, planned = 0.0, []
    for run in runs:
        label = f"{run.plan.row.label} · {chosen.columns[run.plan.column].label}"
        if run.chosen is None:
            console.print(f"  {label}: not planned, awaits {run.awaits}", soft_wrap=True, markup=False)
            continue
        if run.chosen in planned:
            console.print(f"  {label}: with the flags given, a run from above", soft_wrap=True, markup=False)
            continue
        planned.append(run.chosen)
        number = conditions.num_problems(run.chosen)
        size = f"{number} problems × {run.chosen['samples']} samples"
        estimate = _estimate(chosen, run, machine, database)
        cost = "no estimate" if estimate is None else f"{estimate.gpu_hours:,.1f} GPU-hours ({estimate.source})"
        if estimate is not None and not estimate.gpu_hours:
            cost = f"{estimate.worker_hours:,.1f} worker-hours ({estimate.source})"
        total += estimate.gpu_hours if estimate else 0
        console.print(f"  {label}: {run.chosen['method']}, {size}, {cost}", soft_wrap=True, markup=False)
        words = " ".join(options.arguments(run.plan.flags))
        console.print(f"      {words}", soft_wrap=True, markup=False, style="dim")
    console.print(
        f"Together {total:,.1f} GPU-hours; speeds of the model: {machine.name}; {machine.source}", soft_wrap=True
    )
    about(chosen, console)


def _estimate(chosen: suite.Suite, run: Run, machine: hardware.Hardware, database: Path) -> Estimate | None:
    from warehouse.database import DatabaseError, WarehouseError, reader
    from warehouse.measures import runs_like
    from warehouse.papers import estimate

    assert run.chosen is not None
    try:
        with reader(database) as connection:
            for found in runs_like(connection, conditions.run_columns(run.chosen)):
                if known := estimate.from_history(run.chosen, found):
                    return known
    except (WarehouseError, DatabaseError):
        pass  # no history: the model answers
    published = run.plan.row.values.get(run.plan.column, {})
    try:
        return estimate.from_model(run.chosen, published, machine)
    except ValueError:
        return None


def _print_table(console: Console, chosen: suite.Suite, runs: list[Run], database: Path, exact: bool) -> None:
    from warehouse.database import reader
    from warehouse.papers.table import show

    with reader(database) as connection:
        recorded = {(r.plan.row.label, r.plan.column): _recorded(connection, r, exact) for r in runs}
        entries = dict(_entries(connection, chosen, runs, recorded))
    show(chosen, entries, {run.plan.column for run in runs}, console)


def _recorded(connection: Connection, run: Run, exact: bool) -> dict[str, object] | None:
    """The row of the warehouse's table `run`; at a given scale only one of that scale."""
    from warehouse.measures import runs_like

    if run.chosen is None:
        return None
    wanted = conditions.run_columns(run.chosen)
    if exact:
        wanted |= {"num_problems": conditions.num_problems(run.chosen), "samples": run.chosen["samples"]}
    return next(iter(runs_like(connection, wanted)), None)


def _entries(
    connection: Connection,
    chosen: suite.Suite,
    runs: list[Run],
    recorded: Mapping[tuple[str, str], dict[str, object] | None],
) -> Iterator[tuple[tuple[str, str], Entry]]:
    from warehouse.measures import measure
    from warehouse.papers.table import Cell, Entry, Ours

    for run in runs:
        key = (run.plan.row.label, run.plan.column)
        published = run.plan.row.values.get(run.plan.column, {})
        found = recorded[key]
        base = recorded.get((run.plan.row.baseline or "", run.plan.column))
        base_id = None if base is None else str(base["run_id"])
        cells, reasons = {}, []
        for name, metric in chosen.metrics.items():
            measured = None
            if found is not None and metric.measure is not None:
                measured = measure(connection, metric.measure, str(found["run_id"]), base_id)
                if name in published and run.paper is not None:
                    reasons += conditions.why_not(chosen, run.paper, found, metric.measure)
                    if run.plan.row.model_of == "aligned":
                        reasons += conditions.aligned_from_another(run.paper["draft"], str(run.plan.flags["draft"]))
            ours = None if measured is None else Ours(measured.value, measured.low, measured.high)
            cells[name] = Cell(ours, published.get(name))
        run_id = None if found is None else str(found["run_id"])
        yield key, Entry(run_id, cells, list(dict.fromkeys(reasons)))


main.params += [option for option in launch.main.params if option.name not in _OWN]

if __name__ == "__main__":
    main(prog_name="python -m harness.reproduce")
