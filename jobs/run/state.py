"""What has been done of a run: the union of its trace files and journals.

jobs.run.own_files says which record of a sample counts.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from filelock import Timeout

from harness import environment
from harness.trace import Trace
from jobs.run import endings, files, own_files, submissions, trace_files
from jobs.run.endings import NO_ENDINGS, Endings
from jobs.run.folder import RunFolder
from jobs.run.journal import Journal, read_journal
from jobs.run.own_files import counting_records
from jobs.run.trace_files import SampleRow

_FEW_FILES = 32
"""Number of journals or trace files up to which all are read, whichever shards are asked for."""


@dataclass
class RunState:
    """Which samples of a run are finished, and how far the others got."""

    finished: set[str] = field(default_factory=set)
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """The interrupted attempt with the most accepted steps of each sample, by sample id."""
    endings: Endings = NO_ENDINGS
    """The finished samples as columns."""
    bad_lines: int = 0


def read_state(
    run: RunFolder, shards: Sequence[int] | None = None, is_wanted: Callable[[Path], bool] = lambda _: True
) -> RunState:
    """Read what the attempts have recorded, for all shards or for some, and only from the files that are wanted.

    Journals are read before trace files, because a compaction at the same time writes the trace file before it removes
    the journal.
    """
    state, ids = RunState(), run.ids()
    ended: dict[str, dict[str, bool]] = {}
    for path in filter(is_wanted, _files(run, run.journals(), shards)):
        try:
            journal = read_journal(path)
        except FileNotFoundError:
            continue  # its samples are in a trace file by now
        if not own_files.is_own_journal(path, journal.attempt, ids):
            continue
        state.bad_lines += journal.bad_lines
        ended[path.stem] = {sample_id: trace.stop_reason == "error" for sample_id, trace in journal.finished.items()}
        for sample_id, trace in journal.unfinished.items():
            longest = state.unfinished.get(sample_id)
            if longest is None or len(trace.steps) > len(longest.steps):
                state.unfinished[sample_id] = trace
    state.endings = endings.count_endings(run, ended, filter(is_wanted, _files(run, run.trace_files(), shards)))
    state.finished = set(state.endings.finished.to_pylist())
    for sample_id in state.finished & state.unfinished.keys():
        state.unfinished.pop(sample_id)
    return state


def _files(run: RunFolder, paths: Iterable[Path], shards: Sequence[int] | None) -> list[Path]:
    found = sorted(paths)
    # No submission says which further shards a worker on this machine had, so few files are all read.
    return found if shards is None or len(found) <= _FEW_FILES else submissions.files_of_shards(run, shards, found)


def compact(run: RunFolder) -> int:
    """Write the finished samples of every journal to its trace file; returns how many samples were written.

    A journal is removed once every sample in it is in a trace file, unless its worker may still be writing to it (it
    holds the shard's lock). A journal with samples that nobody has finished yet stays: a later attempt resumes them.
    """
    with run.compaction_lock():
        return _compact(run)


def finished_records(run: RunFolder, columns: Sequence[str], *, writes: bool = True) -> Iterator[SampleRow]:
    """Return what `counting_records` yields of the finished samples that did not fail every time.

    What a killed worker has finished lies in its journal, so journals are compacted before this returns. Without
    `writes`, trace files are read as they are. Raises PermissionError where there are journals in a run folder that may
    not be written.
    """
    if writes and run.journals():
        compact(run)
    return counting_records(run, columns, failed=False)


def compact_own(run: RunFolder, journal_path: Path) -> None:
    """Compact the journal of a worker that has ended and still holds its shards, without waiting for any lock.

    The journal is removed once every sample in it is in its trace file. While another process compacts the run it stays
    for the next compaction: that process may have read it earlier, and its shorter trace file may replace this one.
    The attempt in the trace file has the load of the machine now, when it ends.
    """
    journal = read_journal(journal_path)
    if journal.attempt is not None:
        journal.attempt["load_at_end"] = environment.load()
    _write_trace_file(run, journal_path, journal)
    samples = {*journal.finished, *journal.unfinished}
    with contextlib.suppress(Timeout), run.compaction_lock().acquire(timeout=0):
        if samples <= _compacted_ids(run, journal_path, journal) and not journal.bad_lines:
            journal_path.unlink()


def _compact(run: RunFolder) -> int:
    journals, ids = run.journals(), run.ids()
    written = 0
    for path in list(journals):
        with contextlib.suppress(FileNotFoundError):
            journal = read_journal(path)
            if own_files.is_own_journal(path, journal.attempt, ids):
                written += _write_trace_file(run, path, journal, is_own=False)
            else:
                journals.remove(path)
    if journals:
        finished = set(endings.count_endings(run, {}, run.trace_files()).finished.to_pylist())
        is_complete = finished >= set(run.units_by_shard()["sample_id"].to_pylist())
        for path in journals:
            with contextlib.suppress(FileNotFoundError):  # its worker has compacted it itself
                _remove_if_compacted(run, path, finished, is_complete=is_complete)
    return written


def _remove_if_compacted(run: RunFolder, path: Path, finished: set[str], *, is_complete: bool) -> None:
    attempt = read_journal(path).attempt or {}
    shard = attempt.get("shard")
    if not isinstance(shard, int):  # it cannot be told whether its worker is still writing to it
        return
    if not is_complete and attempt.get("hostname") != socket.gethostname():
        return  # a shared filesystem may show this machine the end of it only later
    with contextlib.suppress(Timeout), run.shard_lock(shard):
        journal = read_journal(path)  # again: it may have grown before the lock was taken
        compacted = _compacted_ids(run, path, journal)
        if journal.finished.keys() <= compacted and journal.unfinished.keys() <= finished and not journal.bad_lines:
            path.unlink()


def _compacted_ids(run: RunFolder, path: Path, journal: Journal) -> set[str]:
    """Return the ids of the samples that the trace file of a journal holds."""
    return own_files.finished_ids(run.trace_file_of(path)) if journal.finished else set()


def _write_trace_file(run: RunFolder, path: Path, journal: Journal, *, is_own: bool = True) -> int:
    trace_file = run.trace_file_of(path)
    if not journal.finished or (trace_file.exists() and _compacted_ids(run, path, journal) >= set(journal.finished)):
        return 0
    # Otherwise what a shared filesystem still shows of a removed journal would replace the trace file made of it.
    if not is_own and not files.is_there(path):
        return 0
    rows = [asdict(trace) for trace in journal.finished.values()]
    metadata = {"attempt": orjson.dumps(journal.attempt).decode()}
    trace_files.write_table(trace_file, trace_files.TRACES, rows, metadata)
    return len(rows)
