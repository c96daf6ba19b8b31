"""How the samples of a run ended, over all its records: counted in columns, without an object per sample.

A sample that failed every time is finished too, as data, unless it was granted another try (jobs.run.retries).
jobs.run.trace_files says which record of a sample counts.
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
"""Trace files read at a time: a shared filesystem answers slowly, but it answers many requests at once."""
_KIND_BYTES = len('{"event":"att')
"""Characters of a journal's line that tell what kind of event it is."""
_START = re.compile(rb'\n\{"event":"start","trace":\{"sample_id":"([^"\\]+)"')
"""Begins with plain characters, which makes the search fast; the first line of a journal is the attempt's."""


@dataclass(frozen=True)
class Endings:
    """The ids of samples that have ended."""

    finished: pa.Array
    """Ids of the samples that need not be run (again), once each."""
    failed: pa.Array
    """Ids of the finished samples that ended in an error every time, once each."""


NO_ENDINGS = Endings(pa.array([], pa.string()), pa.array([], pa.string()))


@dataclass(frozen=True)
class ShardEndings:
    """Numbers of samples, in lists by shard number."""

    planned: list[int]
    finished: list[int]
    failed: list[int]
    timing: timings.Progress
    """Of the samples that are timed one at a time (jobs.run.timing), which begins when all have ended."""

    @property
    def num_unfinished(self) -> int:
        """Number of samples of the run that are not finished."""
        return sum(self.planned) - sum(self.finished)

    @property
    def num_left(self) -> int:
        """Number of samples that are not finished or, where all are, that are still to be timed."""
        return self.num_unfinished or self.timing.left

    @property
    def unfinished_shards(self) -> list[int]:
        """Numbers of the shards that need a worker: those that have a sample that is not finished.

        Where all samples are finished and some are still to be timed, it is the first shard, for any worker does.
        """
        counts = zip(self.planned, self.finished, strict=True)
        with_samples = [shard for shard, (planned, finished) in enumerate(counts) if finished < planned]
        return with_samples or ([0] if self.timing.left else [])


def read_endings(
    run: RunFolder, *, whole: bool = True, note: Callable[[Path, bytes, Mapping[str, bool]], None] = lambda *_: None
) -> Endings:
    """Read how samples ended from every journal and trace file of a run.

    `whole`: trace files after comparing them with their digests, otherwise only pages that are read with their
    checksums, which is much faster. `note` is given each journal with its content and `endings_in_journal`, the latest
    last. Raises RunDamaged where specification, problems or plan are not what the run was made with, as loading does.
    """
    run.check()
    journals, ids = {}, run.ids()
    for path in run.journals():
        with contextlib.suppress(FileNotFoundError):  # its samples are in a trace file by now
            with reading(path) as file:
                content = file.read()
            journals[path.stem] = endings_in_journal(path, content, ids)
            note(path, content, journals[path.stem])
    return count_endings(run, journals, run.trace_files(), whole=whole)


def num_unfinished(run: RunFolder, *, whole: bool = True) -> int:
    """Return how many planned samples have not ended. `whole` and errors as in `read_endings`."""
    return by_shard(run, read_endings(run, whole=whole)).num_unfinished


def wait_for_endings(run: RunFolder) -> None:
    """Wait on a shared filesystem until every sample of a run is seen as finished, or for as long as a look may lag."""
    until_seen(run, lambda: num_unfinished(run) == 0)


def num_only_in_journals(run: RunFolder) -> int:
    """Return how many planned samples have ended by journals and by no trace file: those that no reader of these sees.

    The journals of workers that are at work count too. Raises RunDamaged and OSError.
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
    """Count the ended samples of trace files, and of journals by their names: True for a sample that failed.

    A trace file holds what the journal of the same name held; together they are one record. Files that are damaged or
    not of this run are named and count for nothing (jobs.run.trace_files), and so are, until their samples have ended
    elsewhere, files that somebody has removed.
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
            say_once(f"{path} is missing, and {events.NAME} announces it; {NOT_FINISHED}")
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
    """Return the ids of the samples that ended in a journal, each with True where it ended in an error.

    `ids` are those of its run (jobs.run.trace_files); another run's journal has no samples. Where a line is damaged,
    only samples count of which every line is right. Raises WrongFormat.
    """
    attempt = attempt_in(path, content[: content.find(b"\n") + 1])
    if not is_own_journal(path, attempt, ids):
        return {}
    owner, lines = owner_of(path, attempt), list(filter(None, content.split(b"\n")))
    with contextlib.suppress(*NO_EVENT):
        if all(has_right_checksum(line, owner) for line in lines):
            for line in {line[:_KIND_BYTES]: line for line in lines}.values():
                add_line(path, Journal(attempt), line)  # where one line of a kind can be read, all can
            ends = (orjson.loads(line) for line in lines if line.startswith(b'{"event":"end"'))
            return {event["sample_id"]: event["stop_reason"] == FAILED for event in ends}
    journal = parse_journal(path, content.splitlines(keepends=True))
    return {sample_id: trace.stop_reason == FAILED for sample_id, trace in journal.finished.items()}


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


