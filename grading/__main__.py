"""`python -m grading`: list the commands of this package."""

from __future__ import annotations

from pathlib import Path

from harness.cli.command import list_of_commands

main = list_of_commands("grading", Path(__file__).parent)

if __name__ == "__main__":
    main(prog_name="python -m grading")
