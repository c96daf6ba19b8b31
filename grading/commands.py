"""What the grading commands share: one line and exit code 2 for a mistake."""

from __future__ import annotations

import sys
from typing import Any

import click


class OneLineCommand(click.Command):
    """A command whose mistakes are answered by one line and exit code 2; what it found is told by 0 or 1."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run; never returns."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.Exit as stop:
            sys.exit(stop.exit_code)
        except click.Abort:
            sys.exit(130)
        except click.ClickException as wrong:
            line = " ".join(wrong.format_message().split())
            click.echo(f"error: {line.encode('unicode_escape').decode() if not line.isprintable() else line}", err=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)
