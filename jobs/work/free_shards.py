"""The shards of a task that several workers have in common: each takes the next free one when it has room for it.

A shard is taken by its lock, so no two workers ever have one, and it stays locked until the attempt of the worker ends.
A worker that dies leaves its shards unlocked and unfinished: another worker of the task takes each of them, once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from jobs.run.endings import files_of_shards
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal
from jobs.run.spec import Unit
from jobs.run.state import RunState, read_state
from jobs.work.neighbors import Neighbors

_MAX_DEATHS = 1
"""Number of workers of a task that may die over a shard until the others leave it alone."""
_TWICE = "two workers ended before it was finished"


@dataclass(frozen=True)
class TakenShard:
    """A shard whose lock this worker holds."""

    number: int
    todo: list[Unit]
    """Its unfinished samples."""
    state: RunState
    """What has been done of it, and of the other shards of the task."""


class FreeShards:
    """Shards of a run that this worker takes one after the other, while others take theirs."""

    def __init__(
        self, run: RunFolder, shards: Sequence[int], first: int = 0, neighbors: Neighbors | None = None
    ) -> None:
        """Nothing is read or locked yet. The search begins at place `first`, so that workers begin with shards apart.

        `neighbors` are told when this worker has taken one.
        """
        first %= max(1, len(shards))
        self._run, self._shards = run, [*shards[first:], *shards[:first]]
        self._neighbors = neighbors
        self._done: set[int] = set()
        """Shards that are finished, that this worker has, or that are given up."""
        self._before: set[Path] | None = None
        """The journals of these shards that there were before this worker began."""

    def take(self, locks: contextlib.ExitStack) -> TakenShard | None:
        """Lock the next shard that is free and unfinished, until `locks` closes; None where there is none now."""
        if self._before is None:
            self._before = set(self._journals())
        for number in [shard for shard in self._shards if shard not in self._done]:
            lock = self._run.shard_lock(number)
            with contextlib.ExitStack() as attempt:
                try:
                    attempt.enter_context(lock)
                except Timeout:
                    continue
                taken = self._unfinished(number)
                if taken is None:
                    self._done.add(number)
                    continue
                if self._deaths(taken) > _MAX_DEATHS:
                    self._done.add(number)
                    self._say(f"leaves shard {number} of {self._run.path.name} alone: {_TWICE}")
                    continue
                locks.push(attempt.pop_all())
            locks.callback(self._done.discard, number)
            self._done.add(number)
            if self._neighbors is not None:
                self._neighbors.begin()
            self._say(f"takes shard {number} of {self._run.path.name}")
            return taken
        return None

    def _unfinished(self, number: int) -> TakenShard | None:
        state = read_state(self._run, self._shards)  # a file is named after the first shard of its worker
        todo = [unit for unit in self._run.shard(number) if unit.sample_id not in state.finished]
        return TakenShard(number, todo, state) if todo else None

    def _deaths(self, taken: TakenShard) -> int:
        """Return how many attempts since this worker began have left samples of a shard unfinished."""
        assert self._before is not None
        samples, deaths = {unit.sample_id for unit in self._run.shard(taken.number)}, 0
        for path in set(self._journals()) - self._before:
            with contextlib.suppress(FileNotFoundError):
                deaths += not samples.isdisjoint(read_journal(path).unfinished)
        return deaths

    def _journals(self) -> list[Path]:
        return files_of_shards(self._run, self._shards, self._run.journals())

    def _say(self, what: str) -> None:
        name = "this worker" if self._neighbors is None else f"worker {self._neighbors.number}"
        print(f"{name} {what}", file=sys.stderr, flush=True)
