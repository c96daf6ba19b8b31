"""The command `speculative-harness`: the modules' commands as subcommands, imported on use.

    speculative-harness launch --method speccot --dataset amc23    is    python -m harness.launch --method …
    speculative-harness status RUN                                 is    python -m jobs status RUN

`python -m` puts the working directory first on the module search path, so it fails in a folder with another package
`jobs` or `grading`. This command and its child processes do not search the working directory.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from harness.cli.command import OneLineGroup
from harness.cli.program import ALIASES, PROGRAM, VARIABLE, name_of

COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run": {
        "launch": ("harness.launch", "Run one method on one benchmark, grade the answers, and print the result."),
        "suite": ("jobs suite", "Launch the runs of a suite file."),
        "nightly": ("jobs nightly", "Launch a nightly suite and report its verdict."),
        "reproduce": ("harness.reproduce", "Run a suite and print its table next to the published values."),
        "train": ("harness.train", "Train SCoT's draft (section 3.3) and draft selector (section 3.4)."),
    },
    "Watch": {
        "status": ("jobs status", "Print the status of runs."),
        "list": ("jobs list", "List the runs of a folder."),
        "show": ("jobs show", "Print all metrics of a run."),
        "logs": ("jobs logs", "Print the end of a worker's log."),
        "cancel": ("jobs cancel", "Cancel a run's Slurm jobs."),
        "resume": ("jobs resume", "Submit the unfinished shards."),
        "retry-failed": ("jobs retry-failed", "Retry samples that ended in an error."),
        "worker": ("jobs worker", "Run one shard in this process."),
        "finalize": ("jobs finalize", "Grade a run, load it into the database and print the result."),
        "example": ("jobs example", "Print an example file: a profile, a suite, a scrontab, …"),
    },
    "Results": {
        "compare": ("warehouse.compare", "Compare runs, paired by problem."),
        "plan": ("warehouse.plan", "Plan the number of problems and samples of a comparison."),
        "report": ("warehouse.report", "Write a report on loaded runs."),
        "query": ("warehouse.query", "Run SQL on the database, read-only."),
        "trace": ("warehouse.trace", "Print one sample: prompt, steps, candidates, verdicts, calls."),
        "load": ("warehouse.load", "Load run folders into the database or update them."),
        "export": ("warehouse.export", "Write one run as Parquet files or as an Inspect log."),
        "nights": ("warehouse.nightly", "Judge the newest night's results against earlier nights."),
        "probe": ("jobs probe", "Measure the value of accepted and rejected drafts."),
        "sweep-budget": ("jobs sweep-budget", "Measure a run's accuracy at smaller token budgets."),
        "probed": ("warehouse.probed", "Print a judge's error rates, from a probe."),
        "lossless": ("jobs lossless", "Check that two runs emitted the same tokens."),
    },
    "Grading": {
        "grade": ("grading.regrade", "Grade the stored answers of runs again."),
        "check": ("grading.check", "List gold answers that the grader rejects or compares only as text."),
        "candidates": ("warehouse.candidates", "Grade the drafts of SCoT runs."),
        "target-logprobs": ("jobs target-logprobs", "Score steps with the run's target."),
        "score": ("jobs score", "Score steps with a reward model."),
    },
    "Machine": {
        "doctor": ("harness.doctor", "Check the requirements of a run in seconds, without loading a model."),
        "sizing": ("harness.sizing", "Print how a draft and a target fit on various GPUs."),
    },
}
"""By heading and name: the words after `python -m` (a module and its subcommand, if any), and a short help."""
_BY_NAME = {name: called for commands in COMMANDS.values() for name, (called, _) in commands.items()}
_MODULE_COMMAND = re.compile(r"python -m ((?:harness|warehouse|grading)\.\w+|jobs [a-z-]+)")
_EPILOG = f"""\b
Examples:
  {PROGRAM} suite demo
  {PROGRAM} launch --method speccot --dataset amc23
  {PROGRAM} compare RUN RUN
  {PROGRAM} COMMAND --help
"""


class Console(OneLineGroup):
    """The group of all commands; its help imports none of their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in help order."""
        return list(_BY_NAME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by name or alias; None if unknown."""
        called = _BY_NAME.get(ALIASES.get(cmd_name, cmd_name))
        return None if called is None else _imported(called)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, grouped by heading."""
        also = {name: f" Also: {alias}." for alias, name in ALIASES.items()}
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, text + also.get(name, "")) for name, (_, text) in commands.items()])

    def reworded(self, text: str) -> str:
        """Replace `python -m MODULE` in a help text or error with this program's subcommand."""
        return _MODULE_COMMAND.sub(_reworded, text)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching commands, without importing them."""
        described = [(name, text) for commands in COMMANDS.values() for name, (_, text) in commands.items()]
        items = [CompletionItem(name, help=text) for name, text in described if name.startswith(incomplete)]
        return items or click.Command.shell_complete(self, ctx, incomplete)


def _imported(called: str) -> click.Command:
    name, _, subcommand = called.partition(" ")
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    command: click.Command = module.main
    return command.commands[subcommand] if isinstance(command, click.Group) and subcommand else command


def _reworded(found: re.Match[str]) -> str:
    name = name_of(found[1])
    return f"{PROGRAM} {name}" if name in _BY_NAME else found[0]


main = Console(PROGRAM, help="Evaluate speculative reasoning with a draft and a target model.", epilog=_EPILOG)


def run() -> None:
    """Run the console script. Its child processes do not search the working directory for modules either."""
    os.environ |= {"PYTHONSAFEPATH": "1", VARIABLE: PROGRAM}
    main(prog_name=PROGRAM)
