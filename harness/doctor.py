"""`python -m harness.doctor`, with the flags of a launch: would that run work here, and on a node?

Looks at everything that a run needs, in seconds, without loading a model: packages, devices, models, tokenizers,
dataset, output folder, Slurm. `--on-node` asks a node the same in a one-minute job. Exit code 0: nothing failed,
1: something did, 2: the flags are wrong. What only real engines can show, `--engines` tests, in minutes.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import environment, prompts
from harness.checks.finding import Check, Question, Status, proposer_of
from harness.cli.messages import counted
from harness.engine import Json, Role
from harness.engines import registry
from harness.engines.served.address import is_address
from harness.engines.speculation import proposing_roles
from harness.methods import build
from harness.problems import sources
from harness.settings.declaration import flag
from harness.settings.launch_command import LaunchCommand
from harness.settings.launch_settings import Cluster, PartialLaunch
from harness.settings.layers import merged_flags
from harness.settings.roles import ModelSettings
from harness.weights import adapter, models

if TYPE_CHECKING:
    from jobs.submission.on_node import NodeAnswer

_MARKS: Mapping[Status, str] = {
    "ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failure": "[bold red]FAILURE[/]"
}  # fmt: skip
_COMMON = {"method", "dataset", "draft", "target", "config", "profile"}
_EXAMPLES = """\b
Examples:
  python -m harness.doctor
  python -m harness.doctor --method speccot --dataset amc23 \\
    --profile mycluster --on-node
  python -m harness.doctor --engines
