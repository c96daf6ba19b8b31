"""Rows of a researcher's own file of problems: JSON Lines, CSV or Parquet.

Files are data from anywhere: sizes are bounded before anything is parsed, and whatever is wrong is one line that names
the file and the place. Lines count from 1, as editors do; rows of Parquet files and of the hub count from 0, as the ids
of problems do.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.problems.benchmarks import BadDataset

MAX_FILE_BYTES = 1 << 30
MAX_ROWS = 1_000_000
MAX_LINE_BYTES = 8 << 20
_ROWS_AT_A_TIME = 1024

Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""Each row with its place in words, such as `line 3`."""


def read(path: Path) -> Rows:
    """Yield the rows of a file with their places.

    Raises BadDataset: a suffix that is none of `SUFFIXES`, a file that is missing, too large or broken.
    """
    check(path)
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise BadDataset(f"{path}: {size >> 20} MiB; at most {MAX_FILE_BYTES >> 20} MiB are read")
        for number, row in enumerate(_READERS[path.suffix.lower()](path)):
            if number >= MAX_ROWS:
                raise BadDataset(f"{path}: more than {MAX_ROWS:,} rows")
            yield row
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror or _one_line(error)}") from error


def check(path: Path) -> None:
    """Raise BadDataset where a path is not that of a file that `read` knows."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadDataset(f"{path}: not a known kind of file; valid: {', '.join(SUFFIXES)}")
    check_exists(path)


def check_exists(path: Path) -> None:
    """Raise BadDataset where there is no file at a path."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise BadDataset(f"{str(path)[:200]}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if path.is_dir():
        raise BadDataset(f"{path}: a folder, not a file")
    if not path.exists():
        raise BadDataset(f"{path}: no such file; a run begun with it keeps its problems: give --dataset RUN/spec.json")
    if not path.is_file():
        raise BadDataset(f"{path}: not a file")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a text file with their places. Lines end at "\\n" only: problem texts contain U+2028."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise BadDataset(f"{path}, {place}: longer than {MAX_LINE_BYTES >> 20} MiB")
            if b"\0" in line:
                raise BadDataset(f"{path}, {place}: has a NUL byte, so it is not text")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise BadDataset(f"{path}, {place}: not UTF-8 (byte {error.start + 1} of the line)") from error
            yield place, text


def _json_lines(path: Path) -> Rows:
    for place, line in _lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_repeated_keys, parse_constant=_no_constant)
        except RecursionError as error:
            raise BadDataset(f"{path}, {place}: JSON nested too deeply") from error
        except ValueError as error:
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            raise BadDataset(f"{path}, {place}: not one JSON object ({reason})") from error
        if not isinstance(row, dict):
            raise BadDataset(f"{path}, {place}: not a JSON object; a line is one, with its fields in braces")
        yield place, row


def _without_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a field is given twice")
    return row


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _csv(path: Path) -> Rows:
    lines = _lines(path)
    reader = csv.reader((line for _, line in lines), strict=True)
    previous_limit = csv.field_size_limit(MAX_LINE_BYTES)
    header: list[str] | None = None
    place = "line 1"
    try:
        while True:
            place = f"line {reader.line_num + 1}"
            cells = next(reader, None)
            if cells is None:
                return
            if not cells:
                continue
            if header is None:
                header = _header(cells)
                continue
            if len(cells) != len(header):
                raise ValueError(f"{len(cells)} cells, but the header has {len(header)}")
            yield place, dict(zip(header, cells, strict=True))
    except BadDataset:
        raise
    except (csv.Error, ValueError) as error:
        raise BadDataset(f"{path}, {place}: {error}") from error
    finally:
        csv.field_size_limit(previous_limit)


def _header(cells: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if not all(names) or len(set(names)) != len(names):
        raise ValueError("the first line names the columns, each once and none empty")
    return names


def _parquet(path: Path) -> Rows:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            if sum(group.total_byte_size for group in groups) > MAX_FILE_BYTES:
                raise BadDataset(f"{path}: more than {MAX_FILE_BYTES >> 20} MiB once uncompressed")
            number = 0
            for batch in file.iter_batches(_ROWS_AT_A_TIME):
                for row in batch.to_pylist():
                    yield f"row {number}", row
                    number += 1
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, BadDataset):
            raise
        raise BadDataset(f"{path}: not a readable Parquet file: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


_READERS: Mapping[str, Callable[[Path], Rows]] = {".jsonl": _json_lines, ".csv": _csv, ".parquet": _parquet}
SUFFIXES = tuple(_READERS)
