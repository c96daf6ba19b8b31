"""`python -m harness`: all commands, as `speculative-harness` has them."""

from __future__ import annotations

from harness.cli.console import run

if __name__ == "__main__":
    run()
