"""Solve problems with speculative reasoning: methods, engines, prompts, settings.

The Python interface `harness.run(…)`, `harness.load(…)` and `harness.results(…)` is in `harness.api`, which is imported
on first use to keep `import harness` fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import HarnessError, Run, RunFailed, load, results, run

__all__ = ["HarnessError", "Run", "RunFailed", "load", "results", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
