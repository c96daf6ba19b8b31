"""Commands that launch several runs (suites, nightly runs and probes), and installed example files."""

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
from harness.engine import Json
from harness.settings.declaration import Flags, Value
from jobs.cli.run_command import (
    ACCEPT_CODE_CHANGE,
    JSON_OUTCOME,
    MAX_GPU_HOURS,
    RUN,
    given,
    integer,
    main,
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
"""Files by their name in `jobs example`. In a checkout, the Slurm files are links into the folder slurm."""
_BUNDLED = Path(str(resources.files("harness"))) / "data"
_SUITES = ("demo", "demo-full", "demo-methods", "specreason-probe")
SUITES = {name: _BUNDLED / f"{name.replace('-', '_')}.toml" for name in _SUITES}
"""Suites that can be launched by name, but not from a code archive, because they must be real files."""


@main.command("suite", prints_outcome=True, short_help="Launch the runs of a suite file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tag", help="Tag of every run; another tag creates new runs with new samples.")
@click.option("--dry-run", is_flag=True, help="Print the plan and exit.")
@click.option("--wait", is_flag=True, help="On Slurm, wait for the runs to finish, then compare them.")
@MAX_GPU_HOURS
@JSON_OUTCOME
@ACCEPT_CODE_CHANGE
def launch_suite(
    file: Path, tag: str | None, dry_run: bool, wait: bool, as_json: bool, accept: bool, **cost: Any
) -> None:
    """Launch the runs of a file one after the other; if they run on this machine, compare them and write a report.

    FILE is a TOML suite file (python -m jobs example suite), or a bundled suite: demo has four
    runs with the bundled toy models; demo-full has more problems and many samples in flight; demo-methods has five
    other methods; specreason-probe runs SpecReason's models on a GPU and measures the errors of its judge.
    """
    from jobs import suite as suites
    from jobs.outcome import Outcome, printed
    from jobs.run.spec import night_of

    with printed(Outcome({"suite": file.stem, "report": None}), as_json=as_json) as known:
        if tag and night_of(tag):
            raise click.UsageError(
                f"--tag {tag}: tags that start with a date are reserved for nightly runs; use another tag, or launch a "
                f"nightly run with: python -m jobs nightly --suite {quote(str(file))} --date {tag[:10]}"
            )
        chosen = suites.read(suite_file(file), overrides=given(cost))
        suites.carry_out(known, chosen, tag, is_dry=dry_run, waits=wait, accept_code_change=accept)


@main.command(prints_outcome=True, short_help="Launch a nightly suite and report its verdict.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML suite file; to print an example: python -m jobs example suite.",
)
@click.option("--date", "night", type=DATE, metavar="YYYY-MM-DD", help="Date of the night.  [default: today, UTC]")
@click.option("--wait", is_flag=True, help="On Slurm, wait for the verdict and return its exit code.")
@click.option(
    "--junit",
    metavar="FILE",
    type=OutputFile(".xml"),
    help="Wait for the verdict and write it to FILE as JUnit XML, one test case per metric of each run.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and exit.")
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
    """Launch a suite as a nightly run, followed by a job that compares the results with earlier nights.

    Exit codes: 0 PASS, 1 FAIL, 3 WARN, 4 INCONCLUSIVE, 2 no verdict. The verdict job returns them. So does
    this command for runs on this machine, or with --wait or --junit; otherwise it returns 0 after submission.
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
    integer("--concurrency", 64, "Samples in flight per worker."),
    click.option(
        "--cluster",
        type=click.Choice(["auto", "slurm", "local", "debug"]),
        default="auto",
        show_default=True,
        help="Where to run; auto: slurm if there is a cluster, otherwise local.",
    ),
    click.option("--profile", help="Cluster profile: name of a file in slurm/clusters, or path of a file."),
    click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="An sbatch option; may be repeated."),
    integer("--shards", 1, "Number of shards into which the run is divided."),
    MAX_GPU_HOURS,
    click.option("--dry-run", is_flag=True, help="Print the plan and exit."),
    click.option("--wait", is_flag=True, help="On Slurm, wait for the run to finish, then print its result."),
    ACCEPT_CODE_CHANGE,
    TRUST,
)


def _of_a_continuation(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options of commands that continue a run's chains."""
    return reduce(lambda made, option: option(made), reversed(_OF_A_CONTINUATION), command)


def _go_on(run: Path, plan: Callable[..., PreparedLaunch], shows: str, how: Flags) -> RunFolder | None:
    """Plan and carry out a run that continues another run's chains; return the new run if it has ended.

    `shows`: the command that prints the new run's result. `how`: the options of `_of_a_continuation`.
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
    console.print(f"When the run has ended, print its result with:  {typed(shows)} {made.path.name}", soft_wrap=True)
    return None


@main.command("probe", short_help="Measure the value of accepted and rejected drafts.")
@integer(
    "--points",
    200,
    "Number of decisions to sample in total: accepted and rejected drafts, from each third of the chain if possible.",
    least=2,
)
@integer(
    "--rollouts",
    8,
    "Number of continuations after the draft's proposal at each point; as many again start before the proposal.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for sampling points and continuations.")
@click.option(
    "-o",
    "--output",
    "labels",
    metavar="FILE.parquet",
    type=OutputFile(".parquet"),
    help="When the probe has ended, write its points with texts and values as training data for a router.",
)
@_of_a_continuation
def probe(run: Path, points: int, rollouts: int, seed: int, concurrency: int, labels: Path | None, **how: Any) -> None:
    """Continue a run's chains with the target alone from sampled decisions, and grade the results.

    At each point, half of the continuations start after the draft's proposal; the others start before it, so the target
    writes the step itself. The difference in the share of correct continuations is the value of the proposal. Together,
    the points give the rates at which the judge accepts wrong steps and rejects correct ones. The probe is a separate
    run next to RUN; the same command resumes it.
    """
    from jobs.continuations import router_labels
    from jobs.continuations.probe import ProbeSettings, plan

    settings = ProbeSettings(points=points, rollouts=rollouts, seed=seed, concurrency=concurrency)
    ended = _go_on(run, partial(plan, settings=settings), "warehouse.probed", how)
    if labels is not None and ended is not None:
        click.echo(router_labels.write(ended, run_folder(run), labels))
    elif labels is not None and not how["dry_run"]:
        click.echo(f"{labels} has not been written yet; when the probe has ended, run the same command again.")


@main.command("sweep-budget", short_help="Measure a run's accuracy at smaller token budgets.")
@click.option(
    "--budgets",
    metavar="TOKENS,...",
    required=True,
    callback=whole_numbers("token counts such as 256,512,1024", least=0),
    help="Token budgets for truncating every chain, e.g. 256,512,1024.",
)
@integer("--answer-tokens", 512, "Maximum answer length after a truncated chain, in tokens; not counted in the budget.")
@_of_a_continuation
def sweep_budget(run: Path, budgets: tuple[int, ...], answer_tokens: int, **how: Value) -> None:
    """Truncate a run's finished chains to token budgets, end the reasoning there and generate answers.

    A chain that already fits keeps its grade. Stepwise chains are truncated at step boundaries; they are not re-planned
    for the budget. The answers form a separate run next to RUN and do not affect RUN's metrics; the same command
    resumes the new run.
    """
    from jobs.continuations.budget_sweep import plan

    _go_on(run, partial(plan, budgets=budgets, answer_tokens=answer_tokens), "jobs show", how)


@main.command(short_help="Print an example file: a profile, a suite, a scrontab, …")
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
def example(kind: str) -> None:
    """Print an example to edit: a cluster profile, a suite, a nightly scrontab, a notebook, or a router script.

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

    Commands become bash cells. The section "Install" and the outputs are left out, and links become text.
    """
    top, _, rest = page.partition("## Install")
    texts = _BLOCK.split(f"{top}{rest[rest.index(chr(10) + '## ') :]}")
    pairs = [("markdown", texts[0]), ("code", _PREPARATION)]
    for language, block, text in zip(texts[1::3], texts[2::3], texts[3::3], strict=True):
        if language:
            pairs.append(("code", f"{_MAGICS[language]}{block}"))
        pairs.append(("markdown", re.sub(r"\[([^]]+)]\([^)]+\.md[^)]*\)", r"\1", text)))
    cells: list[dict[str, Json]] = [
        {"cell_type": kind, "id": f"cell-{n}", "metadata": {}, "source": text.strip()}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for n, (kind, text) in enumerate((kind, text) for kind, text in pairs if text.strip())
    ]
    content = {"cells": cells, "metadata": {"kernelspec": _KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def suite_file(file: Path) -> Path:
    """Return a suite file: the given path, or the bundled suite with this name. Raises click.UsageError."""
    if file.exists() or file.suffix:
        return file
    if str(file) not in SUITES:
        raise click.UsageError(f"{file}: no such file; the bundled suites are: {', '.join(SUITES)}")
    return SUITES[str(file)]
