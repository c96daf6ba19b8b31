"""`python -m harness.doctor`, with the flags of a launch: check whether the run would work.

Checks all requirements of a run in seconds, without loading a model: packages, devices, models, tokenizers, dataset,
output folder, Slurm. `--on-node` also runs these checks in a one-minute job on a node. Exit code 0: no failures,
1: failures, 2: invalid flags. `--engines` instead tests real engines, which takes minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import partial

import click

from harness.checks.finding import Check, Status
from harness.cli.messages import counted
from harness.engine import Json
from harness.settings.declaration import flag
from harness.settings.launch_command import LaunchCommand
from harness.settings.launch_settings import PartialLaunch
from harness.settings.layers import merged_flags
from harness.weights import models

_STYLES: Mapping[Status, str] = {"ok": "green", "warning": "yellow", "failure": "bold red"}
_COMMON = {"method", "dataset", "draft", "target", "config", "profile"}
_EXAMPLES = """\b
Examples:
  python -m harness.doctor
  python -m harness.doctor --method speccot --dataset amc23 \\
    --profile mycluster --on-node
  python -m harness.doctor --engines
"""


@click.command(cls=LaunchCommand, common=_COMMON, epilog=_EXAMPLES)
@click.option(
    "--on-node",
    is_flag=True,
    help="Also check a node, in a one-minute job that is submitted with the given sbatch options.",
)
@click.option(
    "--wait",
    type=click.FloatRange(1),
    default=600,
    show_default=True,
    help="With --on-node, seconds to wait for the job.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--engines", is_flag=True, help="Test real engines on this machine instead of a run's requirements; takes minutes."
)
@click.option("--only", metavar="CHECK,…", default="", help="Run only these checks of --engines.")
@click.option(
    "--time-limit", type=click.FloatRange(1), default=600, show_default=True,
    help="Time limit for each check of --engines, in seconds, including engine starts; large models need more.",
)  # fmt: skip
@click.pass_context
def main(
    context: click.Context, /, on_node: bool, wait: float, as_json: bool, engines: bool, only: str, time_limit: float,
    **_: Json,
) -> None:  # fmt: skip
    """Check the requirements of a run in seconds, without loading a model.

    Takes the flags of a launch. --engines starts and tests real engines instead, and uses only --draft, --target,
    --engine and --config.
    """
    from jobs.submission.on_node import examine

    assert isinstance(context.command, LaunchCommand)
    flags = context.command.flags_of(context)
    try:
        launch = PartialLaunch.from_flags(merged_flags(flags))
        if engines:
            sys.exit(not _check_engines(launch, flags, only, time_limit, as_json=as_json))
        if only:
            raise ValueError("--only requires --engines")
        say = (lambda _: None) if as_json else partial(click.echo, err=True)
        found = examine(launch, flags, wait if on_node else None, say)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print(json.dumps({side: asdict(answer) for side, answer in found.items()}, indent=2))
    else:
        for answer in found.values():
            _print(answer.hostname, answer.checks)
    sys.exit(any(check.status == "failure" for answer in found.values() for check in answer.checks))


def _check_engines(
    launch: PartialLaunch, typed: Collection[str], only: str, time_limit: float, *, as_json: bool
) -> bool:
    from jobs.engine_checks import check_engines

    if unused := sorted(set(typed) - {"draft", "target", "engine", "config"}):
        raise ValueError(f"--engines uses only --draft, --target, --engine and --config, not {flag(unused[0])}")
    names = [name.strip() for name in only.split(",") if name.strip()]
    return check_engines(launch, names, time_limit, as_json=as_json)


def _print(host: str, made: list[Check]) -> None:
    """Print one line per check. Only the terminal wraps lines, so users can copy the commands in them."""
    from rich.text import Text

    from harness.cli.screen import printable, terminal

    console = terminal()
    console.print(Text(host, "bold"))
    for check in made:
        status = "FAILURE" if check.status == "failure" else check.status
        line = Text.assemble((f"  {status:8}", _STYLES[check.status]), f"{check.subject:17} {printable(check.text)}")
        console.print(line, soft_wrap=True)
    counts = {status: sum(check.status == status for check in made) for status in _STYLES}
    warnings, failures = counted(counts["warning"], "warning"), counted(counts["failure"], "failure")
    console.print(f"{counts['ok']} ok, {warnings}, {failures}")


if __name__ == "__main__":
    main(prog_name="python -m harness.doctor")
