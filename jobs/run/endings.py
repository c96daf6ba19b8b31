"""How the samples of a run ended, counted in Arrow columns without a Python object per sample.

A sample that failed in every attempt counts as finished too, unless it was granted a retry (jobs.run.retries).
jobs.run.trace_files defines which record of a sample is used.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from filelock import Timeout

from harness import environment
from harness.trace import Trace
from jobs.run import events, files, retries, trace_files
from jobs.run import timing as timings
from jobs.run.files import has_right_checksum, reading, say_once
from jobs.run.folder import RunFolder, until_seen
from jobs.run.journal import (
    NO_EVENT,
    Journal,
    add_line,
    attempt_in,
    is_own_journal,
    owner_of,
    parse_journal,
    read_journal,
)
from jobs.run.spec import AttemptRow
from jobs.run.submissions import files_of_shards
from jobs.run.trace_files import FAILED, NOT_FINISHED, SampleRow, counting_records
from jobs.run.trace_files import endings as endings_in

_READERS = 8
"""Trace files read concurrently: a shared filesystem is slow per request but serves many at once."""
_KIND_BYTES = len('{"event":"att')
"""Length of the line prefix that identifies an event's kind."""
_START = re.compile(rb'\n\{"event":"start","trace":\{"sample_id":"([^"\\]+)"')
"""Pattern of `start` events, except in the first line; it begins with literal characters, so the search is fast."""


@dataclass(frozen=True)
class Endings:
    """Ids of samples that have ended, without duplicates."""

    finished: pa.Array
    """Samples that need no further attempt."""
    failed: pa.Array
    """Finished samples that ended in an error in every attempt."""


NO_ENDINGS = Endings(pa.array([], pa.string()), pa.array([], pa.string()))


@dataclass(frozen=True)
class ShardEndings:
    """Numbers of samples, as lists indexed by shard."""

    planned: list[int]
    finished: list[int]
    failed: list[int]
    timing: timings.Progress
    """Progress of the timing samples (jobs.run.timing), which start after all samples have ended."""

    @property
    def num_unfinished(self) -> int:
        """Number of unfinished samples."""
        return sum(self.planned) - sum(self.finished)

    @property
    def num_left(self) -> int:
        """Number of unfinished samples or, if there are none, of timing samples left."""
        return self.num_unfinished or self.timing.left

    @property
    def unfinished_shards(self) -> list[int]:
        """Shards that need a worker, i.e. have unfinished samples.

        If only timing samples remain, only the first shard needs a worker, because any worker can run them.
        """
        counts = zip(self.planned, self.finished, strict=True)
        with_samples = [shard for shard, (planned, finished) in enumerate(counts) if finished < planned]
        return with_samples or ([0] if self.timing.left else [])


def read_endings(
    run: RunFolder, *, whole: bool = True, note: Callable[[Path, bytes, Mapping[str, bool]], None] = lambda *_: None
) -> Endings:
    """Read from all journals and trace files how samples ended.

    If `whole`, verify each trace file's digest; otherwise, only the checksums of the pages read, which is much faster.
    `note` is called with each journal, oldest first: path, content, and result of `endings_in_journal`. Raises
    RunDamaged if the specification, problems or plan were changed.
    """
    run.check()
    journals, ids = {}, run.ids()
    for path in run.journals():
        with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
            with reading(path) as file:
                content = file.read()
            journals[path.stem] = endings_in_journal(path, content, ids)
            note(path, content, journals[path.stem])
    return count_endings(run, journals, run.trace_files(), whole=whole)


def num_unfinished(run: RunFolder, *, whole: bool = True) -> int:
    """Return the number of planned samples that have not ended. `whole` and errors as in `read_endings`."""
    return by_shard(run, read_endings(run, whole=whole)).num_unfinished


def wait_for_endings(run: RunFolder) -> None:
    """Wait until all samples of a run are visible as finished, but no longer than a shared filesystem may lag."""
    until_seen(run, lambda: num_unfinished(run) == 0)


def num_only_in_journals(run: RunFolder) -> int:
    """Return how many planned samples ended according to journals but are in no trace file yet.

    Journals of active workers are included. Raises RunDamaged and OSError.
    """
    if not run.journals():
        return 0
    everywhere, in_trace_files = (
        by_shard(run, endings)
        for endings in (read_endings(run, whole=False), count_endings(run, {}, run.trace_files(), whole=False))
    )
    return in_trace_files.num_unfinished - everywhere.num_unfinished


