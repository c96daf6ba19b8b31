"""The benchmarks by name, and their problems: from JSON Lines files, from the package (demo), or from the hub.

The table is `harness/data/benchmarks.toml`. Rows of the hub are first converted to the record that files have
(`problem`, `answer` and optionally `answers`, `alternatives`, `choices`, `unit`, `tolerance`, `level`, `subject`,
`family`), and `Description.problem` makes a problem of a record.

A part of a benchmark is a list of its problems in a text file of `data/selections`, one a line and comments behind `#`,
by the hashes of their texts: copies differ in the order of their rows, so a list of rows would select others elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from harness.problems import hub
from harness.problems.columns import Description, answer_parts, boxes
from harness.problems.hub import DatasetNotFound as DatasetNotFound
from harness.problems.hub import HubSource, Row
from harness.problems.problem import Dataset, Kind, Problem

Record = dict[str, Any]
Rows = Iterator[tuple[str, Row]]
"""Each row with its place in words, such as `line 3`."""

# MATH solutions with several boxes usually repeat one answer or box an intermediate step. In eight all boxes together
# are the answer and in four any one is right. Named by their texts, as copies differ in row order.
_ALL_BOXES = frozenset({
    "847b92c6a1d55221", "0240db7ffa8c3cd8", "c9b61debeac1e634", "681d4a2604471ef5",
    "7e91dcaf7b7d0512", "e6b9ba681655042e", "e55543f8451c83a7", "6a16dc51efa7d2d7",
})  # fmt: skip
_ANY_BOX = frozenset({"e42e4259255b85bb", "a7cf9617c20c7514", "29421c88ce2a48cf", "9fe4fe4f46e6a776"})


def math_record(row: Row) -> Record:
    """Convert a row; the answer is the last `\\boxed` of the solution, except in the twelve solutions named above."""
    boxed = boxes(row["solution"])
    if not boxed:
        raise ValueError("no \\boxed in the solution")
    record = {
        "problem": row["problem"],
        "answer": boxed[-1],
        "level": str(row["level"]).removeprefix("Level "),
        "subject": row["type"],
    }
    found = text_hash(row["problem"])
    if found in _ALL_BOXES:
        record |= {"answer": ",".join(boxed), "answers": boxed}
    elif found in _ANY_BOX:
        record["alternatives"] = boxed
    return record


def gaokao_record(row: Row) -> Record:
    """Convert a row and repair known defects: answers inside the problem, and `$145$solution:`."""
    problem, answer = row["question"], str(row["answer"] or "").strip().removesuffix("solution:")
    leak = re.search(r"\s*\banswers?:\s*(\S.*?)\s*$", problem, re.IGNORECASE)
    if not answer and leak:
        problem, answer = problem[: leak.start()], leak[1]
    return {"problem": problem, "answer": answer}


def olympiadbench_record(row: Row) -> Record:
    """Convert a row; `final_answer` is a list of one text, in which several answers are separated by commas."""
    answer = ",".join(row["final_answer"])
    record = {
        "problem": f"{row['context']}\n{row['question']}" if row.get("context") else row["question"],
        "answer": answer,
        "subject": row.get("subfield"),
        "unit": row.get("unit"),
        "tolerance": row.get("error") or None,
    }
    parts = answer_parts(answer)
    if row.get("is_multiple_answer") and len(parts) > 1:
        record["answers"] = parts
    return record


def gpqa_record(row: Row) -> Record:
    """Convert a row with the right option first, as in the source; the loader shuffles the options."""
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    return {
        "problem": row["Question"].strip(),
        "choices": [str(row[column]).strip() for column in columns],
        "answer": "A",
        "subject": row.get("High-level domain"),
    }


_RECORDS: Mapping[str, Callable[[Row], Record]] = {
    "math": math_record, "gaokao2023en": gaokao_record, "olympiadbench": olympiadbench_record, "gpqa": gpqa_record
}  # fmt: skip
"""The benchmarks whose rows at the hub need more than a mapping of columns."""

SELECTIONS = resources.files("harness") / "data" / "selections"


def text_hash(text: str) -> str:
    """Return 16 hex digits over the text of a problem with its blanks collapsed."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def listed(name: str) -> list[str]:
    """Return the hashes of a selection in its order."""
    lines = (SELECTIONS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def select(problems: Sequence[Problem], limit: int | None = None, ids: str | None = None) -> list[Problem]:
    """Return the problems named by `ids` ("3,7,10-15", or ids), and of these the first `limit`, in their order.

    A number is the row at the end of a problem's id, or its place where no id ends in one. Raises ValueError for
    unknown problems.
    """
    if ids is None:
        return list(problems)[:limit]
    label, forms = f"--problems {ids[:100]}", "valid: rows (3), ranges (10-15) or ids"
    ends = [problem.id.rsplit("/", 1)[-1] for problem in problems]
    if not any(end.isdigit() for end in ends):
        ends = [str(place) for place in range(len(ends))]
    counts = Counter(ends)
    places = {end: place for place, end in enumerate(ends) if counts[end] == 1}
    places |= {problem.id: place for place, problem in enumerate(problems)}
    chosen: set[int] = set()
    for token in filter(None, map(str.strip, ids.split(","))):
        names = [token]
        if token not in places and (span := re.fullmatch(r"(\d+)-(\d+)", token)):
            first, last = int(span[1]), int(span[2])
            if not first <= last < first + 1_000_000:
                raise ValueError(f"{label}: not a range of problems: {token!r}; {forms}")
            names = [str(row) for row in range(first, last + 1)]
        if unknown := [name for name in names if name not in places]:
            examples = " or ".join(dict.fromkeys([next(iter(places)), [*places][-1]]))
            found = f"unknown problem {unknown[0][:100]!r} of {len(problems)}"
            raise ValueError(f"{label}: {found}; {forms}, such as {examples}")
        chosen.update(places[name] for name in names)
    if not chosen:
        raise ValueError(f"{label}: names no problem; {forms}")
    return [problems[place] for place in sorted(chosen)][:limit]


DATA_DIR_VARIABLE = "HARNESS_DATA_DIR"
BUNDLED = resources.files("harness") / "data"
SCOT_PROGRAM = "gsm8k-scot"


KNOWN_HASHES = {
    "gsm8k": "ffbf5c954908d37f", "gsm8k-train": "0aa7b1a709f11e33", "gsm8k-scot": "f2883fa5230c82ca",
    "math": "04ddf179ec7ef3de", "math-scot": "85d88a7db63e96dd", "math500": "be72afb0ea37f83c",
    "gaokao2023en": "3a99490cfb6252af", "college_math": "8fa9de6bd67def51", "olympiadbench": "106c020cd510a51e",
    "olympiadbench-scot": "59aae0963716c116", "amc23": "82c7dfde9aa67c83", "aime24": "6a04042f3aa77476",
    "demo": "94fed6ccf3080869", "demo-train": "e6bf2b9ca3a90417",
}  # fmt: skip
"""Hashes of whole datasets, from JSON Lines files of known upstream commits: the authors' own files for GSM8K and MATH,
those of Qwen2.5-Math's evaluation for the others. A hub copy in another row order has another hash."""


class BadDataset(ValueError):
    """A source is not what the dataset should be: an invalid row, or another number of problems."""


class Benchmark(Description):
    """One benchmark: what it is, and how many problems it must have."""

    name: str
    title: str
    kind: Kind = "math"
    count: int
    """Number of problems in a complete copy."""
    hub_count: int | None = None
    """Number of problems in the hub's copy if it differs from `count`."""
    part_of: str | None = None
    """Name of the benchmark whose problems these are: those that `data/selections` lists, by their contents."""
    spans: tuple[tuple[str, int, int], ...] = ()
    """The rows that it is put together from: name of a dataset, first row, and the row behind the last."""
    training: bool = False
    """Whether it is training data rather than a benchmark; numbers of a run on it are not results."""


DATASETS = {
    name: Benchmark.model_validate({"name": name, **said}, strict=False)
    for name, said in tomllib.loads((BUNDLED / "benchmarks.toml").read_text(encoding="utf-8")).items()
}


def load(name: str, data_dir: Path | None = None, seed: int = 0) -> list[Problem]:
    """Return the problems of a benchmark in its own order; `seed` decides the order of options of kind `choice`."""
    return load_recorded(name, data_dir, seed).problems


def load_recorded(name: str, data_dir: Path | None = None, seed: int = 0) -> Dataset:
    """Return the problems of a benchmark with their source: `file <path>`, `bundled`, or `hub <id>@<commit>`.

    Sources in order: `<name>.jsonl` in `data_dir` (otherwise in $HARNESS_DATA_DIR), the bundled file, the whole that it
    is a part of, the hub. Raises ValueError for an unknown name, DatasetNotFound and BadDataset.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; valid: {', '.join(DATASETS)}")
    benchmark = DATASETS[name]
    named = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    file = Path(named) / f"{name}.jsonl" if named else None
    if file is not None and file.is_file():
        problems, source = read_file(benchmark, file, seed), f"file {file.resolve()}"
    elif (bundled := BUNDLED / f"{name}.jsonl").is_file():
        problems, source = read_file(benchmark, bundled, seed), "bundled"
    elif benchmark.spans:
        problems, source = _joined(benchmark, data_dir, seed)
    elif benchmark.part_of is not None:
        problems, source = _part(benchmark, load_recorded(benchmark.part_of, data_dir, seed))
    else:
        problems, source = _from_hub(benchmark, seed, [] if file is None else [f"no file {file}"])
    return Dataset(name, problems, source, is_training=benchmark.training)


def json_lines(path: Traversable) -> Iterator[tuple[str, Row]]:
    """Yield the objects of a JSON Lines file, each with its place, such as `line 3`. Raises BadDataset.

    Lines end at "\\n" only: problem texts contain U+2028.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else None
                if row is not None and not isinstance(row, dict):
                    raise ValueError("not a JSON object; a line is one, with its fields in braces")
            except RecursionError as error:
                raise BadDataset(f"{path}, line {number}: JSON nested too deeply") from error
            except ValueError as error:
                raise BadDataset(f"{path}, line {number}: {error}") from error
            if row is not None:
                yield f"line {number}", row


def problems_of(
    described: Description, rows: Rows, make: Callable[[Row, int], Problem], where: str, *, once: bool = False
) -> list[Problem]:
    """Return the problems that `make` makes of rows and their numbers. Raises BadDataset with the place of a wrong one.

    `where`: what has the rows, for the message. `once`: no problem may occur twice, as some do in benchmarks. There
    must be as many problems as `described.count`, if that is not None.
    """
    problems: list[Problem] = []
    seen: dict[object, str] = {}
    for place, row in rows:
        try:
            problem = make(row, len(problems))
            content = (text_hash(problem.text), tuple(sorted(problem.choices))) if once else None
            for key, name in ((problem.id, "id"), (content, "problem")):
                if key is not None and seen.setdefault(key, place) != place:
                    raise ValueError(f"the same {name} as {seen[key]}")
        except ValueError as error:
            raise BadDataset(f"{where}, {place}: {error}") from error
        problems.append(problem)
    if described.count not in (None, len(problems)):
        raise BadDataset(f"{where}: {len(problems)} problems, {described.name} should have {described.count}")
    return problems


def read_file(benchmark: Benchmark, path: Traversable, seed: int = 0) -> list[Problem]:
    """Read records from a JSON Lines file. Raises BadDataset."""
    rule = "letter" if benchmark.kind == "choice" else "text"
    plain = benchmark.model_copy(update={"answer_rule": rule})
    return problems_of(plain, json_lines(path), lambda row, n: plain.problem(row, plain.name, n, seed), str(path))


def from_hub_rows(benchmark: Benchmark, rows: Sequence[Row], seed: int = 0) -> list[Problem]:
    """Convert rows with the hub's columns. A row without a gold answer is kept and graded `bad_gold`.

    Raises BadDataset.
    """

    def mapped(row: Row) -> Record:
        return {field: row[str(column)] for field, column in benchmark.columns.items()}

    convert = _RECORDS.get(benchmark.name, mapped)

    def problem(row: Row, number: int) -> Problem:
        try:
            record = convert(row)
        except KeyError as error:
            raise ValueError(f"no column {error}; it has {', '.join(row)}") from error
        return benchmark.problem(record, benchmark.name, number, seed, may_lack_gold=True)

    of_hub = benchmark.model_copy(update={"count": benchmark.hub_count or benchmark.count})
    numbered = ((f"row {number}", row) for number, row in enumerate(rows))
    return problems_of(of_hub, numbered, problem, f"{benchmark.hub} on the hub")


def _part(benchmark: Benchmark, whole: Dataset) -> tuple[list[Problem], str]:
    """Return the problems that the selection lists, in its order; they keep their ids, by which runs can be paired.

    It may lack as many as the copy of the whole does. Raises BadDataset.
    """
    found = {text_hash(problem.text): problem for problem in whole.problems}
    problems = [replace(found[key], dataset=benchmark.name) for key in listed(benchmark.name) if key in found]
    lacking = DATASETS[whole.name].count - len(whole.problems)
    if len(problems) < benchmark.count - lacking:
        number = f"{len(problems)} of the {benchmark.count} problems of {benchmark.name}"
        raise BadDataset(f"{whole.source}: only {number} are in this copy of {whole.name}, by their texts")
    return problems, f"part of {whole.source}"


def _joined(benchmark: Benchmark, data_dir: Path | None, seed: int) -> tuple[list[Problem], str]:
    problems: list[Problem] = []
    sources = []
    for name, first, end in benchmark.spans:
        whole = load_recorded(name, data_dir, seed)
        problems += whole.problems[first:end]
        sources.append(f"rows {first} to {end - 1} of {whole.source}")
    numbered = [replace(p, id=f"{benchmark.name}/{i}", dataset=benchmark.name) for i, p in enumerate(problems)]
    return numbered, " and ".join(sources)


def _from_hub(benchmark: Benchmark, seed: int, tried: Sequence[str]) -> tuple[list[Problem], str]:
    """Return the problems of the hub's rows and their source. Raises DatasetNotFound."""
    reason = "it is not on the hub"
    if benchmark.hub is not None:
        source = HubSource.parsed(benchmark.hub, benchmark.split or "test")
        try:
            rows, commit, _ = hub.read(source)
            return from_hub_rows(benchmark, rows, seed), f"hub {source.hub_id}@{commit}"
        except DatasetNotFound as error:
            reason = str(error)
    raise DatasetNotFound(
        f"{benchmark.name}: not found ({'; '.join([*tried, reason])}). Three ways: run once with access to the hub ("
        f"its cache is used afterwards), give --data-dir or {DATA_DIR_VARIABLE} with {benchmark.name}.jsonl, "
        "or use the bundled demo"
    )
