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
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.cli.toml_file import read_toml
from harness.problems import benchmarks, hub
from harness.problems.benchmarks import DATASETS, LETTERS, BadDataset, DatasetNotFound, shuffled_choices, text_hash
from harness.problems.hub import Row
from harness.problems.problem import Kind, Problem

MAX_FILE_BYTES = 1 << 30
MAX_ROWS = 1_000_000
MAX_LINE_BYTES = 8 << 20
_ROWS_AT_A_TIME = 1024

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a field of a row may hold."""
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
        for number, row in enumerate(_READERS[path.suffix.lower()](path)):
            if number >= MAX_ROWS:
                raise BadDataset(f"{path}: more than {MAX_ROWS:,} rows")
            yield row
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror or _error_line(error)}") from error


def check_file(path: Path) -> None:
    """Raise BadDataset where a path is not that of a file that `read` knows."""
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
            row = json.loads(line)
        except RecursionError as error:
            raise BadDataset(f"{path}, {place}: JSON nested too deeply") from error
        except ValueError as error:
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            raise BadDataset(f"{path}, {place}: not one JSON object ({reason})") from error
        if not isinstance(row, dict):
            raise BadDataset(f"{path}, {place}: not a JSON object; a line is one, with its fields in braces")
        yield place, row


def _csv(path: Path) -> Rows:
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    previous_limit = csv.field_size_limit(MAX_LINE_BYTES)
    header: list[str] | None = None
    place = "line 1"
    try:
        while (cells := next(reader, None)) is not None:
            if header is None and cells:
                header = _header(cells)
            elif header is not None and cells:
                if len(cells) != len(header):
                    raise ValueError(f"{len(cells)} cells, but the header has {len(header)}")
                yield place, dict(zip(header, cells, strict=True))
            place = f"line {reader.line_num + 1}"
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
        raise BadDataset(f"{path}: not a readable Parquet file: {_error_line(error)}") from error


def _error_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


_READERS: Mapping[str, Callable[[Path], Rows]] = {".jsonl": _json_lines, ".csv": _csv, ".parquet": _parquet}
SUFFIXES = tuple(_READERS)


AnswerRule = Literal["text", "integer", "boxed", "hashes", "index-from-0", "index-from-1"]
"""How the gold answer stands in its column: as a text or a number; as an integer, of which 027 and 27.0 are 27; in the
last `\\boxed` of a solution; behind `####` at the end of a solution; or as the index of the right option."""
HUB = "hf:"
REQUIRED = ("problem", "answer")
FIELDS = (*REQUIRED, "id", "choices", "answers", "alternatives", "level", "subject", "family", "unit", "tolerance")
"""What a row may say of a problem; `harness.problems.problem.Problem` says what each is."""
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


@dataclass(frozen=True)
class OwnDataset:
    """A dataset that is not among the known ones."""

    name: str
    """The dataset of the run: a short name that is also part of run ids."""
    source: Path | HubSource
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    """The column of each field where it has another name; for `choices` also one column for each option."""
    kind: Kind | None = None
    """None: a row with choices is of kind `choice`, any other of kind `math`."""
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    """Whether the options of a problem are put into an order that depends on the seed, as GPQA's are."""
    count: int | None = None
    """The number of problems that there must be; None: any."""
    title: str | None = None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a control character")
    return text


