"""Solve one problem: methods, engines, prompts.

The Python interface is `harness.run(…)`, `harness.load(…)` and `harness.results(…)`, see `harness.api`. They are
imported on first use, to keep `import harness` fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import HarnessError, Run, RunFailed, load, results, run

__all__ = ["HarnessError", "Run", "RunFailed", "load", "results", "run"]


def __getattr__(name: str) -> Any:
    """Import and return a function of the Python interface."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the names for completion."""
    return sorted({*globals(), *__all__})
