"""What happens to one problem.

From Python and notebooks: `harness.run(…)`, `harness.load(…)` and `harness.results(…)`, see `harness.api`. They are
imported with their first use, so that `import harness` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import HarnessError, Run, RunFailed, load, results, run

__all__ = ["HarnessError", "Run", "RunFailed", "load", "results", "run"]


def __getattr__(name: str) -> Any:
    """Return a call of the interface for Python."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the names that completion offers."""
    return sorted({*globals(), *__all__})
