"""`python -m harness`: the same commands as `speculative-harness`."""

from __future__ import annotations

from harness.cli.console import run

if __name__ == "__main__":
    run()
