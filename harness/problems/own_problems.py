"""A dataset of a researcher's own: what it is said to be, the rows of its file or of the hub, and a problem of each.

It is named by `--dataset FILE`, `--dataset hf:ORG/NAME`, or a TOML file beside the data. `describe` reads nothing but
that TOML file, so a launch knows in a moment whether what was asked for can be meant.

Files are data from anywhere: sizes are bounded before anything is parsed, and whatever is wrong is one line that names
the file and the place. Lines count from 1, as editors do; rows of Parquet files and of the hub count from 0, as the ids
of problems do. A problem without an id of its own has `row/<row>`: whatever the file is called and wherever it lies,
equal problems have equal ids, and so runs on them can be paired.
"""

from __future__ import annotations

import csv
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.cli.toml_file import read_toml
from harness.problems import benchmarks, hub
from harness.problems.benchmarks import DATASETS, BadDataset, DatasetNotFound, text_hash
from harness.problems.columns import (
    FIELDS,
    MAX_PROBLEM_CHARACTERS,
    REQUIRED,
    AnswerRule,
    Fields,
    gold,
    letter,
    printable,
    shuffled_choices,
)
from harness.problems.hub import Row
from harness.problems.problem import Dataset, DatasetOrigin, Kind, Problem, dataset_hash

MAX_FILE_BYTES = 1 << 30
Rows = Iterator[tuple[str, Row]]
"""Each row with its place in words, such as `line 3`."""


def read_rows(path: Path) -> Rows:
    """Yield the rows of a file with their places.

    Raises BadDataset: a suffix that is none of `SUFFIXES`, a file that is missing, too large or broken.
    """
    check_file(path)
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise BadDataset(f"{path}: {size >> 20} MiB; at most {MAX_FILE_BYTES >> 20} MiB are read")
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
        raise BadDataset(f"{shown}: no such file; a run begun with it keeps its problems: give --dataset RUN/spec.json")


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
        with parquet.ParquetFile(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            if sum(group.total_byte_size for group in groups) > MAX_FILE_BYTES:
                raise ValueError(f"more than {MAX_FILE_BYTES >> 20} MiB once uncompressed")
            rows = file.read().to_pylist()
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
_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.,+ -]+))?(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_COLUMN = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class HubSource:
    hub_id: str
    config: str | None = None
    revision: str | None = None
    """As it was asked for, such as a branch; None: the newest."""
    split: str = "test"

    @property
    def name(self) -> str:
        """The name of a run's dataset: what tells the hub's parts apart is in it."""
        parts = [self.hub_id.partition("/")[2], self.config, None if self.split == "test" else self.split]
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in parts if part))


class OwnDataset(BaseModel):
    """A dataset that is not among the known ones: the keys of a TOML file that describes it, its name and its place."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str | None = None
    hub: str | None = None
    split: str | None = None
    name: str = ""
    """The dataset of the run: a short name that is also part of run ids."""
    title: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)] | None = None
    kind: Kind | None = None
    """None: a row with choices is of kind `choice`, any other of kind `math`."""
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    """Whether the options of a problem are put into an order that depends on the seed, as GPQA's are."""
    count: Annotated[int, Field(ge=1)] | None = None
    """The number of problems that there must be; None: any."""
    columns: dict[str, _COLUMN | list[_COLUMN]] = {}
    """The column of each field where it has another name; for `choices` also one column for each option."""

    @property
    def source(self) -> Path | HubSource:
        """Where the problems are. Raises ValueError where `hub` names no dataset."""
        if self.hub is None:
            return Path(str(self.file))
        match = _HUB_ID.fullmatch(self.hub.removeprefix(HUB))
        if match is None:
            raise ValueError(f"--dataset {HUB}{self.hub}: expected ORG/NAME[:CONFIG][@REVISION]")
        return HubSource(match["id"], match["config"], match["revision"], self.split or "test")


def is_own(dataset: str) -> bool:
    """Return whether the text of `--dataset` names a file or a dataset of the hub, rather than a known name."""
    is_file = "/" in dataset or Path(dataset).suffix.lower() in (*SUFFIXES, ".toml")
    return dataset not in DATASETS and (dataset.startswith(HUB) or is_file)


def describe(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> OwnDataset:
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
        own = OwnDataset.model_validate({**described, **({"split": split} if split else {})})
    except ValidationError as error:
        raise ValueError(f"{label}: {_one_line(error)}") from error
    if (own.file is None) == (own.hub is None):
        raise ValueError(f'{label}: say where the problems are: file = "my.jsonl" or hub = "org/name", one of them')
    _check_columns(own.columns, f"{label}: columns")
    if own.file is not None:
        own = own.model_copy(update={"file": str(path.parent / own.file)})
        check_file(Path(str(own.file)))
        if own.split:
            raise ValueError(
                f"--split {own.split}: {own.file} is one file and has no splits; they are for {HUB}ORG/NAME"
            )
    source = own.source
    name = source.name if isinstance(source, HubSource) and dataset.startswith(HUB) else path.stem
    mapped = parse_columns(",".join(columns)) if columns else {}
    return _checked(own.model_copy(update={"name": own.name or name, "columns": {**own.columns, **mapped}}))


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
    _check_columns(mapped, f"--columns {text}")
    return mapped


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][:2])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; valid: {', '.join(OwnDataset.model_fields)}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


