"""The commands that launch several runs: suites, nights and probes; and the files that an installation brings."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial, reduce
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from harness.cli.command import DATE, TRUST, OutputFile, whole_numbers
from harness.cli.program import typed
from harness.settings.declaration import Flags, Value
from jobs.cli.run_command import (
    ACCEPT_CODE_CHANGE,
    JSON_OUTCOME,
    MAX_GPU_HOURS,
    RUN,
    RunCommand,
    given,
    run_folder,
    trusted_run,
)

if TYPE_CHECKING:
    from jobs.preparation import PreparedLaunch
    from jobs.run.folder import RunFolder

_FOLDER = resources.files("jobs") / "examples"
EXAMPLES = {
    "profile": _FOLDER / "clusters" / "example.toml",
    "suite": _FOLDER / "suites" / "nightly.toml",
    "scrontab": _FOLDER / "nightly.scrontab",
    "notebook": resources.files("harness") / "examples" / "first-evaluation.txt",
    "router": resources.files("warehouse") / "examples" / "router.py",
}
"""The files by the name that `jobs example` takes. In a checkout, those of Slurm are links into the folder slurm."""
_BUNDLED = Path(str(resources.files("harness"))) / "data"
SUITES = {
    "demo": _BUNDLED / "demo.toml",
    "demo-full": _BUNDLED / "demo_full.toml",
    "demo-methods": _BUNDLED / "demo_methods.toml",
    "specreason-probe": _BUNDLED / "specreason_probe.toml",
}
"""Suites that can be launched by name: real files, which a job's archive of the code has not."""


@click.command("suite", cls=RunCommand, prints_outcome=True, short_help="Launch the runs of a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tag", help="Tag of every run; with another tag they are new runs with new samples.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and exit.")
@click.option("--wait", is_flag=True, help="On Slurm, wait until the runs have ended, then compare them too.")
@MAX_GPU_HOURS
@JSON_OUTCOME
@ACCEPT_CODE_CHANGE
def launch_suite(
    file: Path, tag: str | None, dry_run: bool, wait: bool, as_json: bool, accept: bool, **cost: Any
) -> None:
    """Launch the runs of a file one after the other; if they run on this machine, compare them and write a report.

    FILE is a TOML file of launches (python -m jobs example suite), or a bundled one: demo
    has four methods with the bundled toy models, demo-full the same on more problems and under load, demo-methods has
    five others, and specreason-probe has SpecReason's pair on a GPU and what its judge truly lets through.
    """
    from jobs import suite as suites
    from jobs.outcome import Outcome, printed
    from jobs.run.spec import night_of

    with printed(Outcome({"suite": file.stem, "report": None}), as_json=as_json) as known:
        if tag and night_of(tag):
            raise click.UsageError(
                f"--tag {tag}: tags that begin with a date are those of nights; choose another, or launch a night "
                f"with: python -m jobs nightly --suite {quote(str(file))} --date {tag[:10]}"
            )
        chosen = suites.read(suite_file(file), overrides=given(cost))
        suites.carry_out(known, chosen, tag, is_dry=dry_run, waits=wait, accept_code_change=accept)


@click.command(cls=RunCommand, prints_outcome=True, short_help="Launch a suite for a night and judge it.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of launches; an example: python -m jobs example suite.",
)
@click.option("--date", "night", type=DATE, metavar="YYYY-MM-DD", help="Date of the night.  [default: today, UTC]")
@click.option("--wait", is_flag=True, help="On Slurm, wait for the verdict and end with its exit code.")
@click.option(
    "--junit",
    metavar="FILE",
    type=OutputFile(".xml"),
    help="Write the verdict to FILE as JUnit XML, a case per cell and metric; waits for the verdict.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and exit.")
