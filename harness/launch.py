"""`python -m harness.launch`: run one method on one benchmark, on Slurm or on this machine.

This module only parses flags. The orchestration is in `jobs.drive`, imported only after the flags are validated, to
keep `--help` and usage errors fast.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.settings import layers
from harness.settings.declaration import flag
from harness.settings.launch_command import LaunchCommand, LaunchOption

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

_LISTS = ("methods", "datasets", "models", "presets", "prompts")
_EXAMPLES = """\b
Examples:
  python -m harness.launch --method speccot --dataset amc23
  python -m harness.launch --method vanilla --dataset my.jsonl \\
    --target Qwen/Qwen3-8B --target.temperature 0.7
  python -m harness.launch --preset specreason-qwq --dataset aime24 \\
    --cluster slurm --profile mycluster --shards 8
"""


_option = functools.partial(click.option, cls=LaunchOption, heading="Output")


@click.command(cls=LaunchCommand, prints_outcome=True, epilog=_EXAMPLES)
@_option("--dry-run", is_common=True, is_flag=True, help="Print the plan and exit.")
@_option(
    "--list",
    "listing",
    is_common=True,
    type=click.Choice(_LISTS),
    metavar="WHAT",
    help="Print the available methods, datasets, models, presets or prompts, and exit.",
)
@_option("--wait", is_common=True, is_flag=True, help="On Slurm, wait for the run to finish, then print the result.")
@_option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the outcome as JSON on the last line of standard output; other output goes to standard error.",
)
@_option(
    "--tracker",
    type=click.Choice(("mlflow", "wandb")),
    help="Log the result of the finished run to MLflow or Weights & Biases; on Slurm, requires --wait.",
)
@click.pass_context
def main(context: click.Context, /, **values: Any) -> RunFolder | None:
    """Run one method on one benchmark, grade the answers, and print the result.

    Rerun the command to resume: finished samples are kept, interrupted ones continue after their last accepted step.
    """
    if values["listing"]:
        if values["listing"] == "prompts":
            _print_prompts(values["prompts"])
        else:
            _print_list(values["listing"])
        return None
    from harness.cli.screen import terminal
    from jobs import drive, outcome

    assert isinstance(context.command, LaunchCommand)
    typed, console = context.command.flags_of(context), terminal(stderr=values["as_json"])
    how = {"is_dry": values["dry_run"], "waits": values["wait"], "tracker": values["tracker"]}
    with outcome.printed(outcome.Outcome(is_one_run=True), as_json=values["as_json"]) as known:
        return drive.launch(known, layers.launch_from(typed), typed, console, **how).run


def _print_list(what: str) -> None:
    from harness.cli.screen import Column, Line, Screen, Table
    from harness.methods import METHODS, defaults, references
    from harness.problems import benchmarks, sources
    from harness.weights import models

    toy, rest = "bundled toy model, trained only on stories like those of the dataset demo", None
    rows: Sequence[Sequence[str]]
    if what == "methods":
        about = {
            name: (sys.modules[method.__module__].__doc__ or "").partition("\n")[0] for name, method in METHODS.items()
        }
        rows = [row for name in METHODS for row in ((name, about[name]), ("", " ".join(map(flag, defaults(name)))))]
        rest = f"or a custom class: {references.FORMS}"
    elif what == "datasets":
        rows = [(one.name, f"{one.count} problems", one.title) for one in benchmarks.DATASETS.values()]
        rest = f"or {sources.VALID}"
    elif what == "models":
        rows = [(name, toy) for name in models.BUNDLED] + [(m.name, m.path_or_hub_id) for m in models.MODELS.values()]
        rest = "or a Hugging Face id ORG/NAME, or a folder"
    else:
        rows = [(name, ", ".join(f"{k} {v}" for k, v in values.items())) for name, values in layers.presets().items()]
    table = Table([Column("")] * len(rows[0]), [row for row in rows if any(row[1:])])
    Screen(sys.stdout).show([table, *([Line(rest)] if rest else [])])


def _print_prompts(file: Path | None) -> None:
    """Print the built-in prompts as TOML, or the names of those that a file changes, with hashes as comments."""
    from harness import prompts
    from harness.prompts import prompt_hash

    try:
        wording = prompts.load(file) if file else prompts.BUILT_IN
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"# changed: {', '.join(wording.changes) or 'nothing'}" if file else prompts.built_in_text())
    click.echo(f"# prompt hash: {prompt_hash(wording)}")
    for piece, digest in prompts.piece_hashes(wording).items():
        remarks = [
            f"  ({paper}'s{'' if told.pieces[piece] == digest else f' is {told.pieces[piece]}'})"
            for paper, told in prompts.published().items()
            if piece in told.pieces
        ]
        click.echo(f"#   {piece:14} {digest}{''.join(remarks)}")


if __name__ == "__main__":
    main(prog_name="python -m harness.launch")
