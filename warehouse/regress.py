"""A former name of `python -m warehouse.nightly`, until the next release."""

from __future__ import annotations

from warehouse.nightly.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m warehouse.regress")
