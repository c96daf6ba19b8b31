"""Resolve `--dataset`: a built-in benchmark, or a custom dataset.

Custom datasets are `--dataset FILE`, `--dataset hf:ORG/NAME`, or a TOML file next to the data. `describe` reads only
the TOML file, so a launch can reject invalid flags quickly.

Files are untrusted. Every error is one line with the file and location. Lines count from 1, as in editors; rows of
Parquet files and the Hub count from 0, as in problem ids. The default problem id is `row/<row>`. It does not depend on
the file's name or path, so runs on equal problems can be paired.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.cli.messages import did_you_mean, first_error
from harness.cli.toml_file import read_toml
from harness.problems import benchmarks, hub
from harness.problems.benchmarks import DATASETS, BadDataset, DatasetNotFound, Rows
from harness.problems.columns import FIELDS, MAX_PROBLEM_CHARACTERS, REQUIRED, Description, known_fields
from harness.problems.hub import HubSource, Row
from harness.problems.problem import Dataset as Dataset
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash


def read_rows(path: Path) -> Rows:
    """Yield the rows of a file with their locations. Raises BadDataset."""
    try:
        yield from _READERS[path.suffix.lower()](path)
    except OSError as error:
        raise BadDataset(f"{path}: cannot read: {error.strerror or _error_line(error)}") from error


def check_file(path: Path) -> None:
    """Raise BadDataset if the path is not an existing file in a format that `read_rows` supports."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadDataset(f"{path}: unknown file type; valid: {', '.join(SUFFIXES)}")
    check_exists(path)


def check_exists(path: Path) -> None:
    """Raise BadDataset if the file does not exist."""
    if os.path.isdir(path):  # noqa: PTH112 Path.is_dir raises OSError for a name that is too long
        raise BadDataset(f"{path}: a folder, not a file")
    if not os.path.isfile(path):  # noqa: PTH113 Path.is_file raises OSError for a name that is too long
        shown = str(path)[:200]
        raise BadDataset(
            f"{shown}: no such file. Runs started with this file have a copy of its problems; continue one with "
            "python -m jobs resume RUN or, on this machine, python -m jobs worker RUN SHARD"
        )


def _csv(path: Path) -> Rows:
    csv.field_size_limit(MAX_PROBLEM_CHARACTERS)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            names = [name.strip() for name in reader.fieldnames or ()]
            if not all(names) or len(set(names)) != len(names):
                raise ValueError("the first line must contain the column names, unique and not empty")
            reader.fieldnames = names
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"expected {len(names)} cells, as in the header")
                yield f"line {reader.reader.line_num}", row
        except (csv.Error, ValueError) as error:
            raise BadDataset(f"{path}, line {reader.reader.line_num}: {error}") from error


def _parquet(path: Path) -> Rows:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = parquet.read_table(path).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadDataset(f"{path}: not a readable Parquet file: {_error_line(error)}") from error
    yield from ((f"row {number}", row) for number, row in enumerate(rows))


def _error_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


_READERS: Mapping[str, Callable[[Path], Rows]] = {".jsonl": benchmarks.json_lines, ".csv": _csv, ".parquet": _parquet}
SUFFIXES = tuple(_READERS)


HUB = "hf:"
VALID = f"a file ({', '.join((*SUFFIXES, '.toml'))}) or {HUB}ORG/NAME[:CONFIG][@REVISION]"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")