class _Described(BaseModel):
    """The keys of a TOML file that describes a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str | None = None
    hub: str | None = None
    split: str | None = None
    name: str | None = None
    title: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)] | None = None
    kind: Kind | None = None
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    count: Annotated[int, Field(ge=1)] | None = None
    columns: dict[str, _COLUMN | list[_COLUMN]] = {}


def is_own(dataset: str) -> bool:
    """Return whether the text of `--dataset` names a file or a dataset of the hub, rather than a known name."""
    is_file = "/" in dataset or Path(dataset).suffix.lower() in (*SUFFIXES, ".toml")
    return dataset not in DATASETS and (dataset.startswith(HUB) or is_file)


def describe(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> OwnDataset:
    """Return what `--dataset`, `--split` and `--columns` say together. Raises ValueError with one line.

    Flags take precedence over the TOML file.
    """
    mapped = parse_columns(",".join(columns)) if columns else {}
    if dataset.startswith(HUB):
        source = _hub_source(dataset.removeprefix(HUB), split)
        return _checked(OwnDataset(source.name, source, mapped))
    if "://" in dataset:
        raise ValueError(f"--dataset {dataset}: an address; valid: {VALID}")
    path = Path(dataset)
    if path.suffix.lower() == ".toml":
        check_exists(path)
        return _checked(_of_toml(path, split, mapped))
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--dataset {dataset}: unknown; valid: {VALID}, or a name of --list datasets")
    check_file(path)
    if split is not None:
        raise ValueError(f"--split {split}: {path} is one file and has no splits; they are for {HUB}ORG/NAME")
    return _checked(OwnDataset(path.stem, path, mapped))


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


def _of_toml(path: Path, split: str | None, columns: Mapping[str, str | list[str]]) -> OwnDataset:
    try:
        described = _Described.model_validate(read_toml(path))
    except ValidationError as error:
        raise ValueError(f"{path}: {_one_line(error)}") from error
    _check_columns(described.columns, f"{path}: columns")
    if (described.file is None) == (described.hub is None):
        raise ValueError(f'{path}: say where the problems are: file = "my.jsonl" or hub = "org/name", one of them')
    source: Path | HubSource
    if described.hub is not None:
        source = _hub_source(described.hub.removeprefix(HUB), split or described.split, f"{path}: hub = ")
    else:
        source = path.parent / str(described.file)
        check_file(source)
        if given := split or described.split:
            raise ValueError(f"{path}: split {given}: a file has no splits; they are for hub = ")
    return OwnDataset(
        described.name or path.stem,
        source,
        {**described.columns, **columns},
        described.kind,
        described.answer_rule,
        described.shuffle,
        described.count,
        described.title,
    )


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][:2])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; valid: {', '.join(_Described.model_fields)}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


def _hub_source(text: str, split: str | None, label: str = f"--dataset {HUB}") -> HubSource:
    match = _HUB_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{label}{text}: expected ORG/NAME[:CONFIG][@REVISION]")
    return HubSource(match["id"], match["config"], match["revision"], split or "test")


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


MAX_PROBLEM_CHARACTERS = 1_000_000
MAX_ANSWER_CHARACTERS = 2_000
"""What the grader reads of an answer (grading.bounds)."""
MAX_ID_CHARACTERS = 200
_MOST_COLUMNS_SHOWN = 20
_PROBLEM, _OTHER_NAME = "problem", "question"
"""The field that many datasets have under another name, and that name."""


@dataclass(frozen=True, slots=True)
class OwnProblems:
    problems: list[Problem]
    source: str
    """`file <path>`, or `hub <id>@<commit>` with configuration and split."""
    columns: Mapping[str, str | list[str]]
    """The column of each field that has another name, that which was found by itself included."""
    notices: tuple[str, ...] = ()


def load(own: OwnDataset, seed: int = 0) -> OwnProblems:
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
            for key, name in ((problem.id, "id"), (_content(problem), "problem")):
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
    return OwnProblems(problems, source, own.columns, (*notices, *found, *_notices(own, problems)))


def _with_found_column(own: OwnDataset, row: Row) -> tuple[OwnDataset, tuple[str, ...]]:
    """Return the dataset with the column of its problems where the first row has that under its other usual name, and
    a note; nobody has to map `question`, and it is never taken where a column `problem` could be meant too.
    """
    if _PROBLEM in own.columns or _PROBLEM in row or _OTHER_NAME not in row or _OTHER_NAME in own.columns.values():
        return own, ()
    note = (
        f"{own.name}: the text of the problem is in the column {_OTHER_NAME} (--columns {_PROBLEM}=COLUMN for another)"
    )
    return replace(own, columns={**own.columns, _PROBLEM: _OTHER_NAME}), (note,)


def _content(problem: Problem) -> tuple[str, tuple[str, ...]]:
    return text_hash(problem.text), tuple(sorted(problem.choices))


def _notices(own: OwnDataset, problems: Sequence[Problem]) -> list[str]:
    letters = {problem.answer for problem in problems if problem.kind == "choice"}
    if own.shuffle or len(letters) != 1 or len(problems) < len(LETTERS):
        return []
    return [f"ALWAYS OPTION {letters.pop()}: no other option of {own.name} is right; say shuffle = true in a TOML file"]


def _read_hub(source: HubSource) -> tuple[Rows, str, tuple[str, ...]]:
    """Return the rows of the commit that the revision names now, the source with that commit, and warnings."""
    part = "".join(f", {text}" for text in (source.config, source.split) if text)
    try:
        rows, commit, _, is_wanted = hub.read(source.hub_id, source.config, source.split, source.revision)
    except hub.HubUnavailable as unavailable:
        variable = hub.offline_by(for_datasets=True)
        remedy = f"; {variable} is set: run once without it where the hub answers, or give a file" if variable else ""
        raise DatasetNotFound(f"--dataset: {unavailable}{remedy}") from unavailable
    if len(rows) > MAX_ROWS:
        raise BadDataset(f"{source.hub_id} on the hub: {len(rows):,} rows; at most {MAX_ROWS:,} are read")
    notice = f"THE HUB CANNOT BE REACHED: {source.hub_id} is the newest commit in its cache, {commit}."
    numbered = ((f"row {index}", row) for index, row in enumerate(rows))
    return numbered, f"hub {source.hub_id}@{commit}{part}", () if is_wanted else (notice,)


def _problem(own: OwnDataset, row: Row, index: int, seed: int) -> Problem:
    """Return a row as a Problem. Raises ValueError for an invalid one."""
    values = {name: _value(own, row, name) for name in FIELDS}
    text = values["problem"]
    if not isinstance(text, str):
        raise ValueError(f"{_column(own, 'problem')!r} is {_kind(text)}, not a text")
    if not text.strip():
        raise ValueError("the problem is empty")
    if len(text) > MAX_PROBLEM_CHARACTERS:
        raise ValueError(f"the problem has {len(text):,} characters; at most {MAX_PROBLEM_CHARACTERS:,}")
    choices = _texts(own, "choices", values["choices"])
    is_choice = own.kind == "choice" or (own.kind is None and bool(choices))
    identity = _short(own, "id", values["id"], f"row/{index}")
    answer = _answer(own, values["answer"], choices if is_choice else ())
    if is_choice and own.shuffle:
        choices, answer = shuffled_choices(choices, answer, f"{seed}/{identity}")
    return Problem(
        id=identity,
        dataset=own.name,
        text=_clean("problem", text),
        answer=answer,
        kind="choice" if is_choice else "math",
        answers=_texts(own, "answers", values["answers"]),
        alternatives=_texts(own, "alternatives", values["alternatives"]),
        choices=choices if is_choice else (),
        level=_short(own, "level", values["level"], "") or None,
        subject=_short(own, "subject", values["subject"], "") or None,
        family=_short(own, "family", values["family"], "") or None,
        unit=_short(own, "unit", values["unit"], "") or None,
        tolerance=_tolerance(values["tolerance"]),
    )


def _column(own: OwnDataset, name: str) -> str | Sequence[str]:
    return own.columns.get(name, name)


def _value(own: OwnDataset, row: Row, name: str) -> Json:
    """Return what a row says for a field; None where it says nothing."""
    column = _column(own, name)
    several = [column] if isinstance(column, str) else list(column)
    is_needed = name in REQUIRED or name in own.columns
    for each in several if is_needed else ():
        if each not in row:
            names = [str(key) for key in row]
            has = ", ".join(names[:_MOST_COLUMNS_SHOWN])[:200] or "none"
            [close] = difflib.get_close_matches(each, names, n=1) or ["COLUMN"]
            raise ValueError(f"no field {each!r}; it has {has}; map it: --columns {name}={close}")
    if isinstance(column, str):
        return row.get(column)
    return [row[each] for each in several]


def _answer(own: OwnDataset, value: Json, choices: Sequence[str]) -> str:
    """Return the gold answer by the dataset's rule: for choices the letter of the right option."""
    if isinstance(value, list):
        raise ValueError(
            f"{_column(own, 'answer')!r} is a list, not a text or a number; parts that are all required go into "
            "answers too, further right answers into alternatives"
        )
    answer = _text(own, "answer", value).strip()
    if not answer:
        raise ValueError("the answer is empty")
    if own.answer_rule == "hashes":
        _, mark, answer = (part.strip() for part in answer.rpartition("####"))
        if not (mark and answer):
            raise ValueError("no answer behind #### in the solution")
        answer = answer.replace(",", "")
    elif own.answer_rule == "boxed":
        boxed = [box for box in benchmarks.boxes(answer) if box.strip()]
        if not boxed:
            raise ValueError("no \\boxed in the solution")
        answer = boxed[-1].strip()
    elif own.answer_rule == "integer":
        answer = _integer(answer)
    if len(answer) > MAX_ANSWER_CHARACTERS:
        rules = (
            "; for a solution, answer_rule in a TOML file may be hashes or boxed" if own.answer_rule == "text" else ""
        )
        raise ValueError(f"the answer has {len(answer):,} characters; at most {MAX_ANSWER_CHARACTERS:,}{rules}")
    if choices or own.kind == "choice":
        return _letter(own, answer, choices)
    if own.answer_rule.startswith("index"):
        raise ValueError(f"answer_rule {own.answer_rule}, but the row has no choices")
    return answer


