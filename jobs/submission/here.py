"""A job in the process that launched it; submitit's own opens a debugger where the job fails, and waits there."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG_NAME = "in-process.log"
"""Name of the log of a worker in the launcher's process."""


class WorkerFailed(RuntimeError):
    """The job raised an exception; the message is its traceback."""


@dataclass
class InProcessJob:
    """A job that runs when it is first asked whether it has ended."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path
    """Where the traceback of a failure is written; that of an earlier start is removed."""
    job_id: str = "in-process"
    _failure: WorkerFailed | None = field(default=None, init=False)
    _result: Any = field(default=None, init=False)
    _has_ended: bool = field(default=False, init=False)

    def done(self, force_check: bool = False) -> bool:
        """Run the job unless it has run; always returns True. Raises KeyboardInterrupt where a signal has ended it."""
        if not self._has_ended:
            self._has_ended = True
            self.log.unlink(missing_ok=True)
            try:
                self._result = self.function(*self.arguments)
            except asyncio.CancelledError as interrupt:  # a worker takes Ctrl-C as a request to end in good order
                raise KeyboardInterrupt from interrupt
            except Exception as error:  # noqa: BLE001 reported like the failure of a worker in a process of its own
                self._failure = WorkerFailed(traceback.format_exc())
                self._failure.__cause__ = error
                self.log.parent.mkdir(parents=True, exist_ok=True)
                self.log.write_text(str(self._failure), encoding="utf-8")
        return True

    def result(self) -> Any:
        """Return what the function returned. Raises WorkerFailed."""
        self.done()
        if self._failure is not None:
            raise self._failure
        return self._result

    def exception(self) -> BaseException | None:
        """Return WorkerFailed where the function raised, else None."""
        self.done()
        return self._failure

    def cancel(self, check: bool = True) -> None:
        """Mark the job as ended; whatever interrupted this process has interrupted the job."""
        self._has_ended = True
