"""`python -m harness.launch`: parse → plan → submit → follow → grade → load → result → what to type next.

The front of the harness. It may reach across to jobs and warehouse, and does so only once it is clear what to do, so
that `--help` and a mistyped value answer at once.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import benchmarks, models, options
from harness.command import OneLineErrors
from harness.methods import METHODS, defaults

if TYPE_CHECKING:
    from rich.console import Console

    from harness.problem import Problem
    from jobs.run.folder import RunFolder
    from jobs.run.spec import RunSpec

_LISTS = ("methods", "datasets", "models", "presets")


def _path(*, exists: bool = False) -> click.Path:
    return click.Path(exists=exists, path_type=Path)


@click.command(cls=OneLineErrors)
@click.option("--method", type=click.Choice(list(METHODS)), help="The algorithm.")
@click.option("--dataset", type=click.Choice(list(benchmarks.DATASETS)), help="The benchmark.")
@click.option("--preset", type=click.Choice(list(options.presets())), help="A paper's setting: models and parameters.")
@click.option("--config", type=_path(exists=True), help="TOML file of flags without their dashes; flags go on top.")
@click.option("--draft", help="Draft model: a known name, a hub id, or a folder.")
@click.option("--target", help="Target model, likewise.")
@click.option(
    "--selection-adapter", help="scot: folder of LoRA weights that the target chooses a draft with (harness.train)."
)
@click.option("--samples", type=click.IntRange(1), default=16, show_default=True, help="Samples per problem.")
@click.option("--limit", type=click.IntRange(1), help="Only the first N problems; the result says so.")
@click.option("--problems", help="Only these: numbers, ranges or ids, e.g. 3,7,10-15.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--tag", help="Sets apart runs that are otherwise the same: other samples of the same problems.")
@click.option("--temperature", type=click.FloatRange(0), default=0.6, show_default=True)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=0.95, show_default=True)
@click.option(
    "--token-budget",
    type=click.IntRange(1),
    default=8192,
    show_default=True,
    help="Emitted tokens per sample, the answer included.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Samples in flight per worker; 1 measures latency.",
)
@click.option("--engine", type=click.Choice(options.ENGINES), default="auto", show_default=True)
@click.option(
    "--spec-decode",
    type=click.Choice(options.SPEC_DECODE),
    help="Token-level speculation in the target's engine: who proposes.  [default: draft for specdecode, else none]",
)
@click.option("--spec-tokens", type=click.IntRange(1), default=5, show_default=True, help="Tokens proposed at a time.")
@click.option("--take-turns", is_flag=True, help="Let only one of the two engines work at a time: for comparison.")
@click.option("--dtype", default="auto", show_default=True, help="Weights' type, e.g. bfloat16, float32.")
@click.option("--max-context", type=click.IntRange(16), help="Longest prompt plus output.  [default: what is needed]")
@click.option("--draft-tensor-parallel", type=click.IntRange(1), default=1, show_default=True)
@click.option("--target-tensor-parallel", type=click.IntRange(1), default=1, show_default=True)
@click.option("--draft-memory", type=click.FloatRange(0, 1, min_open=True), help="Draft's share of the memory.")
@click.option("--target-memory", type=click.FloatRange(0, 1, min_open=True), help="Target's share of the memory.")
@click.option(
    "--cluster",
    type=click.Choice(options.CLUSTERS),
    default="auto",
    show_default=True,
    help="auto: Slurm where sbatch is, else this machine; debug: this process.",
)
@click.option("--profile", help="Cluster profile: a file of slurm/clusters by name, or a path.")
@click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="Anything else for sbatch; may be repeated.")
@click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Parts that the samples are in.")
@click.option(
    "--shards-per-task",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Shards that one Slurm task works through with one start of the engines.",
)
@click.option("--output", type=_path(), default="runs", show_default=True, help="Folder of run folders.")
@click.option("--data-dir", type=_path(exists=True), help="Folder of <dataset>.jsonl; also HARNESS_DATA_DIR.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and stop.")
@click.option("--list", "listing", type=click.Choice(_LISTS), help="Print what there is, and stop.")
@click.pass_context
def main(context: click.Context, /, **given: Any) -> RunFolder | None:
    """Run one method on one benchmark, grade it, and print the result."""
    if given["listing"]:
        _print_list(given["listing"])
        return None
    chosen = options.settled(context, given["preset"], given["config"])
    for required, valid in (("method", METHODS), ("dataset", benchmarks.DATASETS)):
        if chosen[required] is None:
            raise click.UsageError(f"--{required} is missing; choose from {', '.join(valid)}")
    try:
        return launch(chosen)
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, models.ModelUnavailable, ValueError) as wrong:
        raise click.UsageError(str(wrong)) from wrong


def launch(chosen: dict[str, Any]) -> RunFolder:
    """Plan a run from every option's value, and submit or run it. Raises ValueError and the loaders' errors."""
    params = options.method_parameters(chosen["method"], chosen)
    chosen["sbatch"] = sbatch_options(chosen)
    from jobs.run.plan import plan
    from jobs.submission.submit import resolve

    # Which models are the default depends on where the run goes, not on what this machine has.
    cluster = resolve(chosen["cluster"])
    spec, problems, notices = plan({**chosen, "cluster": cluster}, params)

    from rich.console import Console

    from jobs.run.folder import RunFolder

    console = Console(highlight=False)
    run = RunFolder(chosen["output"] / spec.run_id)
    for notice in notices:
        console.print(notice, style="bold yellow", soft_wrap=True)
    _print_plan(console, spec, run, cluster, chosen["shards"])
    if chosen["dry_run"] and cluster == "slurm":
        from jobs.submission.dispatch import preview

        click.echo(preview(run, chosen["shards"], chosen["sbatch"], chosen["shards_per_task"]))
    if not chosen["dry_run"]:
        _run(console, run, spec, problems, {**chosen, "cluster": cluster})
    return run


def sbatch_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What sbatch is told, in its own words: profile, `--slurm`, flags. Raises ValueError."""
    from jobs.slurm import profiles

    flags = {word: chosen[word.replace("-", "_")] for word in options.SBATCH}
    return profiles.sbatch_options(chosen["profile"], chosen["slurm"], flags)