"""


@click.command(cls=LaunchCommand, common=_COMMON, epilog=_EXAMPLES)
@click.option("--on-node", is_flag=True, help="Also check a node, in a one-minute job with the given sbatch options.")
@click.option("--wait", type=click.FloatRange(1), default=600, show_default=True, help="Seconds to wait for the node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--engines", is_flag=True, help="Test this machine with real engines instead, in some minutes.")
@click.option("--only", metavar="CHECK,…", default="", help="Make only these checks of --engines.")
@click.option(
    "--time-limit", type=click.FloatRange(1), default=600, show_default=True,
    help="Seconds that one check of --engines may take, starts included; large models need more.",
)  # fmt: skip
@click.pass_context
def main(
    context: click.Context, /, on_node: bool, wait: float, as_json: bool, engines: bool, only: str, time_limit: float,
    **_: Json,
) -> None:  # fmt: skip
    """Check what a run with these flags needs, in seconds and without loading a model. Takes the flags of a launch.

    With --engines, of which --draft, --target and --engine say the models, real engines start and answer.
    """
    from harness.checks.every import checks
    from jobs.run.plan import check_used
    from jobs.submission.on_node import ask_node, check_slurm

    assert isinstance(context.command, LaunchCommand)
    flags = context.command.flags_of(context)
    try:
        launch = PartialLaunch.from_flags(merged_flags(flags))
        if engines:
            sys.exit(not _check_engines(launch, flags, only, time_limit, as_json=as_json))
        if only:
            raise ValueError("--only chooses checks of --engines, which is not given")
        check_used(launch, flags)
        question = question_of(launch, on_node=on_node)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    here = checks(question, {"slurm": lambda: check_slurm(question)})
    say = partial(click.echo, err=True)
    node = ask_node(question, wait, (lambda _: None) if as_json else say) if on_node else None
    if as_json:
        tables = {"here": {"hostname": socket.gethostname(), "checks": [asdict(check) for check in here]}}
        print(json.dumps(tables | ({"node": asdict(node)} if node else {}), indent=2))
    else:
        _print(here, node)
    every_check = [*here, *(node.checks if node else ())]
    sys.exit(any(check.status == "failure" for check in every_check))


def _check_engines(
    launch: PartialLaunch, typed: Collection[str], only: str, time_limit: float, *, as_json: bool
) -> bool:
    from jobs.engine_checks import check_engines

    if unused := sorted(set(typed) - {"draft", "target", "engine", "config"}):
        raise ValueError(f"--engines uses --draft, --target and --engine, not {flag(unused[0])}")
    names = [name.strip() for name in only.split(",") if name.strip()]
    try:
        return check_engines(launch, names, time_limit, as_json=as_json)
    except models.ModelUnavailable as error:
        raise ValueError(str(error)) from error


def question_of(launch: PartialLaunch, *, on_node: bool) -> Question:
    """Return what is to be checked for a launch. Raises ValueError with one line."""
    from jobs.preparation import sbatch_options
    from jobs.run import plan, sizing
    from jobs.slurm.client import ControllerSilent, resolve

    try:
        cluster = "slurm" if on_node else resolve(launch.cluster)
    except ControllerSilent:  # what is wrong is among the answers
        cluster = "slurm"
    for role in launch.roles:
        plan.recorded_settings(launch, role, "vllm" if launch.engine == "auto" else launch.engine)
    roles = _roles(launch)
    sizing.addresses(launch, roles)
    wording = prompts.load(launch.prompts).stored if launch.prompts else None
    data_dir = str(launch.data_dir.absolute()) if launch.data_dir else None
    named, dataset = launch.target.adapter, launch.dataset
    if dataset is not None and sources.is_own(dataset) and not dataset.startswith(sources.HUB):
        dataset = str(Path(dataset).absolute())  # as a node needs it
    launch = launch.changed(
        output=launch.output.absolute(),
        dataset=dataset,
        data_dir=None,
        spec_model=launch.spec_model and _absolute(launch.spec_model),
        target=replace(launch.target, adapter=adapter.read(named).path if named else None),
    )
    return Question(launch, _models(launch, roles, cluster), data_dir, wording, cluster, sbatch_options(launch))


def _roles(launch: PartialLaunch) -> tuple[Role, ...]:
    """Return the models that a launch needs; without a method, those that it names."""
    if launch.method is None:
        return tuple(role for role, name in launch.models.items() if name is not None)
    roles = build(launch.method, dict(launch.parameters)).roles
    return (*roles, *proposing_roles(proposer_of(launch), launch.spec_model))


def _models(launch: PartialLaunch, roles: tuple[Role, ...], cluster: Cluster) -> dict[Role, ModelSettings]:
    """Return the models by role: the named ones, and the method's default where one is missing."""
    if not registry.capabilities(launch.engine).runs_models:
        return {}
    names = {role: _absolute(name) for role, name in launch.models.items() if name is not None}
    if launch.method is not None:
        device = "gpu" if cluster == "slurm" else environment.accelerator()
        compares = build(launch.method, dict(launch.parameters)).asks_equivalence
        names = dict(models.by_role(launch.method, roles, names, device, compares=compares)[0])
    own = {role: launch.roles[role] for role in names}
    tokenizers = {role: told.tokenizer and _absolute_folder(told.tokenizer) for role, told in own.items()}
    return {
        role: replace(told, model=names[role], tokenizer=tokenizers[role], dtype=launch.dtype_of(role))
        for role, told in own.items()
    }


def _absolute_folder(name: str) -> str:
    """Return a folder as an absolute path, any other name as it is."""
    folder = models.folder_named(name)
    return name if folder is None else str(folder.absolute())


def _absolute(name: str) -> str:
    """A folder as an absolute path, any other name as it is. Raises ValueError for one that is no model's name."""
    if models.folder_named(name) is None and not is_address(name) and name.lower() not in models.BUNDLED:
        models.resolve(name)
    return _absolute_folder(name)


def _print(here: list[Check], node: NodeAnswer | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    from harness.cli.screen import terminal

    console = terminal(markup=True)
    table = Table("check", socket.gethostname(), *([node.hostname] if node else ()), show_lines=node is not None)
    columns = [here, *([node.checks] if node else ())]
    every_check = [check for column in columns for check in column]
    for subject in dict.fromkeys(check.subject for check in every_check):
        found = [[check for check in column if check.subject == subject] for column in columns]
        table.add_row(subject, *("\n".join(f"{_MARKS[c.status]}  {escape(c.text)}" for c in cell) for cell in found))
    console.print(table)
    counts = {status: sum(check.status == status for check in every_check) for status in _MARKS}
    warnings, failures = counted(counts["warning"], "warning"), counted(counts["failure"], "failure")
    console.print(f"{counts['ok']} ok, {warnings}, {failures}")
    console.print("python -m harness.doctor --engines tests this machine with real engines.")


if __name__ == "__main__":
    main(prog_name="python -m harness.doctor")