def check(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> None:
    """Raise ValueError if these flags do not select a dataset; the one-line message lists valid values."""
    if is_own(dataset):
        describe(dataset, split, columns)
    elif dataset not in benchmarks.DATASETS:
        hint = did_you_mean(dataset, benchmarks.DATASETS)
        valid = f"{', '.join(benchmarks.DATASETS)}, {VALID}"
        raise ValueError(f"--dataset {dataset}: unknown; valid: {valid}{hint}")
    elif given := [flag for flag, value in (("--split", split), ("--columns", columns)) if value]:
        raise ValueError(f"{' and '.join(given)}: not valid with the built-in {dataset}, only with {VALID}")


def is_own(dataset: str) -> bool:
    """Return whether `--dataset` is a file or a Hub dataset rather than a built-in name."""
    is_file = "/" in dataset or Path(dataset).suffix.lower() in (*SUFFIXES, ".toml")
    return dataset not in DATASETS and (dataset.startswith(HUB) or is_file)


def describe(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> Description:
    """Return a custom dataset's description. `split` and `columns` override its TOML file. Raises ValueError."""
    path, label = Path(dataset), f"--dataset {dataset}"
    if dataset.startswith(HUB):
        described: dict[str, Any] = {"hub": dataset.removeprefix(HUB)}
    elif path.suffix.lower() == ".toml":
        check_exists(path)
        described, label = read_toml(path), str(path)
    elif "://" not in dataset and path.suffix.lower() in SUFFIXES:
        described = {"file": path.name}
    else:
        raise ValueError(f"{label}: unknown; valid: {VALID}, or any name from --list datasets")
    try:
        own = Description.model_validate({**described, **({"split": split} if split else {})})
    except ValidationError as error:
        raise ValueError(f"{label}: {first_error(error, Description)}") from error
    if (own.file is None) == (own.hub is None):
        raise ValueError(f'{label}: set exactly one of file = "my.jsonl" and hub = "org/name"')
    if own.file is not None:
        own = own.model_copy(update={"file": str(path.parent / own.file)})
        check_file(Path(str(own.file)))
        if own.split:
            given = f"--split {split}" if split else f"{label}: split"
            raise ValueError(f"{given}: only valid with {HUB}ORG/NAME; {own.file} is a single file")
    source = own.source
    name = own.name or (source.name if isinstance(source, HubSource) and dataset.startswith(HUB) else path.stem)
    if name in DATASETS or not _NAME.fullmatch(name):
        problem = "is a built-in dataset name (for a copy of that dataset, use --data-dir)"
        if name not in DATASETS:
            problem = (
                "is not a valid dataset name (up to 48 characters: letters, digits, _ . -; the first a letter or digit)"
            )
        raise ValueError(f"--dataset: {name[:60]!r} {problem}: rename the file, or set name = in a TOML file")
    mapped = parse_columns(",".join(columns)) if columns else {}
    return own.model_copy(update={"name": name, "columns": {**own.columns, **mapped}})


def parse_columns(text: str) -> dict[str, str | list[str]]:
    """Parse a column mapping such as `problem=question,choices=a+b+c`. Raises ValueError."""
    mapped: dict[str, str | list[str]] = {}
    for item in text.split(","):
        name, equals, column = (part.strip() for part in item.partition("="))
        if not (name and equals and column):
            raise ValueError(
                f"--columns {text}: expected FIELD=COLUMN,FIELD=COLUMN, such as problem=question; a "
                "column whose name contains a comma needs a TOML file with [columns]"
            )
        if name in mapped:
            raise ValueError(f"--columns {text}: {name} occurs twice")
        several = [part.strip() for part in column.split("+")]
        mapped[name] = several if name == "choices" and len(several) > 1 else column
    try:
        return known_fields(mapped)
    except ValueError as error:
        raise ValueError(f"--columns {text}: {error}") from error


def load(
    dataset: str, data_dir: Path | None = None, seed: int = 0, split: str | None = None, columns: Sequence[str] = ()
) -> Dataset:
    """Load the dataset selected by these flags; `seed` sets the order of shuffled options.

    Raises ValueError for invalid flags, DatasetNotFound and BadDataset, all with one-line messages.
    """
    if is_own(dataset):
        return _load_own(describe(dataset, split, columns), seed)
    return benchmarks.load_recorded(dataset, data_dir, seed)


_MOST_COLUMNS_SHOWN = 20


def _load_own(own: Description, seed: int) -> Dataset:
    """Load a custom dataset. Raises BadDataset, and DatasetNotFound if the Hub is unavailable."""
    place, notices = own.source, list[str]()
    if isinstance(place, HubSource):
        where, part = f"{place.hub_id} on the Hub", "".join(f", {text}" for text in (place.config, place.split) if text)
        try:
            read, commit, is_wanted = hub.read(place)
        except DatasetNotFound as error:
            variable = hub.offline_by(for_datasets=True)
            remedy = f"; {variable} is set: run once without it on a machine with Hub access, or use a file"
            raise DatasetNotFound(f"--dataset: {error}{remedy if variable else ''}") from error
        rows: Rows = ((f"row {number}", row) for number, row in enumerate(read))
        source = f"hub {place.hub_id}@{commit}{part}"
        if not is_wanted:
            notices = [f"HUB NOT QUERIED: using the newest cached commit of {place.hub_id}, {commit}."]
    else:
        where, rows, source = str(place), read_rows(place), f"file {place.resolve()}"

    rows = iter(rows)
    first = list(itertools.islice(rows, 1))
    if "problem" not in own.columns and any("question" in row and "problem" not in row for _, row in first):
        own = own.model_copy(update={"columns": {**own.columns, "problem": "question"}})
        notices.append("Reading problems from the column question (to change this: --columns problem=COLUMN).")

    def problem(row: Row, number: int) -> Problem:
        return own.problem({name: _value(own, row, name) for name in FIELDS}, "row", number, seed)

    problems = benchmarks.problems_of(own, itertools.chain(first, rows), problem, where, once=True)
    if not problems:
        raise BadDataset(f"{where}: no problems; each row needs the fields problem and answer")
    origin = DatasetOrigin(source, dataset_hash(problems), own.title, own.columns, own.answer_rule, own.shuffle)
    return Dataset(own.name, problems, source, origin, tuple(notices))


def _value(own: Description, row: Row, name: str) -> Any:
    column = own.columns.get(name, name)
    several = [column] if isinstance(column, str) else column
    is_needed = name in REQUIRED or name in own.columns
    for each in several if is_needed else ():
        if each not in row:
            names = [str(key) for key in row]
            has = ", ".join(names[:_MOST_COLUMNS_SHOWN])[:200] or "none"
            [close] = difflib.get_close_matches(each, names, n=1) or ["COLUMN"]
            raise ValueError(f"no column {each!r}; found: {has}; set --columns {name}={close}")
    if isinstance(column, str):
        return row.get(column)
    cells = [row[each] for each in several]
    while cells and cells[-1] in (None, ""):  # a row with fewer options, or without any
        cells.pop()
    return cells