@MAX_GPU_HOURS
@JSON_OUTCOME
@ACCEPT_CODE_CHANGE
def nightly(
    suite: Path,
    night: datetime | None,
    wait: bool,
    junit: Path | None,
    dry_run: bool,
    as_json: bool,
    accept: bool,
    **cost: Any,
) -> None:
    """Launch a suite for a night, and after it a job that compares the night with those before it.

    Exit code of that job, or of this command where the runs are on this machine or with --wait, 0: PASS; 1: FAIL;
    3: WARN; 4: INCONCLUSIVE; 2: no verdict was possible. On Slurm the command otherwise ends with 0 once everything is
    submitted.
    """
    from jobs import nightly as nights
    from jobs.outcome import Outcome, printed

    day = (night or datetime.now(UTC)).date()
    keys: dict[str, Any] = {"verdict": None, "cells": [], "night": f"{day}", "verdict_job": None, "page": None}
    with printed(Outcome(keys), as_json=as_json) as known:
        options = {"is_dry": dry_run, "waits": wait, "accept_code_change": accept}
        nights.carry_out(known, suite, day, given(cost), junit=junit, **options)
    sys.exit(known.exit_code)


_OF_A_CONTINUATION = (
    RUN,
    click.option(
        "--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Samples in flight per worker."
    ),
    click.option(
        "--cluster",
        type=click.Choice(["auto", "slurm", "local", "debug"]),
        default="auto",
        show_default=True,
        help="Where to run.",
    ),
    click.option("--profile", help="Cluster profile: a file in slurm/clusters by name, or the path of a file."),
    click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="Any other option for sbatch; may be repeated."),
    click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Number of shards."),
    MAX_GPU_HOURS,
    click.option("--dry-run", is_flag=True, help="Print what would be done, and exit."),
    click.option("--wait", is_flag=True, help="On Slurm, wait until the run has ended and print its result."),
    ACCEPT_CODE_CHANGE,
    TRUST,
)