def _integer(answer: str) -> str:
    text = answer.strip("$ ").replace(",", "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer() or abs(number) > 1e15:
        raise ValueError(f"the answer {answer[:60]!r} is not an integer")
    return str(int(number))


def _letter(own: OwnDataset, answer: str, choices: Sequence[str]) -> str:
    """Return the letter of the right option, which the answer names by letter, index or text."""
    letters = LETTERS[: len(choices)]
    if not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"{len(choices)} choices; there must be 2 to {len(LETTERS)}")
    if len(set(choices)) != len(choices):
        raise ValueError("two choices are the same")
    if own.answer_rule.startswith("index"):
        index = int(answer) - int(own.answer_rule[-1]) if answer.isascii() and answer.isdigit() else -1
        if not 0 <= index < len(choices):
            raise ValueError(f"the answer {answer[:60]!r} is not the index of one of {len(choices)} choices")
        return letters[index]
    named = {letters.index(answer)} if len(answer) == 1 and answer in letters else set[int]()
    named |= {index for index, choice in enumerate(choices) if choice.strip() == answer}
    if len(named) != 1:
        problem = "could be several options" if named else "is no option"
        rules = "; answer_rule in a TOML file may be index-from-0 or index-from-1" if answer.isdigit() else ""
        raise ValueError(f"the answer {answer[:60]!r} {problem}: give the letter ({letters}) or the text{rules}")
    return letters[named.pop()]


