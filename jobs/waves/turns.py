"""Who draws and decides a comparison in waves: one launch or look at a time, so that all decide by one margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from filelock import Timeout

from jobs.run.folder import RunBusyError, RunFolder


@contextmanager
def alone(runs: Sequence[RunFolder], wait_seconds: float = 0.0) -> Iterator[None]:
    """Keep other launches and looks from these runs. Raises RunBusyError where one of them has a run already."""
    with ExitStack() as locks:
        for run in sorted(runs, key=lambda run: str(run.path.resolve())):
            try:
                locks.enter_context(run.waves_lock(wait_seconds))
            except Timeout as timeout:
                raise RunBusyError(
                    f"--until-decided: another launch is drawing {run.path.name} in waves and decides it by its own "
                    "margin; valid: the same command once that one has ended"
                ) from timeout
        yield