def _of_a_continuation(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command what all have that go on from a run's chains."""
    return reduce(lambda made, option: option(made), reversed(_OF_A_CONTINUATION), command)


def _go_on(run: Path, plan: Callable[..., PreparedLaunch], shows: str, how: Flags) -> RunFolder | None:
    """Plan a run that goes on from another one's chains, and carry it out; returns it where it has ended.

    `shows`: the command of its result. `how`: the options that `_of_a_continuation` gives.
    """
    from harness.cli.screen import terminal
    from jobs.drive import drive, preview
    from jobs.outcome import launch_errors_in_one_line
    from jobs.run.endings import num_unfinished

    console = terminal()
    source = trusted_run(run, accept=bool(how["trust"]), runs_method=False, grades=True)
    flags = {name: value for name, value in how.items() if name not in ("trust", "accept", "dry_run", "wait")}
    with launch_errors_in_one_line():
        planned = plan(source, {**flags, "accept_code_change": how["accept"]}, is_preview=bool(how["dry_run"]))
        if how["dry_run"]:
            preview(planned, console)
            return None
        [made] = drive([[planned]], console, waits=bool(how["wait"]))
    if not num_unfinished(made):
        return made
    console.print(f"Its result, once it has ended:  {typed(shows)} {made.path.name}", soft_wrap=True)
    return None


@click.command("probe", cls=RunCommand, short_help="Find what accepted and refused drafts were worth.")
@click.option(
    "--points",
    type=click.IntRange(2),
    default=200,
    show_default=True,
    help="Decisions of the run to look at: at least one of each third of the chain, accepted and refused.",
)
@click.option(
    "--rollouts",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Continuations of each point, behind the draft's proposal and behind the target's own step.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the points and of the continuations.")
@click.option(
    "-o",
    "--output",
    "labels",
    metavar="FILE.parquet",
    type=OutputFile(".parquet"),
    help="Write the points with their texts and worths as training data for a router, once the probe has ended.",
)
@_of_a_continuation
def probe(run: Path, points: int, rollouts: int, seed: int, concurrency: int, labels: Path | None, **how: Any) -> None:
    """Continue a run's chains with the target alone from a sample of its decisions, and grade where they end.

    At each point the target continues twice: behind the draft's proposal, and from where the proposal began, so that
    the step there is its own. The difference is what the proposal was worth, and together they give the rates at which
    the judge truly accepts wrong steps and refuses right ones. The probe is a run beside RUN; the same command again
    resumes it.
    """
    from jobs.continuations import router_labels
    from jobs.continuations.probe import ProbeSettings, plan

    settings = ProbeSettings(points=points, rollouts=rollouts, seed=seed, concurrency=concurrency)
    ended = _go_on(run, partial(plan, settings=settings), "warehouse.probed", how)
    if labels is not None and ended is not None:
        click.echo(router_labels.write(ended, run_folder(run), labels))
    elif labels is not None and not how["dry_run"]:
        click.echo(f"{labels} is not written yet: run the same command again then.")


@click.command("sweep-budget", cls=RunCommand, short_help="Find the accuracy of a run at smaller token budgets.")
@click.option(
    "--budgets",
    metavar="TOKENS,...",
    required=True,
    callback=whole_numbers("numbers of tokens such as 256,512,1024", least=0),
    help="Tokens at which every chain is cut, such as 256,512,1024.",
)
@click.option(
    "--answer-tokens",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Most tokens of an answer behind a cut chain, beside the budget.",
)
@_of_a_continuation
def sweep_budget(run: Path, budgets: tuple[int, ...], answer_tokens: int, **how: Value) -> None:
    """Cut a run's finished chains at token budgets, close them and ask for their answers: accuracy against budget.

    A chain that had ended within a budget keeps its own verdict. Chains of steps are cut at the ends of steps, not
    planned again for the budget. The answers are a run beside RUN, apart from its numbers; the same command again
    resumes it.
    """
    from jobs.continuations.budget_sweep import plan

    _go_on(run, partial(plan, budgets=budgets, answer_tokens=answer_tokens), "jobs show", how)


@click.command(cls=RunCommand, short_help="Print an example of a file.")
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
def example(kind: str) -> None:
    """Print an example to be edited: a cluster's profile, a suite, a scrontab for nights, a notebook, a router's fit.

    For instance: python -m jobs example profile > mycluster.toml
    """
    text = EXAMPLES[kind].read_text(encoding="utf-8")
    click.echo(notebook(text) if kind == "notebook" else text, nl=False)


_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_MAGICS = {"sh": "%%bash\n", "json": "%%writefile my.jsonl\n", "python": ""}
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_PREPARATION = """import os
import sys

os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
os.environ.pop("FORCE_COLOR", None)  # set by the kernel, which then shows each line of progress
"""


def notebook(page: str) -> str:
    """Return a page of the documentation as a Jupyter notebook.

    Commands become cells of bash. The section "Install" and the outputs are left out, and links become text.
    """
    top, _, rest = page.partition("## Install")
    texts = _BLOCK.split(f"{top}{rest[rest.index(chr(10) + '## ') :]}")
    pairs = [("markdown", texts[0]), ("code", _PREPARATION)]
    for language, block, text in zip(texts[1::3], texts[2::3], texts[3::3], strict=True):
        if language:
            pairs.append(("code", f"{_MAGICS[language]}{block}"))
        pairs.append(("markdown", re.sub(r"\[([^]]+)]\([^)]+\.md[^)]*\)", r"\1", text)))
    cells = [
        {"cell_type": kind, "id": f"cell-{n}", "metadata": {}, "source": text.strip()}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for n, (kind, text) in enumerate((kind, text) for kind, text in pairs if text.strip())
    ]
    content = {"cells": cells, "metadata": {"kernelspec": _KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def suite_file(file: Path) -> Path:
    """Return the file of a suite: the one named, else the bundled one of this name. Raises click.UsageError."""
    if file.exists() or file.suffix:
        return file
    if str(file) not in SUITES:
        raise click.UsageError(f"{file}: no such file; the bundled suites are: {', '.join(SUITES)}")
    return SUITES[str(file)]
