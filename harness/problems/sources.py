"""What `--dataset` names: a known benchmark, or a dataset of one's own.

A dataset of one's own is named by `--dataset FILE`, `--dataset hf:ORG/NAME`, or a TOML file beside the data. `describe`
reads nothing but that TOML file, so a launch knows in a moment whether what was asked for can be meant.

Files are data from anywhere: whatever is wrong is one line that names the file and the place. Lines count from 1, as
editors do; rows of Parquet files and of the hub count from 0, as the ids of problems do. A problem without an id of its
own has `row/<row>`: whatever the file is called and wherever it lies, equal problems have equal ids, and so runs on
them can be paired.
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
    """Yield the rows of a file with their places. Raises BadDataset where it is broken."""
    try:
        yield from _READERS[path.suffix.lower()](path)
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror or _error_line(error)}") from error


def check_file(path: Path) -> None:
    """Raise BadDataset where a path is not that of a file that `read_rows` knows."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadDataset(f"{path}: not a known kind of file; valid: {', '.join(SUFFIXES)}")
    check_exists(path)


def check_exists(path: Path) -> None:
    """Raise BadDataset where there is no file at a path."""
    if os.path.isdir(path):  # noqa: PTH112 Path.is_dir raises OSError for a name that is too long
        raise BadDataset(f"{path}: a folder, not a file")
    if not os.path.isfile(path):  # noqa: PTH113 Path.is_file raises OSError for a name that is too long
        shown = str(path)[:200]
        raise BadDataset(
            f"{shown}: no such file; a run begun with it keeps its problems: python -m jobs resume RUN goes on, or, on "
            "this machine, python -m jobs worker RUN SHARD"
        )


def _csv(path: Path) -> Rows:
    csv.field_size_limit(MAX_PROBLEM_CHARACTERS)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            names = [name.strip() for name in reader.fieldnames or ()]
            if not all(names) or len(set(names)) != len(names):
                raise ValueError("the first line names the columns, each once and none empty")
            reader.fieldnames = names
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"the row has not {len(names)} cells, as the header has")
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
    """Raise ValueError, with one line that says what is valid, where these flags cannot name a dataset."""
    if is_own(dataset):
        describe(dataset, split, columns)
    elif dataset not in benchmarks.DATASETS:
        hint = did_you_mean(dataset, benchmarks.DATASETS)
        valid = f"{', '.join(benchmarks.DATASETS)}, {VALID}"
        raise ValueError(f"--dataset {dataset}: unknown; valid: {valid}{hint}")
    elif given := [flag for flag, value in (("--split", split), ("--columns", columns)) if value]:
        raise ValueError(f"{' and '.join(given)}: {dataset} has its own; they are for {VALID}")


def is_own(dataset: str) -> bool:
    """Return whether the text of `--dataset` names a file or a dataset of the hub, rather than a known name."""
    is_file = "/" in dataset or Path(dataset).suffix.lower() in (*SUFFIXES, ".toml")
    return dataset not in DATASETS and (dataset.startswith(HUB) or is_file)


