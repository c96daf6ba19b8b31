"""Commands whose mistakes are answered by one line: what is wrong, and what would be right."""

from __future__ import annotations

import sys
from typing import Any

import click


class OneLineErrors(click.Command):
    """A command; a wrong input ends it with exit code 2, other trouble with 1, either with one line on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run and return what the command returns; a number is the exit code."""
        try:
            result = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.Abort:
            sys.exit(130)
        except click.ClickException as wrong:
            line = " ".join(wrong.format_message().split())
            click.echo(f"error: {line if line.isprintable() else line.encode('unicode_escape').decode()}", err=True)
            sys.exit(wrong.exit_code)
        if isinstance(result, int):
            sys.exit(result)
        return result


class OneLineGroup(OneLineErrors, click.Group):
    """Commands under one name, likewise."""