def _run(console: Console, run: RunFolder, spec: RunSpec, problems: list[Problem], chosen: Mapping[str, Any]) -> None:
    from jobs.run.endings import by_shard
    from jobs.run.state import read_state
    from jobs.submission.submit import submit_here

    _deal(run, spec, problems, chosen["shards"])
    state = read_state(run)
    ended = by_shard(run, state.endings)
    pending = ended.num_unfinished
    if state.finished or state.unfinished:
        console.print(
            f"Resuming: {len(state.finished)} samples are finished, {pending} are left, "
            f"{len(state.unfinished)} of them go on from their last accepted step."
        )
    if pending and chosen["cluster"] == "slurm":
        _submit(console, run, chosen)
        return
    if pending:
        jobs = submit_here(run, ended.unfinished_shards, chosen["cluster"])
        _follow(console, run, jobs, elsewhere=chosen["cluster"] != "debug")
    elif chosen["cluster"] == "slurm":
        _clear(run)
    _report(console, run)


def _deal(run: RunFolder, spec: RunSpec, problems: list[Problem], shards: int) -> None:
    from jobs.run import shards as sharding
    from jobs.run.expected import expected_tokens
    from jobs.run.spec import units
    from warehouse.history import spent_tokens

    if run.exists() and run.num_shards() == min(shards, spec.num_problems * spec.samples):
        return
    history = spent_tokens(run.path.parent / "warehouse.duckdb", spec, [problem.text for problem in problems])
    planned = sharding.assign_to_shards(units(spec, problems), shards, expected_tokens(problems, history))
    if run.exists():
        run.assign_again(planned)
    else:
        run.create(spec, problems, planned)


def _submit(console: Console, run: RunFolder, chosen: Mapping[str, Any]) -> None:
    from jobs.command import slurm_errors_in_one_line
    from jobs.submission.dispatch import dispatch

    with slurm_errors_in_one_line("the run"):
        done = dispatch(run, chosen["sbatch"], chosen["shards_per_task"])
    if done.submitted:
        console.print(f"Submitted {done.tasks} tasks as job {', '.join(done.submitted)}{done.finalizer_notice}.")
    if done.warning:
        console.print(done.warning, style="bold yellow", markup=False, soft_wrap=True)
    if done.num_active_shards:
        console.print(f"{done.num_active_shards} shards are running or queued already; nothing is submitted twice.")
    console.print(f"  python -m jobs status {run.path} --follow", soft_wrap=True)


