"""The problems of an own dataset: rows of a file or of the hub, checked one by one.

A problem without an id of its own has `row/<row>`: whatever the file is called and wherever it lies, equal problems
have equal ids, and so runs on them can be paired.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from harness.problems import hub, hub_rows, own_rows
from harness.problems.benchmarks import LETTERS, BadDataset, DatasetNotFound, shuffled_choices
from harness.problems.own_dataset import FIELDS, REQUIRED, HubSource, OwnDataset
from harness.problems.problem import Problem
from harness.problems.selections import text_hash

MAX_PROBLEM_CHARACTERS = 1_000_000
MAX_ANSWER_CHARACTERS = 2_000
"""What the grader reads of an answer (grading.bounds)."""
MAX_ID_CHARACTERS = 200
_MOST_COLUMNS_SHOWN = 20
_PROBLEM, _OTHER_NAME = "problem", "question"
"""The field that many datasets have under another name, and that name."""


@dataclass(frozen=True, slots=True)
class OwnProblems:
    """Problems, and where they are from."""

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
    read = _read_hub(own.source) if isinstance(own.source, HubSource) else _read_file(own.source)
    where = f"{own.source.hub_id} on the hub" if isinstance(own.source, HubSource) else str(own.source)
    problems: list[Problem] = []
    seen: dict[object, str] = {}
    first = list(islice(read.rows, 1))
    own, found = _with_found_column(own, first[0][1] if first else {})
    for place, row in chain(first, read.rows):
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
    return OwnProblems(problems, read.source, own.columns, (*read.notices, *found, *_notices(own, problems)))


def _with_found_column(own: OwnDataset, row: Mapping[str, Any]) -> tuple[OwnDataset, tuple[str, ...]]:
    """Return the dataset with the column of its problems where the first row has that under its other usual name, and
    a note; nobody has to map `question`, and it is never taken where a column `problem` could be meant too.
    """
    if _PROBLEM in own.columns or _OTHER_NAME not in row or _OTHER_NAME in own.columns.values():
        return own, ()
    if _PROBLEM in row:
        note = f"{own.name}: has the columns {_PROBLEM} and {_OTHER_NAME}; {_PROBLEM} is the text of the problem"
        return own, (f"{note} (--columns {_PROBLEM}={_OTHER_NAME} for the other)",)
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


@dataclass(frozen=True, slots=True)
class _Read:
    rows: own_rows.Rows
    source: str
    notices: tuple[str, ...] = ()


def _read_file(path: Path) -> _Read:
    return _Read(own_rows.read(path), f"file {path.resolve()}")


def _read_hub(source: HubSource) -> _Read:
    """Return the rows of the commit that the revision names now, and the source with that commit."""
    part = "".join(f", {text}" for text in (source.config, source.split) if text)
    try:
        rows, commit, is_wanted = hub.read_pinned(source.hub_id, source.config, source.split, source.revision)
    except hub.HubUnavailable as unavailable:
        variable = hub.offline_by(for_datasets=True)
        remedy = f"; {variable} is set: run once without it where the hub answers, or give a file" if variable else ""
        raise DatasetNotFound(f"--dataset: {unavailable}{remedy}") from unavailable
    if len(rows) > own_rows.MAX_ROWS:
        raise BadDataset(f"{source.hub_id} on the hub: {len(rows):,} rows; at most {own_rows.MAX_ROWS:,} are read")
    notice = f"THE HUB CANNOT BE REACHED: {source.hub_id} is the newest commit in its cache, {commit}."
    numbered = ((f"row {index}", row) for index, row in enumerate(rows))
    return _Read(numbered, f"hub {source.hub_id}@{commit}{part}", () if is_wanted else (notice,))


def _problem(own: OwnDataset, row: Mapping[str, Any], index: int, seed: int) -> Problem:
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
        unit=_short(own, "unit", values["unit"], "") or None,
        tolerance=_tolerance(values["tolerance"]),
    )


def _column(own: OwnDataset, name: str) -> str | Sequence[str]:
    return own.columns.get(name, name)


def _value(own: OwnDataset, row: Mapping[str, Any], name: str) -> Any:
    """Return what a row says for a field; None where it says nothing."""
    column = _column(own, name)
    several = [column] if isinstance(column, str) else list(column)
    is_needed = name in REQUIRED or name in own.columns
    for each in several if is_needed else ():
        if each not in row:
            names = [str(key) for key in row]
            has = ", ".join(names[:_MOST_COLUMNS_SHOWN])[:200] or "none"
            [close] = difflib.get_close_matches(each, names, n=1) or ["COLUMN"]
            raise ValueError(f"no field {each!r}; it has {has}; map it, such as --columns {name}={close}")
    if isinstance(column, str):
        return row.get(column)
    return [row[each] for each in several]


def _answer(own: OwnDataset, value: Any, choices: Sequence[str]) -> str:
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
        boxed = [box for box in hub_rows.boxes(answer) if box.strip()]
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


def _texts(own: OwnDataset, name: str, value: Any) -> tuple[str, ...]:
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


def _short(own: OwnDataset, name: str, value: Any, default: str) -> str:
    """Return a short printable text; `default` where there is none."""
    if value is None or value == "":
        return default
    text = _text(own, name, value)
    if len(text) > MAX_ID_CHARACTERS or not text.isprintable() or (name == "id" and not text.strip()):
        raise ValueError(f"the {name} is not a printable text of at most {MAX_ID_CHARACTERS} characters")
    return text


def _tolerance(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)
    except (TypeError, ValueError):
        tolerance = -1.0
    if isinstance(value, bool) or not 0 <= tolerance < math.inf:
        raise ValueError("the tolerance is not a number of at least 0")
    return tolerance


def _text(own: OwnDataset, name: str, value: Any) -> str:
    """Return a text, or a number as text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, str) and not is_number:
        raise ValueError(f"{_column(own, name)!r} is {_kind(value)}, not a text or a number")
    return _clean(name, str(value))


def _clean(name: str, text: str) -> str:
    if "\0" in text:
        raise ValueError(f"the {name} has a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the {name} has half of a surrogate pair, which is no character") from error
    return text


def _kind(value: object) -> str:
    """Return what a value is, in words."""
    if value is None:
        return "empty"
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "a text" if isinstance(value, str) else names.get(type(value), type(value).__name__)