def count_endings(
    run: RunFolder, journals: Mapping[str, Mapping[str, bool]], trace_files: Iterable[Path], *, whole: bool = True
) -> Endings:
    """Count the samples that ended according to trace files and journals.

    `journals`: the results of `endings_in_journal`, by the journal's name without suffix. A sample in a journal and in
    its trace file counts once. Files that are damaged or belong to another run are skipped with a warning
    (jobs.run.trace_files). Missing trace files are reported unless all planned samples are finished without them.
    """
    not_compacted = dict(journals)
    ids, reasons = [pa.array([], pa.string())], [pa.array([], pa.string())]
    paths = list(trace_files)
    with ThreadPoolExecutor(_READERS) as pool:
        tables = list(pool.map(partial(endings_in, whole=whole), paths))
    for path, table in zip(paths, tables, strict=True):
        ids += table["sample_id"].chunks
        reasons += table["stop_reason"].chunks
        if path.stem in not_compacted:
            compacted = set(table["sample_id"].to_pylist())
            not_compacted[path.stem] = {
                sample_id: has_failed
                for sample_id, has_failed in not_compacted[path.stem].items()
                if sample_id not in compacted
            }
    for ended in not_compacted.values():
        ids.append(pa.array(ended.keys(), pa.string()))
        reasons.append(pa.array([FAILED if has_failed else None for has_failed in ended.values()], pa.string()))
    records, granted = pa.chunked_array(ids), retries.granted(run)
    is_failed = pc.fill_null(pc.equal(pa.chunked_array(reasons), FAILED), fill_value=False)
    succeeded = records.filter(pc.invert(is_failed)).combine_chunks()
    failures = pc.value_counts(records.filter(is_failed))
    if len(failures):
        failures = failures.filter(pc.invert(pc.is_in(failures.field("values"), value_set=succeeded)))
    exhausted = [row["values"] for row in failures.to_pylist() if row["counts"] > granted[row["values"]]]
    failed = pa.array(exhausted, pa.string())
    finished = pc.unique(pa.concat_arrays([succeeded, failed]))
    if len(finished) < run.num_planned():
        for path in run.lost_trace_files():
            say_once(f"{path} is listed in {events.NAME} but missing; {NOT_FINISHED}")
    return Endings(finished, failed)


def by_shard(run: RunFolder, endings: Endings) -> ShardEndings:
    """Count the endings of each shard of the plan, in shard order."""
    units = run.units_by_shard()
    planned, finished, failed = ([0] * run.num_shards() for _ in range(3))
    flags = pa.table(
        {
            "shard": units["shard"],
            "finished": pc.is_in(units["sample_id"], value_set=endings.finished),
            "failed": pc.is_in(units["sample_id"], value_set=endings.failed),
        }
    )
    sums = flags.group_by("shard").aggregate([("shard", "count"), ("finished", "sum"), ("failed", "sum")])
    for row in sums.to_pylist():
        shard = row["shard"]
        planned[shard], finished[shard], failed[shard] = row["shard_count"], row["finished_sum"], row["failed_sum"]
    return ShardEndings(planned, finished, failed, timings.progress(run))


def endings_in_journal(path: Path, content: bytes, ids: frozenset[str]) -> dict[str, bool]:
    """Return, by id, the samples whose end a journal records; the value is True for an end in an error.

    `ids`: the ids of the run (`RunFolder.ids`); for a journal of another run, the result is empty. If a line is
    damaged, only samples with all lines intact count. Raises WrongFormat.
    """
    attempt = attempt_in(path, content[: content.find(b"\n") + 1])
    if not is_own_journal(path, attempt, ids):
        return {}
    owner, lines = owner_of(path, attempt), list(filter(None, content.split(b"\n")))
    with contextlib.suppress(*NO_EVENT):
        if all(has_right_checksum(line, owner) for line in lines):
            for line in {line[:_KIND_BYTES]: line for line in lines}.values():
                add_line(path, Journal(attempt), line)  # if one line of a kind is valid, all are
            ends = (orjson.loads(line) for line in lines if line.startswith(b'{"event":"end"'))
            return {event["sample_id"]: event["stop_reason"] == FAILED for event in ends}
    journal = parse_journal(path, content.splitlines(keepends=True))
    return {sample_id: trace.stop_reason == FAILED for sample_id, trace in journal.finished.items()}


_FEW_FILES = 32
"""Up to this many journals or trace files, read all of them regardless of the shards requested."""


@dataclass
class RunState:
    """Which samples of a run are finished, and the progress of the interrupted ones."""

    finished: set[str] = field(default_factory=set)
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """For each interrupted sample, by id, the attempt with the most accepted steps."""
    endings: Endings = NO_ENDINGS
    """The finished samples as columns."""


