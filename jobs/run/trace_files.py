"""Trace files: finished samples as Parquet, one row per sample with nested steps, candidates and calls.

There is one file per worker attempt instead of per sample, because shared filesystems are slow with many small files.
The columns are the fields of harness.trace.

The digest of every file is in the run's events (jobs.run.events). It is verified before samples are read, so damaged
files and files of other runs are never used; they are reported and left unchanged.

A sample that ran several times has records in several trace files. The first record that did not end in an error is
used or, if all ended in errors, the first one. Files are read in the order of their names, which start with the time of
the attempt. Other code refers to this rule: jobs.run.endings counts by the rule, and the warehouse implements it in
SQL.
"""

from __future__ import annotations

import contextlib
import json
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union, cast, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.engine import Finish, Role
from harness.problems.problem import Problem
from harness.trace import StopReason, Trace
from jobs.run import events, files
from jobs.run.files import FileDamaged, RunDamaged, WrongFormat, say_once
from jobs.run.spec import AttemptRow

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

DAMAGED = (FileDamaged, pa.ArrowException, OSError)
"""Errors raised by reading a damaged or unreadable file."""
_NO_THREAD = "Failed to launch worker thread"
"""pyarrow's message if its process cannot start another thread, e.g. under `ulimit -v`."""
_text, _int, _real, _flag = pa.string(), pa.int32(), pa.float64(), pa.bool_()
_TYPES = {str: _text, int: _int, float: _real, bool: _flag}
_ROWS_AT_ONCE = 64
_LONG = {"seed": pa.int64()}
"""Fields that need 64-bit integers."""


def _load_no_pandas() -> None:
    """Make pyarrow treat pandas as missing: it would spend half a second importing pandas to check list types.

    Code that requests a pandas table can import pandas later. If pandas or `harness.api` is already imported, e.g. in
    notebooks, pandas is not hidden, because users may pass pandas arrays.
    """

    class Missing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(name)

    if not {"pandas", "harness.api"} & sys.modules.keys():
        sys.meta_path.insert(0, Missing)
        pa.array([])
        sys.meta_path.remove(Missing)


_load_no_pandas()


class StepRow(TypedDict):
    """A step read from a trace file; contains only the columns requested."""

    author: Role
    role: str
    text: str
    num_tokens: int
    token_ids: list[int]
    finish: Finish
    candidates: list[Mapping[str, Any]]
    verdicts: list[Mapping[str, Any]]
    elapsed_seconds: float
    decision: Mapping[str, Any] | None


class SampleRow(TypedDict):
    """A sample read from a trace file; contains only the columns requested."""

    sample_id: str
    problem_id: str
    sample_index: int
    seed: int
    draft_prompt: str
    target_prompt: str
    steps: list[StepRow]
    calls: list[Mapping[str, float | str | None]]
    stop_reason: StopReason | None
    error: str | None


class GradeRow(TypedDict):
    """A grade read from a file of grades."""

    sample_id: str
    grader_version: str
    verdict: str
    extracted: str | None
    rule: str | None
    detail: str | None
    seconds: float


class ScoreRow(TypedDict):
    """A score read from a file of scores."""

    sample_id: str
    step_index: int
    candidate_index: int | None
    scorer: str
    score: float | None
    missing: str | None


def _schema_of(record: type) -> pa.Schema:
    """Return a schema with a column per field of a record; fields that are records become nested columns."""
    hints = get_type_hints(record)
    return pa.schema({name: _LONG.get(name) or _arrow_type(hint) for name, hint in hints.items() if name[0] != "_"})


def _arrow_type(hint: Any) -> pa.DataType:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _TYPES:
        return _TYPES[hint]
    if origin in (list, tuple):
        return pa.list_(_arrow_type(arguments[0]))
    if origin in (UnionType, Union):  # X | None, or literals extended by custom methods
        return _arrow_type(arguments[0])
    return _text if origin is Literal else pa.struct(list(_schema_of(hint)))


