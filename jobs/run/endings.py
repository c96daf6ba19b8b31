"""How the samples of a run ended, over all its records: counted in columns, without an object per sample.

The first record of a sample that did not end in an error counts, else the first of all. A sample that failed is
finished too, as data, unless it may be run once more (jobs.run.retries).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from jobs.run import retries, submissions, trace_files
from jobs.run.folder import RunFolder

_FAILED = "error"
"""The stop reason."""
_READERS = 8
_ATTEMPT = re.compile(r"-deal(?P<deal>\d+)-shard(?P<shard>\d+)$")


@dataclass(frozen=True)
class Endings:
    """Sample ids."""

    over: pa.Array
    """Those that are not to be run, or not again; one with several records comes several times."""
    failed: pa.Array
    """Of these, those that ended in an error every time, once each."""

    @cached_property
    def finished(self) -> pa.Array:
        """Those that are not to be run, or not again, once each."""
        return pc.unique(self.over)


NO_ENDINGS = Endings(pa.array([], pa.string()), pa.array([], pa.string()))


@dataclass(frozen=True)
class ShardEndings:
    """How many samples of each shard; lists by shard number."""

    planned: list[int]
    finished: list[int]
    failed: list[int]

    @property
    def left(self) -> int:
        """Samples of the run that are not finished."""
        return sum(self.planned) - sum(self.finished)

    @property
    def unfinished_shards(self) -> list[int]:
        """Shards with a sample that is not finished."""
        return [i for i, (planned, done) in enumerate(zip(self.planned, self.finished, strict=True)) if done < planned]


def read_endings(run: RunFolder) -> Endings:
    """From every journal and trace file."""
    journals = {}
    for path in sorted(run.journal_dir.glob("*.jsonl")):
        try:
            journals[path.stem] = ended_in(path.read_bytes())
        except FileNotFoundError:
            continue  # its samples are in a trace file by now
    return count(run, journals, sorted(run.parts_dir.glob("*.parquet")))


def count(run: RunFolder, journals: Mapping[str, Mapping[str, bool]], trace_files: Iterable[Path]) -> Endings:
    """From trace files, and journals by name: their ended samples, True for an error.

    A trace file holds what the journal of its name held; together they are one record.
    """
    left = dict(journals)
    ids, reasons = [pa.array([], pa.string())], [pa.array([], pa.string())]
    for path, table in _read(list(trace_files)):
        ids += table["sample_id"].chunks
        reasons += table["stop_reason"].chunks
        if path.stem in left:
            known = set(table["sample_id"].to_pylist())
            left[path.stem] = {sample: error for sample, error in left[path.stem].items() if sample not in known}
    for ended in left.values():
        ids.append(pa.array(ended.keys(), pa.string()))
        reasons.append(pa.array([_FAILED if error else None for error in ended.values()], pa.string()))
    failed = pc.fill_null(pc.equal(pa.chunked_array(reasons), _FAILED), fill_value=False)
    return _settle(pa.chunked_array(ids), failed, retries.granted(run))


def _read(files: list[Path]) -> Iterator[tuple[Path, pa.Table]]:
    """Several at a time: a shared filesystem answers slowly, and to many at once."""
    with ThreadPoolExecutor(_READERS) as pool:
        yield from zip(files, pool.map(trace_files.endings, files), strict=True)


def by_shard(run: RunFolder, endings: Endings) -> ShardEndings:
    """The same per shard of the plan."""
    units = run.units_by_shard()
    planned, finished, failed = ([0] * run.num_shards() for _ in range(3))
    flags = pa.table(
        {
            "shard": units["shard"],
            "finished": pc.is_in(units["sample_id"], value_set=endings.over),
            "failed": pc.is_in(units["sample_id"], value_set=endings.failed),
        }
    )
    sums = flags.group_by("shard").aggregate([("shard", "count"), ("finished", "sum"), ("failed", "sum")])
    for row in sums.to_pylist():
        shard = row["shard"]
        planned[shard], finished[shard], failed[shard] = row["shard_count"], row["finished_sum"], row["failed_sum"]
    return ShardEndings(planned, finished, failed)


def ended_in(journal: bytes) -> dict[str, bool]:
    """Samples that ended in a journal; True where one ended with an error."""
    ended = {}
    for line in journal.split(b"\n"):
        if line.startswith(b'{"event":"end"') and line.endswith(b"}"):
            event = orjson.loads(line)
            ended[event["sample_id"]] = event["stop_reason"] == _FAILED
    return ended


def attempt_name(stamp: str, deal: int, shard: int) -> str:
    """Of an attempt, its journal and its trace file; `shard` is the first that its worker was given."""
    return f"{stamp}-deal{deal}-shard{shard}"


def concerning(run: RunFolder, shards: Sequence[int], paths: Iterable[Path]) -> list[Path]:
    """The journals or trace files that may hold samples of these shards, known by their names.

    So that a thousand workers do not each open the files of all the others.
    """
    deal = run.deal()
    tasks = [task for submission in submissions.read(run) for task in submission.tasks]
    firsts = {*shards, *(task[0] for task in tasks if not set(shards).isdisjoint(task))}
    found = []
    for path in sorted(paths):
        name = _ATTEMPT.search(path.stem)
        if name is None or int(name["deal"]) != deal or int(name["shard"]) in firsts:
            found.append(path)
    return found


def _settle(ids: pa.ChunkedArray, failed: pa.ChunkedArray, granted: Mapping[str, int]) -> Endings:
    good = ids.filter(pc.invert(failed)).combine_chunks()
    tries = pc.value_counts(ids.filter(failed))
    if len(tries):
        tries = tries.filter(pc.invert(pc.is_in(tries.field("values"), value_set=good)))
    over = [row["values"] for row in tries.to_pylist() if row["counts"] > granted.get(row["values"], 0)]
    bad = pa.array(over, pa.string())
    return Endings(pa.concat_arrays([good, bad]), bad)