def _check_columns(columns: Mapping[str, str | list[str]], label: str) -> None:
    for name, column in columns.items():
        if name not in FIELDS:
            raise ValueError(f"{label}: unknown field {name!r}; valid: {', '.join(FIELDS)}")
        if not isinstance(column, str) and name != "choices":
            raise ValueError(f"{label}: {name} is one column; only choices may be several")


def _checked(own: OwnDataset) -> OwnDataset:
    """Raise ValueError where the name cannot be that of a run's dataset."""
    if own.name in DATASETS:
        raise ValueError(
            f"--dataset: {own.name} is the name of a known dataset: rename the file, or say name = in a TOML file; "
            "for a copy of the known one give --data-dir"
        )
    if not _NAME.fullmatch(own.name):
        raise ValueError(
            f"--dataset: {own.name[:60]!r} cannot name a run's dataset (up to 48 letters, digits, _ . -, a letter or "
            "digit first): rename the file, or say name = in a TOML file"
        )
    return own


_MOST_COLUMNS_SHOWN = 20
_OTHER_NAME = "question"
"""The name that many datasets have for the field `problem`."""


def load(own: OwnDataset, seed: int = 0) -> Dataset:
    """Return the problems of an own dataset in the order of their rows; `seed` decides the order of shuffled options.

    Raises BadDataset with one line that names the place, and DatasetNotFound where the hub cannot be asked.
    """
    if isinstance(own.source, HubSource):
        rows, source, notices = _read_hub(own.source)
    else:
        rows, source, notices = read_rows(own.source), f"file {own.source.resolve()}", ()
    where = f"{own.source.hub_id} on the hub" if isinstance(own.source, HubSource) else str(own.source)
    problems: list[Problem] = []
    seen: dict[object, str] = {}
    first = list(islice(rows, 1))
    own, found = _with_found_column(own, first[0][1] if first else {})
    for place, row in chain(first, rows):
        try:
            problem = _problem(own, row, len(problems), seed)
            content = text_hash(problem.text), tuple(sorted(problem.choices))
            for key, name in ((problem.id, "id"), (content, "problem")):
                if key in seen:
                    raise ValueError(f"the same {name} as {seen[key]}")
                seen[key] = place
        except ValueError as error:
            raise BadDataset(f"{where}, {place}: {error}") from error
        problems.append(problem)
    if not problems:
        raise BadDataset(f"{where}: no problems; a row is one, with the fields problem and answer")
    if own.count is not None and len(problems) != own.count:
        raise BadDataset(f"{where}: {len(problems)} problems, but count = {own.count}")
    origin = DatasetOrigin(source, dataset_hash(problems), own.title, own.columns, own.answer_rule, own.shuffle)
    return Dataset(own.name, problems, source, len(problems), origin, (*notices, *found))


def _with_found_column(own: OwnDataset, row: Row) -> tuple[OwnDataset, tuple[str, ...]]:
    """Return the dataset with the column of its problems where the first row has that under its other usual name, and
    a note; nobody has to map `question`, and it is never taken where a column `problem` could be meant too.
    """
    if "problem" in own.columns or "problem" in row or _OTHER_NAME not in row or _OTHER_NAME in own.columns.values():
        return own, ()
    note = f"{own.name}: the text of the problem is in the column {_OTHER_NAME} (--columns problem=COLUMN for another)"
    return own.model_copy(update={"columns": {**own.columns, "problem": _OTHER_NAME}}), (note,)


def _read_hub(source: HubSource) -> tuple[Rows, str, tuple[str, ...]]:
    """Return the rows of the commit that the revision names now, the source with that commit, and warnings."""
    part = "".join(f", {text}" for text in (source.config, source.split) if text)
    try:
        rows, commit, _, is_wanted = hub.read(source.hub_id, source.config, source.split, source.revision)
    except hub.HubUnavailable as unavailable:
        variable = hub.offline_by(for_datasets=True)
        remedy = f"; {variable} is set: run once without it where the hub answers, or give a file" if variable else ""
        raise DatasetNotFound(f"--dataset: {unavailable}{remedy}") from unavailable
    notice = f"THE HUB CANNOT BE REACHED: {source.hub_id} is the newest commit in its cache, {commit}."
    numbered = ((f"row {index}", row) for index, row in enumerate(rows))
    return numbered, f"hub {source.hub_id}@{commit}{part}", () if is_wanted else (notice,)


def _problem(own: OwnDataset, row: Row, index: int, seed: int) -> Problem:
    """Return a row as a Problem. Raises ValueError for an invalid one."""
    values = {name: _value(own, row, name) for name in FIELDS}
    said = Fields.read(values)
    is_choice = own.kind == "choice" or (own.kind is None and bool(said.choices))
    identity, choices = said.id or f"row/{index}", said.choices if is_choice else ()
    answer = gold(own.answer_rule, said.answer.strip())
    if is_choice:
        answer = letter(own.answer_rule, answer, choices)
        if own.shuffle:
            choices, answer = shuffled_choices(choices, answer, f"{seed}/{identity}")
    elif own.answer_rule.startswith("index"):
        raise ValueError(f"answer_rule {own.answer_rule}, but the row has no choices")
    return said.as_problem(own.name, "choice" if is_choice else "math", identity, answer, choices)


def _value(own: OwnDataset, row: Row, name: str) -> Any:
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