def read_state(run: RunFolder, shards: Sequence[int] | None = None, samples: set[str] | None = None) -> RunState:
    """Read what the attempts have recorded, for all shards or for some.

    `samples`: journals in which none of these was begun, such as those that others are writing, are not parsed.
    Journals are read before trace files, because a compaction at the same time writes the trace file before it removes
    the journal.
    """

    def of_shards(paths: list[Path]) -> list[Path]:
        # No submission says which further shards a worker on this machine had, so few files are all read.
        return paths if shards is None or len(paths) <= _FEW_FILES else files_of_shards(run, shards, paths)

    state, ids = RunState(), run.ids()
    ended: dict[str, dict[str, bool]] = {}
    for path in of_shards(run.journals()):
        try:
            if samples is not None and samples.isdisjoint(map(bytes.decode, _START.findall(path.read_bytes()))):
                continue
            journal = read_journal(path)
        except FileNotFoundError:
            continue  # its samples are in a trace file by now
        if not is_own_journal(path, journal.attempt, ids):
            continue
        ended[path.stem] = {sample_id: trace.stop_reason == "error" for sample_id, trace in journal.finished.items()}
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
    """Write the finished samples of every journal to its trace file; returns how many samples were written.

    A journal is removed once every sample in it is in a trace file, unless its worker may still be writing to it (it
    holds the shard's lock). A journal with samples that nobody has finished yet stays: a later attempt resumes them.
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
                # A shared filesystem may show this machine the end of another one's journal only later.
                if is_complete or attempt.get("hostname") == socket.gethostname():
                    _remove_if_compacted(run, path, attempt, finished)
        return written


def finished_records(
    run: RunFolder, columns: Sequence[str], *, writes: bool = True, failed: bool = False
) -> Iterator[SampleRow]:
    """Return what `counting_records` yields; without `failed`, of the finished samples that did not fail every time.

    What a killed worker has finished lies in its journal, so journals are compacted before this returns. Without
    `writes`, trace files are read as they are. Raises PermissionError where there are journals in a run folder that may
    not be written.
    """
    if writes and run.journals():
        compact(run)
    return counting_records(run, columns, failed=failed)


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
    with contextlib.suppress(Timeout), run.lock("compaction").acquire(timeout=0):
        if samples <= trace_files.finished_ids(run.trace_file_of(journal_path)) and not journal.lost_lines:
            journal_path.unlink()


def _remove_if_compacted(run: RunFolder, path: Path, attempt: AttemptRow, finished: set[str]) -> None:
    shard = attempt.get("shard")
    if not isinstance(shard, int):  # it cannot be told whether its worker is still writing to it
        return
    with contextlib.suppress(Timeout, FileNotFoundError), run.shard_lock(shard):  # or its worker has compacted it
        journal = read_journal(path)  # again: it may have grown before the lock was taken
        compacted = trace_files.finished_ids(run.trace_file_of(path))
        if journal.finished.keys() <= compacted and journal.unfinished.keys() <= finished and not journal.lost_lines:
            path.unlink()


def _write_trace_file(run: RunFolder, path: Path, journal: Journal, *, is_own: bool = True) -> int:
    trace_file = run.trace_file_of(path)
    if trace_files.finished_ids(trace_file) >= journal.finished.keys():
        return 0
    # Otherwise what a shared filesystem still shows of a removed journal would replace the trace file made of it.
    if not is_own and not files.is_there(path):
        return 0
    rows = [asdict(trace) for trace in journal.finished.values()]
    if journal.attempt is not None:
        journal.attempt["ended_at"] = path.stat().st_mtime
    metadata = {"attempt": orjson.dumps(journal.attempt).decode()}
    trace_files.write_table(trace_file, trace_files.TRACES, rows, metadata)
    return len(rows)