PROBLEMS = _schema_of(Problem)
SHARDS = pa.schema({"shard": _int, "sample_id": _text, "problem_id": _text, "sample_index": _int})
"""Units in execution order per shard. Metadata: `shards`: number of shards; `deal`: number of earlier assignments."""
TRACES = _schema_of(Trace)
"""Columns of trace files. The metadata key `attempt` holds jobs.run.spec.Attempt as JSON."""
GRADES = _schema_of(GradeRow)
_OF_A_CANDIDATE = {"sample_id": _text, "step_index": _int, "candidate_index": _int}
_OF_A_GRADE = {"grader_version": _text, "verdict": _text, "extracted": _text, "detail": _text}
CANDIDATE_GRADES = pa.schema(_OF_A_CANDIDATE | _OF_A_GRADE)
SCORES = _schema_of(ScoreRow)
"""Scores from 0 to 1 by a process reward model. candidate_index: null for the step itself. missing: reason for a
missing score, otherwise null."""
PROBE_POINTS = pa.schema(
    {"draft_problem_id": _text, "own_problem_id": _text, "source_run_id": _text}
    | _OF_A_CANDIDATE
    | {"num_steps": _int, "kind": _text, "value": _real, "accepts_below": _flag, "accepted": _flag}
    | {"weight": _real, "num_ending": _int}
)
"""Points of a probe (jobs.continuations.probe.Point), with the ids of their two problems in the probe's run.

num_ending: number of the probed run's decisions on proposals that end the reply, the same in every row."""
BUDGET_CUTS = pa.schema(
    {"cut_problem_id": _text, "source_run_id": _text, "sample_id": _text, "problem_id": _text, "budget": _int}
    | {"num_tokens": _int, "is_exact": _flag}
)
"""Every sample of another run at every budget (jobs.continuations.budget_sweep.Cut). cut_problem_id: the problem that
begins with the truncated chain; null if the chain had already ended and its own verdict is used."""
TIMING_DRAW = pa.schema({"sample_id": _text, "stratum": _int, "is_timed": _flag})
"""Every sample of a run with its stratum, and whether it is timed (jobs.run.timing)."""
TARGET_LOGPROBS = pa.schema(
    {"sample_id": _text, "step_index": _int, "num_characters": _int, "num_tokens": _int}
    | {"logprob": _real, "lowest_logprob": _real, "target": _text}
)
"""The target's log-probability (nats) of the generated tokens of each step (harness.chain.chain_scores).
num_characters: length of the step's text, which distinguishes rows of different chains. target: fingerprint of the
model. The header identifies the scorer (jobs.run.derived.Scorer)."""


