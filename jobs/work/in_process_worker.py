"""A worker in the process that launches several runs: it works on one when asked, and its engines stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobs.work.run_part import RunPart
from jobs.work.worker import OutOfTimeError, Worker


class InProcessWorker:
    """Runs parts of runs in this process; use it as a context manager, which closes the engines."""

    def __init__(self, parts: Sequence[RunPart]) -> None:
        """`parts` are all that will be run."""
        self._worker = Worker(parts)
        self._runner = asyncio.Runner()

    def __enter__(self) -> InProcessWorker:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._worker.pool.close())
        finally:
            self._runner.close()

    def in_order(self) -> list[RunPart]:
        """Return the parts in the order in which few engines are started."""
        return self._worker.in_order()

    def run(self, part: RunPart) -> int:
        """Run what is unfinished of a part; returns how many samples ended. Raises the error that stopped it."""
        if self._worker.out_of_time:
            raise OutOfTimeError("the time limit was reached")
        self._runner.run(self._worker.work_on(part))
        self._worker.requeue_if_out_of_time()
        return part.num_ended
