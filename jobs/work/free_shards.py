"""The shards of a task that several workers have in common: each takes the next free one when it has room for it.

A shard is taken by its lock, so no two workers ever have one, and it stays locked until the attempt of the worker ends.
A worker that dies leaves its shards unlocked and unfinished: another worker of the task takes each of them, once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import Timeout

from jobs.run.endings import by_shard, started_in_journal
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal
from jobs.run.spec import Unit
from jobs.run.state import RunState, read_state
from jobs.run.submissions import files_of_shards
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
    """How far these got."""


class FreeShards:
    """Shards of a run that this worker takes one after the other, while others take theirs."""

    def __init__(
        self, run: RunFolder, shards: Sequence[int], first: int = 0, neighbors: Neighbors | None = None
    ) -> None:
        """Nothing is read or locked yet. The search begins with the largest shard, and of equal ones at place `first`.

        `neighbors` are told when this worker has taken one.
        """
        first %= max(1, len(shards))
        self._run, self._shards = run, [*shards[first:], *shards[:first]]
        self._neighbors = neighbors
        self._done: set[int] = set()
        """Shards that are finished, that this worker has, or that are given up."""
        self._begun_with: RunState | None = None
        """What had been done of all these shards when this worker began."""
        self._sizes: dict[Path, int] = {}
        """Sizes of the files that this was read from: what others do since is in new ones, or makes one grow."""

    def take(self, locks: contextlib.ExitStack) -> TakenShard | None:
        """Lock the next shard that is free and unfinished, until `locks` closes; None where there is none now."""
        begun_with = self._read_all()
        for number in [shard for shard in self._shards if shard not in self._done]:
            with contextlib.ExitStack() as lock:
                try:
                    lock.enter_context(self._run.shard_lock(number))
                except Timeout:
                    continue
                taken = self._unfinished(number, begun_with)
                self._done.add(number)
                if taken is not None:
                    locks.push(lock.pop_all())
                    locks.callback(self._done.discard, number)
                    if self._neighbors is not None:
                        self._neighbors.begin()
                    self._say(f"takes shard {number} of {self._run.path.name}")
                    return taken
        return None

    def _read_all(self) -> RunState:
        if self._begun_with is None:
            for path in [*self._run.journals(), *self._run.trace_files()]:
                with contextlib.suppress(FileNotFoundError):  # compacted since the listing
                    self._sizes[path] = path.stat().st_size
            self._begun_with = read_state(self._run, self._shards)
            ended = by_shard(self._run, self._begun_with.endings)
            # The largest first: one that is begun last would keep all others waiting.
            self._shards.sort(key=lambda shard: ended.finished[shard] - ended.planned[shard])
        return self._begun_with

    def _unfinished(self, number: int, begun_with: RunState) -> TakenShard | None:
        """Return a shard that is locked; None where it is finished, or left alone."""
        units = self._run.shard(number)
        samples = {unit.sample_id for unit in units}
        since = read_state(self._run, self._shards, partial(self._is_news_of, samples))
        todo = [unit for unit in units if unit.sample_id not in begun_with.finished | since.finished]
        was_begun = not samples.isdisjoint(since.finished | since.unfinished.keys())
        if todo and was_begun and self._deaths(samples) > _MAX_DEATHS:
            self._say(f"leaves shard {number} of {self._run.path.name} alone: {_TWICE}")
            return None
        begun = begun_with.unfinished | since.unfinished
        state = RunState(unfinished={unit.sample_id: begun[unit.sample_id] for unit in todo if unit.sample_id in begun})
        return TakenShard(number, todo, state) if todo else None

    def _deaths(self, samples: set[str]) -> int:
        """Return how many attempts since this worker began have left samples of a locked shard unfinished."""
        deaths = 0
        for path in files_of_shards(self._run, self._shards, self._run.journals()):
            with contextlib.suppress(FileNotFoundError):
                deaths += self._is_news_of(samples, path) and not samples.isdisjoint(read_journal(path).unfinished)
        return deaths

    def _is_news_of(self, samples: set[str], path: Path) -> bool:
        """Return True if a file may hold what was done of these samples since this worker began.

        Of the journals that others are writing, which are long, none holds any: its worker would have the lock.
        """
        try:
            if path.stat().st_size == self._sizes.get(path):
                return False
            return path.suffix != ".jsonl" or not samples.isdisjoint(started_in_journal(path.read_bytes()))
        except FileNotFoundError:
            return False

    def _say(self, what: str) -> None:
        name = "this worker" if self._neighbors is None else f"worker {self._neighbors.number}"
        print(f"{name} {what}", file=sys.stderr, flush=True)
