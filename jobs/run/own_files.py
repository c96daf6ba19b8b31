"""Which files of a run folder count, and which record of a sample.

Trace files and journals count that are whole and that the run's own attempts wrote: of a trace file its events tell
(jobs.run.events), of a journal its first line. Others are named and left as they are.

A sample that was run more than once has a record in several trace files. The one that counts is the first that did
not end in an error or, where all did, the first of all; files are read in the order of their names, which begin with
the time of the attempt. Whatever else needs this rule refers to it here: jobs.run.endings counts by it, and the
warehouse expresses it in SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from jobs.run import trace_files
from jobs.run.files import FileDamaged, WrongFormat, say_once
from jobs.run.folder import RunDamaged, RunFolder
from jobs.run.spec import AttemptRow
from jobs.run.trace_files import SampleRow

ENDINGS = ("sample_id", "stop_reason")
_NO_ENDINGS = pa.table({name: pa.array([], pa.string()) for name in ENDINGS})


def endings(path: Path, *, whole: bool = True) -> pa.Table:
    """Read the columns `sample_id` and `stop_reason` of a trace file; one that does not count has no rows and is named.

    `whole`: after comparing all of the file with its digest. Raises PermissionError, and RunDamaged where the file
    cannot be read at the moment or has another format, because its samples may be finished.
    """
    try:
        with trace_files.opened(path, whole=whole) as file:
            if lacking := set(ENDINGS) - set(file.schema_arrow.names):
                names = ", ".join(sorted(lacking))
                raise FileDamaged(f"{path} is no trace file (no column {names}): move it to another folder")
            return trace_files.columns_of(file, ENDINGS)
    except WrongFormat as error:
        raise RunDamaged(str(error)) from error
    except FileDamaged as error:
        say_once(f"{error}; samples in it count as not finished, and the launch command runs them again")
    except FileNotFoundError:
        pass
    except PermissionError:
        raise
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error.strerror}") from error
    return _NO_ENDINGS


def finished_ids(path: Path) -> set[str]:
    """Return the ids of the samples in a trace file."""
    return set(endings(path)["sample_id"].to_pylist())


def usable(paths: Sequence[Path]) -> list[Path]:
    """Return the trace files that count, in the given order, after comparing all of them with their digests."""
    return [path for path in paths if endings(path).num_rows]


def attempt_of(path: Path, metadata: Mapping[str, str]) -> AttemptRow:
    """Return the record of the attempt in a trace file's metadata; empty where there is none. Raises FileDamaged."""
    try:
        attempt = json.loads(metadata.get("attempt") or "null")
    except (ValueError, RecursionError) as error:
        raise FileDamaged(f"{path} is damaged: its attempt is no JSON") from error
    if not isinstance(attempt, dict | None):
        raise FileDamaged(f"{path} is damaged: its attempt is no object")
    return cast(AttemptRow, attempt or {})


def is_own_journal(path: Path, attempt: AttemptRow | None, ids: frozenset[str]) -> bool:
    """Return whether a journal counts, as far as its attempt tells; one of another run and a copy are named."""
    of_run, original = ((attempt or {}).get(key) for key in ("run_id", "attempt_id"))
    if ids and of_run and of_run not in ids:
        say_once(f"{path} is a journal of another run, {of_run}: it is left alone; move it there")
        return False
    if isinstance(original, str) and original != path.stem:
        trace_file = path.parents[1] / "traces" / f"{original}.parquet"
        if path.with_name(f"{original}.jsonl").exists() or trace_file.exists():
            say_once(f"{path} is a copy of the journal {original}: it is left alone; remove it")
            return False
    return True


FAILED = "error"
"""The stop reason of a record that does not count where the sample has another one."""


def counting_records(run: RunFolder, columns: Sequence[str], *, failed: bool = True) -> Iterator[SampleRow]:
    """Yield each finished sample once: `sample_id`, `stop_reason` and the given columns, nested ones by their path.

    Without `failed`, samples that ended in an error every time are left out. Samples of a file that is damaged or of
    another run are not finished, unless another file has them; samples that are not in the plan are left out.
    """
    files = usable(run.trace_files())
    planned = set(run.units_by_shard()["sample_id"].to_pylist())
    succeeded = _succeeded(files) if failed else set()
    seen: set[str] = set()
    for file in files:
        try:
            for row in trace_files.iterate_rows(file, ["sample_id", "stop_reason", *columns]):
                sample_id = row["sample_id"]
                if row["stop_reason"] is None or sample_id in seen or sample_id not in planned:
                    continue
                if row["stop_reason"] == FAILED and (not failed or sample_id in succeeded):
                    continue
                seen.add(sample_id)
                yield row
        except FileDamaged as error:  # of a format without a digest, damaged where only this reads
            say_once(f"{error}; samples behind the damage count as not finished")


def _succeeded(files: Sequence[Path]) -> set[str]:
    """Return the ids of the samples that have a record that did not end in an error."""
    sample_ids: set[str] = set()
    for file in files:
        ended = endings(file, whole=False)
        sample_ids.update(ended["sample_id"].filter(pc.not_equal(ended["stop_reason"], FAILED)).to_pylist())
    return sample_ids