def describe(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> Description:
    """Return what `--dataset`, `--split` and `--columns` say together. Raises ValueError with one line.

    Flags take precedence over the TOML file.
    """
    path, label = Path(dataset), f"--dataset {dataset}"
    if dataset.startswith(HUB):
        described: dict[str, Any] = {"hub": dataset.removeprefix(HUB)}
    elif path.suffix.lower() == ".toml":
        check_exists(path)
        described, label = read_toml(path), str(path)
    elif "://" not in dataset and path.suffix.lower() in SUFFIXES:
        described = {"file": path.name}
    else:
        raise ValueError(f"{label}: unknown; valid: {VALID}, or a name of --list datasets")
    try:
        own = Description.model_validate({**described, **({"split": split} if split else {})})
    except ValidationError as error:
        raise ValueError(f"{label}: {first_error(error, Description)}") from error
    if (own.file is None) == (own.hub is None):
        raise ValueError(f'{label}: say where the problems are: file = "my.jsonl" or hub = "org/name", one of them')
    if own.file is not None:
        own = own.model_copy(update={"file": str(path.parent / own.file)})
        check_file(Path(str(own.file)))
        if own.split:
            raise ValueError(
                f"--split {own.split}: {own.file} is one file and has no splits; they are for {HUB}ORG/NAME"
            )
    source = own.source
    name = own.name or (source.name if isinstance(source, HubSource) and dataset.startswith(HUB) else path.stem)
    if name in DATASETS or not _NAME.fullmatch(name):
        problem = "is the name of a known dataset (for a copy of it give --data-dir)"
        if name not in DATASETS:
            problem = "cannot name a run's dataset (up to 48 letters, digits, _ . -, a letter or digit first)"
        raise ValueError(f"--dataset: {name[:60]!r} {problem}: rename the file, or say name = in a TOML file")
    mapped = parse_columns(",".join(columns)) if columns else {}
    return own.model_copy(update={"name": name, "columns": {**own.columns, **mapped}})


def parse_columns(text: str) -> dict[str, str | list[str]]:
    """Return the mapping of `problem=question,choices=a+b+c`. Raises ValueError."""
    mapped: dict[str, str | list[str]] = {}
    for item in text.split(","):
        name, equals, column = (part.strip() for part in item.partition("="))
        if not (name and equals and column):
            raise ValueError(f"--columns {text}: expected FIELD=COLUMN,FIELD=COLUMN, such as problem=question")
        if name in mapped:
            raise ValueError(f"--columns {text}: {name} is given twice")
        several = [part.strip() for part in column.split("+")]
        mapped[name] = several if name == "choices" and len(several) > 1 else column
    try:
        return known_fields(mapped)
    except ValueError as error:
        raise ValueError(f"--columns {text}: {error}") from error


def load(
    dataset: str, data_dir: Path | None = None, seed: int = 0, split: str | None = None, columns: Sequence[str] = ()
) -> Dataset:
    """Return the problems that these flags name; `seed` decides the order of options that are shuffled.

    Raises ValueError for flags that name no dataset, DatasetNotFound and BadDataset, each with one line.
    """
    if is_own(dataset):
        return _load_own(describe(dataset, split, columns), seed)
    return benchmarks.load_recorded(dataset, data_dir, seed)


_MOST_COLUMNS_SHOWN = 20


def _load_own(own: Description, seed: int) -> Dataset:
    """Return the problems of an own dataset in the order of their rows; `seed` decides the order of shuffled options.

    Raises BadDataset with one line that names the place, and DatasetNotFound where the hub cannot be asked.
    """
    place, notices = own.source, list[str]()
    if isinstance(place, HubSource):
        where, part = f"{place.hub_id} on the hub", "".join(f", {text}" for text in (place.config, place.split) if text)
        try:
            read, commit, is_wanted = hub.read(place)
        except DatasetNotFound as error:
            variable = hub.offline_by(for_datasets=True)
            remedy = f"; {variable} is set: run once without it where the hub answers, or give a file"
            raise DatasetNotFound(f"--dataset: {error}{remedy if variable else ''}") from error
        rows: Rows = ((f"row {number}", row) for number, row in enumerate(read))
        source = f"hub {place.hub_id}@{commit}{part}"
        if not is_wanted:
            notices = [f"THE HUB CANNOT BE REACHED: {place.hub_id} is the newest commit in its cache, {commit}."]
    else:
        where, rows, source = str(place), read_rows(place), f"file {place.resolve()}"

    rows = iter(rows)
    first = list(itertools.islice(rows, 1))
    if "problem" not in own.columns and any("question" in row and "problem" not in row for _, row in first):
        own = own.model_copy(update={"columns": {**own.columns, "problem": "question"}})
        notices.append("Problems are read from the column question (--columns problem=COLUMN names another).")

    def problem(row: Row, number: int) -> Problem:
        return own.problem({name: _value(own, row, name) for name in FIELDS}, "row", number, seed)

    problems = benchmarks.problems_of(own, itertools.chain(first, rows), problem, where, once=True)
    if not problems:
        raise BadDataset(f"{where}: no problems; a row is one, with the fields problem and answer")
    origin = DatasetOrigin(source, dataset_hash(problems), own.title, own.columns, own.answer_rule, own.shuffle)
    return Dataset(own.name, problems, source, origin, tuple(notices))


def _value(own: Description, row: Row, name: str) -> Any:
    """Return what a row says for a field; None where it says nothing."""
    column = own.columns.get(name, name)
    several = [column] if isinstance(column, str) else column
    is_needed = name in REQUIRED or name in own.columns
    for each in several if is_needed else ():
        if each not in row:
            names = [str(key) for key in row]
            has = ", ".join(names[:_MOST_COLUMNS_SHOWN])[:200] or "none"
            [close] = difflib.get_close_matches(each, names, n=1) or ["COLUMN"]
            raise ValueError(f"no field {each!r}; it has {has}; map it: --columns {name}={close}")
    return row.get(column) if isinstance(column, str) else [row[each] for each in several]