def read_state(run: RunFolder, shards: Sequence[int] | None = None, samples: set[str] | None = None) -> RunState:
    """Read the attempts' records, for all or some shards.

    `samples`: skip journals in which none of these samples began, e.g. those of other workers. Journals are read
    before trace files, because a concurrent compaction writes the trace file before it removes the journal.
    """

    def of_shards(paths: list[Path]) -> list[Path]:
        # Of workers on this machine, only the first shard is recorded, so read all files if there are few.
        return paths if shards is None or len(paths) <= _FEW_FILES else files_of_shards(run, shards, paths)

    state, ids = RunState(), run.ids()
    ended: dict[str, dict[str, bool]] = {}
    for path in of_shards(run.journals()):
        try:
            if samples is not None and samples.isdisjoint(map(bytes.decode, _START.findall(path.read_bytes()))):
                continue
            journal = read_journal(path)
        except FileNotFoundError:
            continue  # compacted meanwhile
        if not is_own_journal(path, journal.attempt, ids):
            continue
        ended[path.stem] = {sample_id: trace.stop_reason == FAILED for sample_id, trace in journal.finished.items()}
        for sample_id, trace in journal.unfinished.items():
            longest = state.unfinished.get(sample_id)
            if longest is None or len(trace.steps) > len(longest.steps):
                state.unfinished[sample_id] = trace
    state.endings = count_endings(run, ended, of_shards(run.trace_files()))
    state.finished = set(state.endings.finished.to_pylist())
    for sample_id in state.finished & state.unfinished.keys():
        state.unfinished.pop(sample_id)
    return state


def compact(run: RunFolder) -> int:
    """Write the finished samples of every journal to its trace file; return how many samples were written.

    A journal is removed once all its samples are in a trace file, unless its worker holds the shard's lock and may
    still write. A journal with unfinished samples is kept, because a later attempt resumes them.
    """
    with run.lock("compaction"):
        attempts: dict[Path, AttemptRow] = {}
        written, ids = 0, run.ids()
        for path in run.journals():
            with contextlib.suppress(FileNotFoundError):
                journal = read_journal(path)
                if is_own_journal(path, journal.attempt, ids):
                    written += _write_trace_file(run, path, journal, is_own=False)
                    attempts[path] = journal.attempt or {}
        if attempts:
            finished = set(count_endings(run, {}, run.trace_files()).finished.to_pylist())
            is_complete = finished >= set(run.units_by_shard()["sample_id"].to_pylist())
            for path, attempt in attempts.items():
                # On a shared filesystem, the end of another machine's journal may not be visible yet.
                if is_complete or attempt.get("hostname") == socket.gethostname():
                    _remove_if_compacted(run, path, attempt, finished)
        return written


def finished_records(
    run: RunFolder, columns: Sequence[str], *, writes: bool = True, failed: bool = False
) -> Iterator[SampleRow]:
    """Compact the journals, which may hold finished samples of killed workers, then yield `counting_records`.

    Without `failed`, samples that failed in every attempt are left out. Without `writes`, trace files are read as they
    are. Raises PermissionError if there are journals in a read-only run folder.
    """
    if writes and run.journals():
        compact(run)
    return counting_records(run, columns, failed=failed)


def compact_own(run: RunFolder, journal_path: Path) -> None:
    """Compact the journal of a worker that has ended and still holds its shards, without waiting for a lock.

    The journal is removed once all its samples are in its trace file. If another process is compacting the run, the
    journal stays for the next compaction: that process may have read it earlier, and may replace the trace file by a
    shorter one. The trace file also records the machine's current load.
    """
    journal = read_journal(journal_path)
    if journal.attempt is not None:
        journal.attempt["load_at_end"] = environment.load()
    _write_trace_file(run, journal_path, journal)
    samples = {*journal.finished, *journal.unfinished}
    with contextlib.suppress(Timeout), run.lock("compaction").acquire(timeout=0):
        if samples <= trace_files.finished_ids(run.trace_file_of(journal_path)) and not journal.lost_lines:
            journal_path.unlink()


def _remove_if_compacted(run: RunFolder, path: Path, attempt: AttemptRow, finished: set[str]) -> None:
    shard = attempt.get("shard")
    if not isinstance(shard, int):  # its worker may still be writing
        return
    with contextlib.suppress(Timeout, FileNotFoundError), run.shard_lock(shard):  # unless its worker compacted it
        journal = read_journal(path)  # read again: it may have grown before the lock was acquired
        compacted = trace_files.finished_ids(run.trace_file_of(path))
        if journal.finished.keys() <= compacted and journal.unfinished.keys() <= finished and not journal.lost_lines:
            path.unlink()


def _write_trace_file(run: RunFolder, path: Path, journal: Journal, *, is_own: bool = True) -> int:
    trace_file = run.trace_file_of(path)
    if trace_files.finished_ids(trace_file) >= journal.finished.keys():
        return 0
    # A stale view of a removed journal on a shared filesystem must not replace its trace file.
    if not is_own and not files.is_there(path):
        return 0
    rows = [asdict(trace) for trace in journal.finished.values()]
    if journal.attempt is not None:
        journal.attempt["ended_at"] = path.stat().st_mtime
    metadata = {"attempt": orjson.dumps(journal.attempt).decode()}
    trace_files.write_table(trace_file, trace_files.TRACES, rows, metadata)
    return len(rows)
