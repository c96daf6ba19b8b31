"""Commands that answer a wrong input with one line: what is wrong, and what is valid."""

from __future__ import annotations

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
"""End of a line of CSV."""
_ACTS_ON_TERMINALS = re.compile(r"[^\t\n -~\xa1-\xac\xae-\u05ff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufdff]")
"""Any character that might; harness.cli.screen.printable decides."""
_COMMAND = re.compile(r"(?:python -m|speculative-harness|pip install|hf download|git lfs) [^;,()]+")
"""A command in a message, up to the end of its sentence."""
_LISTS_ALL = "harness.help-all"
"""Key of a context: whether its help lists every option."""


class OutputFile(click.Path):
    """A file in a folder that exists, whose name has one ending or none."""

    def __init__(self, ending: str) -> None:
        """`ending` is that of the format that is written, such as `.json`."""
        super().__init__(dir_okay=False, path_type=Path)
        self._ending = ending

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises click.BadParameter for another ending, and a folder that cannot be written in."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() not in {"", self._ending}:
            self.fail(f"{path} does not end in {self._ending}, the only format that is written", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path}: the folder {path.parent} does not exist", param, ctx)
        try:  # permissions do not tell, nor do they bind root
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            self.fail(f"{path}: cannot write in {path.parent}: {error.strerror}", param, ctx)
        return path


def whole_numbers(expected: str, least: int = 1, most: float = math.inf) -> Callable[..., tuple[int, ...]]:
    """Return the callback of an option of whole numbers with commas between them: each once, in ascending order."""

    def parsed(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
        words = [] if text is None else text.split(",")
        if not all(word.strip().isdecimal() and len(word) < 10 and least <= int(word) <= most for word in words):
            raise click.BadParameter(f"{text!r}: expected {expected}")
        return tuple(sorted(set(map(int, words))))

    return parsed


DATE = click.DateTime(["%Y-%m-%d"])
"""A calendar date, as a datetime at midnight."""
TRUST = click.option(
    "--trust",
    is_flag=True,
    help="Accept what somebody else recorded in the run folder, as this command has shown it: code of a method or a "
    "grader, addresses of servers, options of sbatch.",
)
"""The option of a command that works on a run, or submits work on it."""
GRADER = click.option(
    "--grader",
    metavar="NAME",
    help="What grades the run from now on: built-in, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION.  [default: what "
    "graded it before]",
)
"""The option of a command that grades."""


class _Escaping:
    """A stream on which nothing that a folder of others names moves the cursor, changes colors or hides text."""

    def __init__(self, stream: Any) -> None:
        if isinstance(stream, _Escaping):  # of a command in a command
            stream = stream.rich_proxied_file
        self.rich_proxied_file: Any = stream
        """Where rich writes, whose colors are its own: harness.cli.screen.terminal escapes its text."""

    def write(self, text: str) -> int:
        """Write a text with its lines and tabs."""
        if _ACTS_ON_TERMINALS.search(text):
            from harness.cli.screen import printable

            text = _END_OF_CSV.join(printable(part, "\t\n") for part in text.split(_END_OF_CSV))
        return int(self.rich_proxied_file.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class FurtherOption(click.Option):
    """An option that `--help-all` alone lists."""

    is_common = False


class OneLineErrors(click.Command):
    """A command that exits with code 2 on a wrong input and with 1 on other trouble, with one line on stderr.

    A file or folder that the user may not read or write counts as a wrong input.

    It has `-h` and `--version`. Options with an attribute `heading` are listed by `--help` under it, in the order of
    `headings`; those with an attribute `is_common` that is false, `--help-all` alone lists. With `prints_outcome` it
    has an option `--json`, and a command line that cannot be parsed has its line of JSON too, on standard output, as
    any other refusal has.
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
        """Run and return what the command returns; a number is the exit code. What it prints is escaped."""
        before = sys.stdout, sys.stderr
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
        except OSError as error:  # a colleague's file, most often
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
        """Return a help text or an error as it is printed; a program with other names for the commands changes them."""
        return text

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, in the words of the program that was called."""
        text, program = super().get_help(ctx), ctx.find_root().command
        return program.reworded(text) if isinstance(program, OneLineErrors) else text

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **settings: Any) -> click.Context:
        """Parse; what cannot be parsed has its line of JSON where the command has one and it is asked for."""
        is_json = self.prints_outcome and "--json" in args
        try:
            return super().make_context(info_name, args, *rest, **settings)
        except click.UsageError as error:
            if is_json:
                found = {"exit_code": error.exit_code, "error": " ".join(error.format_message().split())}
                click.echo(json.dumps(found))
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with `--help-all` where there is more to list than `--help` does."""
        params = super().get_params(ctx)
        if all(getattr(parameter, "is_common", True) for parameter in params):
            return params
        return [*params, self._help_all]

    def is_listed(self, parameter: click.Parameter, ctx: click.Context) -> bool:
        """Return whether the help that is asked for lists an option."""
        return self.lists_all(ctx) or getattr(parameter, "is_common", True)

    @staticmethod
    def lists_all(ctx: click.Context) -> bool:
        """Return whether the help that is asked for is that of `--help-all`."""
        return bool(ctx.meta.get(_LISTS_ALL))

    def where_the_rest_is(self, ctx: click.Context) -> str:
        """Return the last line of a help that does not list everything."""
        return f"All options: {ctx.command_path} --help-all."

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and where the rest is."""
        super().format_epilog(ctx, formatter)
        if self._help_all in self.get_params(ctx) and not self.lists_all(ctx):
            formatter.write_paragraph()
            formatter.write_text(self.where_the_rest_is(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, or print the help of a group where nothing was typed."""
        if not args and isinstance(self, click.Group) and not self.invoke_without_command and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(0)
        rest = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, float) and math.isnan(value):  # which click takes for a number within every range
                raise click.BadParameter("'nan' is not a number", ctx, parameter)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by heading; those without one come last, under Options."""
        by_heading: dict[str, list[tuple[str, str]]] = {heading: [] for heading in self.headings}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if self.is_listed(parameter, ctx) else None
            if record is not None and record[1]:  # from 8.2, click has one for every argument
                by_heading.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sorted(by_heading.items(), key=lambda one: one[0] == "Options"):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class OneLineGroup(OneLineErrors, click.Group):
    """A command with subcommands; without any it prints its help."""

    command_class = OneLineErrors

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; an unknown one is an error that names the others."""
        if not ctx.resilient_parsing and args and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], names)}; there are: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _say_error(message: str) -> None:
    """Print an error: one line, on a terminal wrapped between words, except inside a command that one copies."""
    line = f"error: {' '.join(message.split())}"
    if sys.stderr.isatty():
        whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line)
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(whole, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
    click.echo(line, err=True)


def _printing(name: str, explained: str, text: Callable[[click.Context], str]) -> click.Option:
    """Return an option that prints a text and exits."""

    def show(context: click.Context, _: click.Parameter, requested: bool) -> None:
        if requested and not context.resilient_parsing:
            click.echo(text(context))
            context.exit(0)

    return click.Option([name], is_flag=True, expose_value=False, is_eager=True, callback=show, help=explained)


def _whole_help(context: click.Context) -> str:
    context.meta[_LISTS_ALL] = True
    return context.get_help()