def _clear(run: RunFolder) -> None:
    from jobs.slurm.client import SlurmError
    from jobs.submission.dispatch import clear

    with contextlib.suppress(SlurmError):  # the run is complete, whatever the queue holds
        clear(run)


def _follow(console: Console, run: RunFolder, jobs: list[Any], *, elsewhere: bool) -> None:
    from jobs.watch.follow import follow

    follow(run, jobs, console, elsewhere=elsewhere)
    failed = [job for job in jobs if job.exception() is not None]
    if failed:
        console.print(
            f"error: {len(failed)} of {len(jobs)} workers failed: {_reason(str(failed[0].exception()))}",
            style="bold red",
            markup=False,
            soft_wrap=True,
        )
        console.print(f"Logs: {run.logs_dir}. Nothing finished is lost: the same command goes on from here.")
        sys.exit(1)


def _reason(traceback: str) -> str:
    """The exception that a traceback names last, out of whatever frames and groups stand around it."""
    named = re.findall(r"^[\s|+-]*((?:[a-z_]\w*\.)+[A-Z]\w+|[A-Z]\w+Error): (.+)$", traceback, re.MULTILINE)
    own = [text for name, text in named if name.startswith(("harness.", "jobs."))] or [text for _, text in named]
    return own[-1] if own else "it ended without a word, so it was killed: by hand, by the scheduler, or for its memory"


def _report(console: Console, run: RunFolder) -> None:
    from jobs.after.conclude import report
    from warehouse.database import WarehouseError

    try:
        report(run, console)
    except WarehouseError as wrong:
        console.print(f"error: {wrong}", style="bold red", markup=False, soft_wrap=True)
        console.print(f"Traces and grades are safe. Later:  python -m jobs finalize {run.path}", soft_wrap=True)
        sys.exit(1)


def _print_plan(console: Console, spec: RunSpec, run: RunFolder, cluster: str, shards: int) -> None:
    shown = {role: model.name for role, model in (("draft", spec.draft), ("target", spec.target)) if model}
    params = ", ".join(f"{name} {value}" for name, value in spec.params.items())
    console.print(f"[bold]{spec.method}[/bold] on [bold]{spec.dataset}[/bold]: {params}")
    shown |= {"selection adapter": spec.selection.name} if spec.selection else {}
    console.print("  " + ", ".join(f"{role} {name}" for role, name in shown.items()), soft_wrap=True)
    console.print(
        f"  {spec.num_problems} problems × {spec.samples} samples = {spec.num_problems * spec.samples}, temperature "
        f"{spec.temperature}, top-p {spec.top_p}, token budget {spec.token_budget}, seed {spec.seed}",
        soft_wrap=True,
    )
    console.print(
        f"  {spec.engine.kind} engines, {spec.concurrency} samples in flight per worker, {shards} worker(s), {cluster}",
        soft_wrap=True,
    )
    if spec.limited:
        console.print(
            f"LIMITED RUN: {spec.num_problems} of {spec.dataset_size} problems; no number of it is the benchmark's.",
            style="bold yellow",
            soft_wrap=True,
        )
    console.print(f"  run folder {run.path}", soft_wrap=True)


def _print_list(what: str) -> None:
    if what == "methods":
        for name, method in METHODS.items():
            summary = (sys.modules[method.__module__].__doc__ or "").splitlines()[0]
            takes = " ".join(options.flag(n) for n in defaults(name))
            click.echo(f"{name:12} {summary}\n{'':12} {takes}")
    elif what == "datasets":
        for dataset in benchmarks.DATASETS.values():
            click.echo(f"{dataset.name:14} {dataset.count:5} problems  {dataset.title}")
    elif what == "models":
        for name in models.PAIR:
            click.echo(f"{name:28} bundled, a toy: knows stories like those of demo, nothing else")
        for model in models.MODELS.values():
            click.echo(f"{model.name:28} {model.hub_id}")
        click.echo("or a hub id org/name, or a folder")
    else:
        for name, values in options.presets().items():
            click.echo(f"{name:20} " + ", ".join(f"{key} {value}" for key, value in values.items()))


main.params += options.method_options() + options.slurm_options()

if __name__ == "__main__":
    main(prog_name="python -m harness.launch")
