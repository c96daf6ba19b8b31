"""`python -m harness.doctor`, with the flags of a launch: would that run work here, and on a node?

Looks at everything that a run needs, in seconds, without loading a model: packages, devices, models, tokenizers,
dataset, output folder, Slurm. `--on-node` asks a node the same in a one-minute job. Exit code 0: nothing failed,
1: something did, 2: the flags are wrong.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from harness import environment, launch, models, options, smollm
from harness.checks.check import Check, Question, Status
from harness.command import OneLineErrors
from harness.engine import Role
from harness.engines import adapter
from harness.methods import build

if TYPE_CHECKING:
    from jobs.submission.on_node import NodeAnswer

_MARKS: Mapping[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failure": ("FAILURE", "bold red"),
}
_WIDTH_OF_A_FILE = 160


@click.command(cls=OneLineErrors)
@click.option("--on-node", is_flag=True, help="Also ask a node, in a one-minute job with the options given for sbatch.")
@click.option("--wait", type=click.FloatRange(1), default=600, show_default=True, help="Seconds to wait for the node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def main(context: click.Context, /, **given: Any) -> None:
    """Check what a run with these flags needs. Takes every flag of harness.launch."""
    chosen = options.settled(context, given["preset"], given["config"])
    try:
        question = asked(chosen)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    here = _look(question)
    node = _ask_node(question, chosen["wait"], quiet=chosen["as_json"]) if chosen["on_node"] else None
    if chosen["as_json"]:
        print(_as_json(here, node))
    else:
        _print(here, node)
    found = [*here, *(node.checks if node else ())]
    sys.exit(any(check.status == "failure" for check in found))


def asked(chosen: Mapping[str, Any]) -> Question:
    """The question that the flags of a launch are. Raises ValueError and click.UsageError."""
    from jobs.submission.submit import resolve

    params = options.method_parameters(chosen["method"], chosen) if chosen["method"] else {}
    on_node = bool(chosen.get("on_node"))
    cluster = "slurm" if on_node else resolve(chosen["cluster"])
    return Question(
        engine=chosen["engine"],
        output=str(chosen["output"].absolute()),
        models=_models(chosen, params, cluster),
        tensor_parallel={"draft": chosen["draft_tensor_parallel"], "target": chosen["target_tensor_parallel"]},
        selection_adapter=_adapter(chosen),
        method=chosen["method"],
        params=params,
        dataset=chosen["dataset"],
        data_dir=str(chosen["data_dir"].absolute()) if chosen["data_dir"] else None,
        seed=chosen["seed"],
        token_budget=chosen["token_budget"],
        cluster=cluster,
        sbatch=launch.sbatch_options(chosen),
        tasks=-(-chosen["shards"] // chosen["shards_per_task"]),
    )


def _models(chosen: Mapping[str, Any], params: Mapping[str, Any], cluster: str) -> dict[Role, str]:
    """By role: the given ones, and the method's own where one is missing."""
    if chosen["engine"] == "scripted":
        return {}
    every: tuple[Role, ...] = ("draft", "target")
    given = {role: _absolute(chosen[role]) for role in every if chosen[role] is not None}
    if not chosen["method"]:
        return given
    pair = models.default_pair(chosen["method"], "gpu" if cluster == "slurm" else environment.accelerator())
    default = {"draft": pair.draft, "target": pair.target}
    roles = build(chosen["method"], dict(params)).roles
    return {role: given.get(role) or default[role] for role in roles}


def _adapter(chosen: Mapping[str, Any]) -> str | None:
    """The folder of the selection adapter. Raises ValueError where it is none."""
    return adapter.read(chosen["selection_adapter"]).path if chosen["selection_adapter"] else None


def _absolute(name: str) -> str:
    """A folder as an absolute path, any other name as it is. Raises ValueError for one that is no model's name."""
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser().absolute())
    if name.lower() not in {smollm.NAME, *models.PAIR}:
        models.resolve(name)
    return name


def _look(question: Question) -> list[Check]:
    from harness.checks.every import checks
    from jobs.slurm.checks import check_slurm

    return checks(question, {"slurm": lambda: check_slurm(question)})


def _ask_node(question: Question, wait_seconds: float, *, quiet: bool) -> NodeAnswer:
    from jobs.submission.on_node import ask_node

    return ask_node(question, wait_seconds, lambda text: None if quiet else click.echo(text, err=True))


def _as_json(here: list[Check], node: NodeAnswer | None) -> str:
    tables: dict[str, Any] = {"here": {"hostname": socket.gethostname(), "checks": [asdict(check) for check in here]}}
    if node is not None:
        tables["node"] = asdict(node)
    return json.dumps(tables, indent=2)


def _print(here: list[Check], node: NodeAnswer | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_OF_A_FILE)
    table = Table("check", socket.gethostname(), *([node.hostname] if node else ()), show_lines=node is not None)
    columns = [_by_subject(checks) for checks in (here, *((node.checks,) if node else ()))]
    for subject in dict.fromkeys(subject for column in columns for subject in column):
        table.add_row(subject, *(_cell(column.get(subject, [])) for column in columns))
    console.print(table)
    found = [*here, *(node.checks if node else ())]
    counts = {status: sum(check.status == status for check in found) for status in _MARKS}
    console.print(f"{counts['ok']} ok, {counts['warning']} warnings, {counts['failure']} failures")


def _by_subject(checks: list[Check]) -> dict[str, list[Check]]:
    column: dict[str, list[Check]] = {}
    for check in checks:
        column.setdefault(check.subject, []).append(check)
    return column


def _cell(checks: list[Check]) -> Any:
    from rich.text import Text

    cell = Text()
    for number, check in enumerate(checks):
        mark, style = _MARKS[check.status]
        cell.append("\n" if number else "").append(f"{mark}  ", style=style).append(check.text)
    return cell


_NOT_OURS = {"dry_run", "listing"}
main.params[:0] = [parameter for parameter in launch.main.params if parameter.name not in _NOT_OURS]

if __name__ == "__main__":
    cast(click.Command, main)(prog_name="python -m harness.doctor")
