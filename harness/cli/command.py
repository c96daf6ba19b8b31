"""Click commands with one-line errors that list the valid values."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import click

from harness import environment
from harness.cli import exit_codes, permissions
from harness.cli.messages import did_you_mean

_END_OF_CSV = "\r\n"
_ACTS_ON_TERMINALS = re.compile(r"[^\t\n -~\xa1-\xac\xae-\u05ff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufdff]")
"""Fast check for characters that might act on a terminal; harness.cli.screen.printable decides."""
_COMMAND = re.compile(r"(?:python -m|speculative-harness|pip install|hf download|git lfs) [^;,()]+")
"""A command quoted in a message, up to the end of the clause."""
_LISTS_ALL = "harness.help-all"
"""Click context key: whether the help lists every option."""


class OutputFile(click.Path):
    """An output file in an existing folder, with a required extension (such as `.json`) or none."""

    def __init__(self, ending: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._ending = ending

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises click.BadParameter for another extension, or a missing or read-only folder."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() not in {"", self._ending}:
            self.fail(f"{path}: must end in {self._ending}, the only supported format", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path}: the folder {path.parent} does not exist", param, ctx)
        try:  # mode bits are unreliable, and root ignores them
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            self.fail(f"{path}: cannot write to {path.parent}: {error.strerror}", param, ctx)
        return path


def whole_numbers(expected: str, least: int = 1, most: float = math.inf) -> Callable[..., tuple[int, ...]]:
    """Return a click callback that converts comma-separated integers to a sorted tuple without duplicates."""

    def parsed(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
        words = [] if text is None else text.split(",")
        if not all(word.strip().isdecimal() and len(word) < 10 and least <= int(word) <= most for word in words):
            raise click.BadParameter(f"{text!r}: expected {expected}")
        return tuple(sorted(set(map(int, words))))

    return parsed


DATE = click.DateTime(["%Y-%m-%d"])
TRUST = click.option(
    "--trust",
    is_flag=True,
    help="Accept content that another user put into the run folder (method or grader code, server addresses, sbatch "
    "options). Only content listed before is accepted, so first run the command without --trust.",
)
"""Option of commands that execute or submit work on a run."""
GRADER = click.option(
    "--grader",
    metavar="NAME",
    help="Grader for the run from now on: built-in, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION.  [default: the run's "
    "previous grader]",
)
"""Option of commands that grade."""


class _Escaping:
    """A stream that escapes untrusted text, which could move the cursor, change colors or hide text."""

    def __init__(self, stream: Any) -> None:
        if isinstance(stream, _Escaping):  # nested commands
            stream = stream.rich_proxied_file
        self.rich_proxied_file: Any = stream
        """The unescaped stream, for rich: harness.cli.screen.terminal escapes text, and rich adds color codes."""

    def write(self, text: str) -> int:
        """Write text, keeping line breaks and tabs."""
        if _ACTS_ON_TERMINALS.search(text):
            from harness.cli.screen import printable

            text = _END_OF_CSV.join(printable(part, "\t\n") for part in text.split(_END_OF_CSV))
        return int(self.rich_proxied_file.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class FurtherOption(click.Option):
    """An option listed only by `--help-all`."""

    is_common = False


class OneLineErrors(click.Command):
    """A command that prints errors as one line on stderr; exit code 2 for invalid input, 1 for other failures.

    Permission errors on files count as invalid input.

    Adds `-h` and `--version`. `--help` groups options by their attribute `heading`, in the order of `headings`. Options
    with a false `is_common` are listed only by `--help-all`. `prints_outcome`: whether the command has an option
    `--json`, with which usage errors are also printed as a line of JSON on stdout.
    """

    def __init__(
        self, *arguments: Any, headings: Iterable[str] = (), prints_outcome: bool = False, **settings: Any
    ) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        settings["context_settings"] = {**names, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)
        self.headings = tuple(headings)
        self.prints_outcome = prints_outcome
        version = _printing("--version", "Print the version and exit.", lambda _: environment.version_line())
        self.params.append(version)
        self._help_all = _printing("--help-all", "List every option.", _whole_help)

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command with escaped output and return its result; exit with the result if it is an integer."""
        before = sys.stdout, sys.stderr
        for stream in before:
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # its encoding may lack ± or ×
        sys.stdout, sys.stderr = cast(Any, _Escaping(sys.stdout)), cast(Any, _Escaping(sys.stderr))
        try:
            result = super().main(*arguments, **{**settings, "standalone_mode": False})
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.Abort:
            sys.exit(exit_codes.INTERRUPTED)
        except click.ClickException as error:
            _say_error(self.reworded(error.format_message()))
            sys.exit(error.exit_code)
        except OSError as error:  # usually another user's file
            if not permissions.is_forbidden(error):
                raise
            _say_error(permissions.explained(error))
            sys.exit(exit_codes.WRONG_INPUT)
        finally:
            sys.stdout, sys.stderr = before
        if isinstance(result, int):
            sys.exit(result)
        return result

    def reworded(self, text: str) -> str:
        """Return a help text or error with the program's command names; overridden by programs that rename commands."""
        return text

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, with commands named as in the program that the user called."""
        text, program = super().get_help(ctx), ctx.find_root().command
        return program.reworded(text) if isinstance(program, OneLineErrors) else text

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **settings: Any) -> click.Context:
        """Parse the command line; with `--json`, usage errors are also printed as JSON."""
        is_json = self.prints_outcome and "--json" in args
        try:
            return super().make_context(info_name, args, *rest, **settings)
        except click.UsageError as error:
            if is_json:
                found = {"exit_code": error.exit_code, "error": " ".join(error.format_message().split())}
                click.echo(json.dumps(found))
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options; includes `--help-all` if `--help` does not list all options."""
        params = super().get_params(ctx)
        if all(getattr(parameter, "is_common", True) for parameter in params):
            return params
        return [*params, self._help_all]

    def is_listed(self, parameter: click.Parameter, ctx: click.Context) -> bool:
        """Return whether the requested help lists an option."""
        return self.lists_all(ctx) or getattr(parameter, "is_common", True)

    @staticmethod
    def lists_all(ctx: click.Context) -> bool:
        """Return whether `--help-all` was requested."""
        return bool(ctx.meta.get(_LISTS_ALL))

    def where_the_rest_is(self, ctx: click.Context) -> str:
        """Return the last line of a help that does not list all options."""
        return f"All options: {ctx.command_path} --help-all."

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and, if this help omits options, a pointer to `--help-all`."""
        super().format_epilog(ctx, formatter)
        if self._help_all in self.get_params(ctx) and not self.lists_all(ctx):
            formatter.write_paragraph()
            formatter.write_text(self.where_the_rest_is(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a group without arguments prints its help."""
        if not args and isinstance(self, click.Group) and not self.invoke_without_command and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(0)
        rest = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, float) and math.isnan(value):  # click's range checks accept NaN
                raise click.BadParameter("'nan' is not a number", ctx, parameter)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by heading; options without a heading come last, under Options."""
        by_heading: dict[str, list[tuple[str, str]]] = {heading: [] for heading in self.headings}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if self.is_listed(parameter, ctx) else None
            if record is not None and record[1]:  # from version 8.2 on, click has a record for every argument
                by_heading.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sorted(by_heading.items(), key=lambda one: one[0] == "Options"):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class OneLineGroup(OneLineErrors, click.Group):
    """A command with subcommands; prints its help if none is given."""

    command_class = OneLineErrors

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand. An error for an unknown name lists the valid ones."""
        if not ctx.resilient_parsing and args and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], names)}; valid: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _say_error(message: str) -> None:
    """Print a one-line error; on a terminal, wrap it between words, but not inside commands, which users copy."""
    line = f"error: {' '.join(message.split())}"
    if sys.stderr.isatty():
        whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line)
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(whole, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
    click.echo(line, err=True)


def _printing(name: str, explained: str, text: Callable[[click.Context], str]) -> click.Option:
    def show(context: click.Context, _: click.Parameter, requested: bool) -> None:
        if requested and not context.resilient_parsing:
            click.echo(text(context))
            context.exit(0)

    return click.Option([name], is_flag=True, expose_value=False, is_eager=True, callback=show, help=explained)


def _whole_help(context: click.Context) -> str:
    context.meta[_LISTS_ALL] = True
    return context.get_help()
