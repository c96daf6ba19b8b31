"""What a run folder says has been done: the union of its trace files and journals.

jobs.run.endings says which record of a sample counts. Files are read in the order of their names, which begin with
their time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from filelock import Timeout

from harness.trace import Trace
from jobs.run import endings, trace_files
from jobs.run.endings import NO_ENDINGS, Endings
from jobs.run.folder import RunFolder
from jobs.run.journal import Journal, read_journal


@dataclass
class RunState:
    """Which samples of a run are finished, and how far the others got."""

    finished: set[str] = field(default_factory=set)
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """By sample id: the interrupted attempt with the most accepted steps."""
    endings: Endings = NO_ENDINGS
    """The finished ones as columns."""
    bad_lines: int = 0


def read_state(run: RunFolder, shards: Sequence[int] | None = None) -> RunState:
    """Read everything that any attempt has left, of all shards or of some.

    Journals first, trace files last: a compaction at the same time writes the trace file before it removes the journal.
    """
    state = RunState()
    ended: dict[str, dict[str, bool]] = {}
    for path in _files(run, run.journal_dir.glob("*.jsonl"), shards):
        try:
            journal = read_journal(path)
        except FileNotFoundError:
            continue  # its samples are in a trace file by now
        state.bad_lines += journal.bad_lines
        ended[path.stem] = {sample_id: trace.stop_reason == "error" for sample_id, trace in journal.finished.items()}
        for sample_id, trace in journal.unfinished.items():
            known = state.unfinished.get(sample_id)
            if known is None or len(trace.steps) > len(known.steps):
                state.unfinished[sample_id] = trace
    state.endings = endings.count(run, ended, _files(run, run.parts_dir.glob("*.parquet"), shards))
    state.finished = set(state.endings.finished.to_pylist())
    for sample_id in state.finished & state.unfinished.keys():
        state.unfinished.pop(sample_id)
    return state


def _files(run: RunFolder, paths: Iterable[Path], shards: Sequence[int] | None) -> list[Path]:
    return sorted(paths) if shards is None else endings.concerning(run, shards, paths)


def compact(run: RunFolder) -> int:
    """Turn the finished samples of every journal into a trace file; returns how many samples were written.

    A journal is removed once every sample in it is in a trace file, unless its worker may still be writing to it (the
    shard's lock says so). One with samples that nobody has finished yet stays: a later attempt goes on from it.
    """
    with run.compaction_lock():
        return _compact(run)


def compact_own(run: RunFolder, journal_path: Path) -> None:
    """The same for the one journal of a worker that has ended and still holds its shards: nobody waits for others."""
    journal = read_journal(journal_path)
    _write_part(run, journal_path, journal)
    kept = trace_files.finished_ids([run.parts_dir / f"{journal_path.stem}.parquet"]) if journal.finished else set()
    if {*journal.finished, *journal.unfinished} <= kept and not journal.bad_lines:
        journal_path.unlink()


def _compact(run: RunFolder) -> int:
    journals = sorted(run.journal_dir.glob("*.jsonl"))
    written = 0
    for path in journals:
        with contextlib.suppress(FileNotFoundError):
            written += _write_part(run, path, read_journal(path))
    if journals:
        settled = set(endings.count(run, {}, sorted(run.parts_dir.glob("*.parquet"))).finished.to_pylist())
        for path in journals:
            with contextlib.suppress(FileNotFoundError):  # its worker has compacted it itself
                _remove_if_kept(run, path, settled)
    return written


def _remove_if_kept(run: RunFolder, path: Path, settled: set[str]) -> None:
    attempt = read_journal(path).attempt
    if attempt is None:
        return
    with contextlib.suppress(Timeout), run.shard_lock(attempt["shard"]):
        journal = read_journal(path)  # again: it may have grown before the lock was taken
        kept = trace_files.finished_ids([run.parts_dir / f"{path.stem}.parquet"]) if journal.finished else set()
        if journal.finished.keys() <= kept and journal.unfinished.keys() <= settled and not journal.bad_lines:
            path.unlink()


def _write_part(run: RunFolder, path: Path, journal: Journal) -> int:
    part = run.parts_dir / f"{path.stem}.parquet"
    if not journal.finished or (part.exists() and trace_files.finished_ids([part]) >= set(journal.finished)):
        return 0
    rows = [asdict(trace) for trace in journal.finished.values()]
    trace_files.write_table(part, trace_files.TRACES, rows, {"attempt": orjson.dumps(journal.attempt).decode()})
    return len(rows)