def write_table(
    path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Announce a file of a run in the events (jobs.run.events) and write the rows to it atomically."""
    events.write_announced(path, content_of(pa.Table.from_pylist(list(rows), schema=schema), metadata or {}))


def content_of(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """Return a table as the content of a Parquet file."""
    written = pa.BufferOutputStream()
    table = table.replace_schema_metadata({**metadata, files.FORMAT_KEY: str(files.FORMAT)})
    pq.write_table(table, written, compression="zstd", write_page_checksum=True)
    return bytes(memoryview(written.getvalue()))


@contextlib.contextmanager
def opened(path: Path, *, whole: bool = True) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; with `whole`, after verifying its digest.

    Checksums of pages read are always verified. Raises FileDamaged (including WrongFormat), OSError with an error
    number if the file cannot be read, and MemoryError if this process cannot start a thread.
    """
    try:
        if whole:
            events.check(path)
        if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would block
            raise FileDamaged(f"{path} is damaged: not a regular file")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            written = metadata_of(file).get(files.FORMAT_KEY)
            files.check_format(path, int(written) if written and written.isdigit() else written)
            yield file
    except FileDamaged:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        if _NO_THREAD in str(error):
            raise MemoryError(f"{path} cannot be read: {_NO_THREAD}") from error
        raise FileDamaged(f"{path} is damaged: {next(iter(str(error).splitlines()), type(error).__name__)}") from error


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Read all rows of a Parquet file as dictionaries."""
    return list(read_columns(path, columns).to_pylist())


def read_columns(path: Path, columns: Sequence[str] | None = None, *, whole: bool = True) -> pa.Table:
    """Read some or all columns of a Parquet file, in row order; a column may be the path of a nested field."""
    with opened(path, whole=whole) as file:
        if missing := sorted({column.partition(".")[0] for column in columns or ()} - set(file.schema_arrow.names)):
            raise ValueError(f"no column {', '.join(missing)}")
        table = file.read(columns=None if columns is None else list(columns))
        if table.num_rows != file.metadata.num_rows:
            raise ValueError(f"only {table.num_rows} of {file.metadata.num_rows} rows are readable")
        return table


def iterate_rows(path: Path, columns: list[str]) -> Iterator[SampleRow]:
    """Yield the rows of a trace file in small batches; a column may be the path of a nested field."""
    with opened(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
            yield from cast(list[SampleRow], batch.to_pylist())


def read_metadata(path: Path, *, whole: bool = True) -> dict[str, str]:
    """Read a file's specific metadata, without the keys common to all files."""
    with opened(path, whole=whole) as file:
        return {key: value for key, value in metadata_of(file).items() if key != files.FORMAT_KEY}


def metadata_of(file: pq.ParquetFile) -> dict[str, str]:
    """Return the metadata of an open file."""
    raw = file.metadata.metadata or {}
    return {k.decode(): v.decode() for k, v in raw.items() if not k.startswith(b"ARROW:")}


ENDINGS = ("sample_id", "stop_reason")
NOT_FINISHED = "its samples count as unfinished; run the launch command again to repeat them"


def endings(path: Path, *, whole: bool = True) -> pa.Table:
    """Read `sample_id` and `stop_reason` of a trace file; warns and returns no rows if the file is unusable.

    If `whole`, verify the file's digest first. Raises PermissionError, and RunDamaged if the file is temporarily
    unreadable or has another format, because its samples may be finished.
    """
    try:
        return read_columns(path, ENDINGS, whole=whole)
    except WrongFormat as error:
        raise RunDamaged(str(error)) from error
    except FileDamaged as error:
        say_once(f"{error}; {NOT_FINISHED}")
    except FileNotFoundError:
        pass
    except PermissionError:
        raise
    except OSError as error:
        raise RunDamaged(f"{path} cannot be read: {error.strerror}") from error
    return pa.table({name: pa.array([], pa.string()) for name in ENDINGS})


def finished_ids(path: Path) -> set[str]:
    """Return the ids of the samples in a trace file."""
    return set(endings(path)["sample_id"].to_pylist())


def attempt_of(path: Path) -> AttemptRow:
    """Return an attempt's record from a trace file's metadata; empty if missing. Raises FileDamaged."""
    text = read_metadata(path, whole=False).get("attempt") or "{}"
    try:
        attempt = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileDamaged(f"{path} is damaged: its metadata entry 'attempt' is not valid JSON") from error
    if not isinstance(attempt, dict):
        raise FileDamaged(f"{path} is damaged: its metadata entry 'attempt' is not a JSON object")
    return cast(AttemptRow, attempt)


FAILED = "error"
"""Stop reason of failed records, which are ignored if another record of the sample did not fail."""


def counting_records(run: RunFolder, columns: Sequence[str], *, failed: bool = True) -> Iterator[SampleRow]:
    """Yield each finished sample once: `sample_id`, `stop_reason` and the given columns, nested ones by path.

    Without `failed`, samples that ended in an error in every attempt are left out. Files that are damaged or belong to
    another run are skipped, so their samples count as unfinished unless another file has them. Samples outside the plan
    are left out.
    """
    found = {path: endings(path) for path in run.trace_files()}
    planned = set(run.units_by_shard()["sample_id"].to_pylist())
    succeeded, seen = set[str](), set[str]()
    for ended in found.values() if failed else ():
        succeeded.update(ended["sample_id"].filter(pc.not_equal(ended["stop_reason"], FAILED)).to_pylist())
    for path in (path for path, ended in found.items() if ended.num_rows):
        for row in iterate_rows(path, ["sample_id", "stop_reason", *columns]):
            sample_id = row["sample_id"]
            if row["stop_reason"] is None or sample_id in seen or sample_id not in planned:
                continue
            if row["stop_reason"] == FAILED and (not failed or sample_id in succeeded):
                continue
            seen.add(sample_id)
            yield row
