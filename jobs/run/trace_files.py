"""Trace files: finished samples as Parquet, one row per sample, with its steps, candidates and calls nested in it.

There is one file per worker attempt, not one per sample, because shared filesystems are slow with many small files. The
columns are the fields of harness.trace; a test compares them, so that the two cannot drift apart unnoticed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DAMAGED = (pa.ArrowException, OSError)
"""What reading a damaged file raises."""
_logger = logging.getLogger(__name__)
_text, _int, _real, _flag = pa.string(), pa.int32(), pa.float64(), pa.bool_()

PROBLEMS = pa.schema(
    {
        "id": _text,
        "dataset": _text,
        "text": _text,
        "answer": _text,
        "kind": _text,
        "answers": pa.list_(_text),
        "alternatives": pa.list_(_text),
        "choices": pa.list_(_text),
        "level": _text,
        "subject": _text,
        "unit": _text,
        "tolerance": _real,
    }
)
SHARDS = pa.schema({"shard": _int, "sample_id": _text, "problem_id": _text, "sample_index": _int})
"""Units in the order in which their shard runs them. Metadata: `shards`, how many; `deal`, earlier assignments."""
CANDIDATE = pa.struct(
    {
        "text": _text,
        "num_tokens": _int,
        "finish": _text,
        "mean_logprob": _real,
        "option": _int,
        "accepted": _flag,
        "verdict_score": _real,
    }
)
VERDICT = pa.struct(
    {
        "kind": _text,
        "question": _text,
        "options": pa.list_(_text),
        "logprobs": pa.list_(_real),
        "decision": _int,
        "score": _real,
        "accepted": _flag,
    }
)
STEP = pa.struct(
    {
        "author": _text,
        "role": _text,
        "text": _text,
        "num_tokens": _int,
        "token_ids": pa.list_(_int),
        "finish": _text,
        "candidates": pa.list_(CANDIDATE),
        "verdict": VERDICT,
        "elapsed_seconds": _real,
    }
)
CALL = pa.struct(
    {
        "purpose": _text,
        "model": _text,
        "step": _int,
        "n": _int,
        "prompt_tokens": _int,
        "cached_tokens": _int,
        "output_tokens": _int,
        "longest_output_tokens": _int,
        "submitted_at": _real,
        "queued_seconds": _real,
        "first_token_seconds": _real,
        "end_seconds": _real,
        "in_flight": _int,
        "proposed_tokens": _int,
        "confirmed_tokens": _int,
        "overlapped_seconds": _real,
    }
)
TRACES = pa.schema(
    {
        "sample_id": _text,
        "problem_id": _text,
        "sample_index": _int,
        "seed": pa.int64(),
        "started_at": _real,
        "draft_prompt": _text,
        "target_prompt": _text,
        "steps": pa.list_(STEP),
        "calls": pa.list_(CALL),
        "stop_reason": _text,
        "error": _text,
        "latency_seconds": _real,
        "num_attempts": _int,
        "version": _int,
    }
)
"""Metadata key `attempt` holds the JSON of jobs.run.spec.Attempt."""
GRADES = pa.schema(
    {
        "sample_id": _text,
        "grader_version": _text,
        "verdict": _text,
        "extracted": _text,
        "rule": _text,
        "detail": _text,
        "seconds": _real,
    }
)

CANDIDATE_GRADES = pa.schema(
    {
        "sample_id": _text,
        "step_index": _int,
        "candidate_index": _int,
        "grader_version": _text,
        "verdict": _text,
        "extracted": _text,
        "detail": _text,
    }
)
SCORES = pa.schema({"sample_id": _text, "step_index": _int, "candidate_index": _int, "scorer": _text, "score": _real})
"""Scores from 0 to 1 by a process reward model; candidate_index is null for the step itself."""


def write_table(
    path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write rows to `path`, so that the file is complete or absent."""
    _write(path, pa.Table.from_pylist(list(rows), schema=schema.with_metadata(dict(metadata or {}))))


def write_columns(
    path: Path, schema: pa.Schema, columns: Mapping[str, Sequence[Any]], metadata: Mapping[str, str]
) -> None:
    """Write a table given as columns, so that the file is complete or absent.

    This is several times faster than from rows where they are many and short.
    """
    _write(path, pa.Table.from_pydict(dict(columns), schema=schema.with_metadata(dict(metadata))))


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table, temporary, compression="zstd")
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(path)


def read_rows(
    path: Path, columns: list[str] | None = None, where: list[tuple[str, str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Read all rows of a Parquet file as dictionaries, or those that satisfy every condition of `where`."""
    if where is None:  # reading with conditions imports pandas
        with pq.ParquetFile(path) as file:
            return list(file.read(columns=columns).to_pylist())
    return list(pq.read_table(path, columns=columns, filters=where).to_pylist())


def read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Read columns of a Parquet file in its row order; a column may be the path of a nested field."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns)


def iterate_rows(path: Path, columns: list[str], rows_at_once: int = 64) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, a few in memory at a time; a column may be the path of a nested field."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows_at_once, columns=columns):
            yield from batch.to_pylist()


def read_metadata(path: Path) -> dict[str, str]:
    """Read the file's own metadata."""
    raw = pq.read_schema(path).metadata or {}
    return {k.decode(): v.decode() for k, v in raw.items() if not k.startswith(b"ARROW:")}


def check_columns(path: Path, schema: pa.Schema) -> None:
    """Raise ValueError where a file lacks a column of the schema; types and values are not checked."""
    missing = sorted(set(schema.names) - set(pq.read_schema(path).names))
    if missing:
        raise ValueError(f"no column {', '.join(missing)} in {path.name}")


def endings(path: Path) -> pa.Table:
    """Read the columns `sample_id` and `stop_reason` of a trace file; a damaged file has no rows.

    Raises PermissionError: what may not be read is not lost.
    """
    try:
        return read_columns(path, ["sample_id", "stop_reason"])
    except PermissionError:
        raise
    except DAMAGED:
        _logger.warning("%s is damaged; its samples count as not finished", path)
        return pa.table({"sample_id": pa.array([], _text), "stop_reason": pa.array([], _text)})


def finished_ids(paths: Iterable[Path]) -> set[str]:
    """Return the ids of the samples in these trace files."""
    return {sample_id for path in paths for sample_id in endings(path)["sample_id"].to_pylist()}
