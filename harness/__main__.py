"""`python -m harness`: all commands, as in `speculative-harness`."""

from __future__ import annotations

from harness.cli.console import run

if __name__ == "__main__":
    run()