def _texts(own: OwnDataset, name: str, value: Json) -> tuple[str, ...]:
    """Return a list of texts; a CSV file has it as JSON."""
    if value is None or value == "":
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{_column(own, name)!r} is not a list in JSON") from error
    if isinstance(value, dict) and isinstance(value.get("text"), list):  # as ARC and its like have it on the hub
        value = value["text"]
    if not isinstance(value, list):
        raise ValueError(f"{_column(own, name)!r} is {_kind(value)}, not a list of texts")
    texts = tuple(_text(own, name, item).strip() for item in value)
    if not all(texts):
        raise ValueError(f"{name}: an item is empty")
    if sum(map(len, texts)) > MAX_PROBLEM_CHARACTERS:
        raise ValueError(f"{name}: more than {MAX_PROBLEM_CHARACTERS:,} characters")
    return texts


def _short(own: OwnDataset, name: str, value: Json, default: str) -> str:
    """Return a short printable text; `default` where there is none."""
    if value is None or value == "":
        return default
    text = _text(own, name, value)
    if len(text) > MAX_ID_CHARACTERS or not text.isprintable() or (name == "id" and not text.strip()):
        raise ValueError(f"the {name} is not a printable text of at most {MAX_ID_CHARACTERS} characters")
    return text


def _tolerance(value: Json) -> float | None:
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)  # type: ignore[arg-type] # a list or a table raises TypeError
    except (TypeError, ValueError):
        tolerance = -1.0
    if isinstance(value, bool) or not 0 <= tolerance < math.inf:
        raise ValueError("the tolerance is not a number of at least 0")
    return tolerance


def _text(own: OwnDataset, name: str, value: Json) -> str:
    """Return a text, or a number as text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, str) and not is_number:
        raise ValueError(f"{_column(own, name)!r} is {_kind(value)}, not a text or a number")
    return _clean(name, str(value))


def _clean(name: str, text: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"the {name} has a NUL character or half of a surrogate pair")
    return text


def _kind(value: Json) -> str:
    """Return what a value is, in words."""
    if value is None:
        return "empty"
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    return f"of the type {type(value).__name__}"
