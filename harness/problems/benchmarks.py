"""Load the built-in benchmarks from JSON Lines files, the package (demo), or the Hugging Face Hub.

Benchmarks are declared in `harness/data/benchmarks.toml`. Hub rows are converted to the record format of the files
(`problem`, `answer` and optionally `answers`, `alternatives`, `choices`, `unit`, `tolerance`, `level`, `subject`,
`family`). `Description.problem` converts a record to a problem.

A subset of a benchmark is a text file in `data/selections`: one text hash per line, comments after `#`. Row numbers
would not work, because copies of a benchmark differ in row order.
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
"""Pairs of location (such as `line 3`) and row."""

# MATH solutions with several boxes usually repeat one answer or box an intermediate step. In eight solutions, all boxes
# together are the answer; in four, any box is correct. The hash of the problem's text identifies these solutions.
_ALL_BOXES = frozenset({
    "847b92c6a1d55221", "0240db7ffa8c3cd8", "c9b61debeac1e634", "681d4a2604471ef5",
    "7e91dcaf7b7d0512", "e6b9ba681655042e", "e55543f8451c83a7", "6a16dc51efa7d2d7",
})  # fmt: skip
_ANY_BOX = frozenset({"e42e4259255b85bb", "a7cf9617c20c7514", "29421c88ce2a48cf", "9fe4fe4f46e6a776"})


def math_record(row: Row) -> Record:
    """Convert a row; the answer is the last `\\boxed` of the solution, except in the twelve solutions above."""
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
    """Convert a row; `final_answer` is a list with one string of comma-separated answers."""
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
    """Convert a row, keeping the correct option first; the loader shuffles the options later."""
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
"""Conversions for benchmarks whose Hub rows need more than a column mapping."""

SELECTIONS = resources.files("harness") / "data" / "selections"


def text_hash(text: str) -> str:
    """Return a hash (16 hex digits) of a problem text with collapsed whitespace."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def listed(name: str) -> list[str]:
    """Return the text hashes of a selection in file order."""
    lines = (SELECTIONS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def select(problems: Sequence[Problem], limit: int | None = None, ids: str | None = None) -> list[Problem]:
    """Return the first `limit` of the problems selected by `ids` ("3,7,10-15", or problem ids), in dataset order.

    A number is the row at the end of a problem id, or the index if no id ends in a number. Raises ValueError for
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
            found = f"unknown problem {unknown[0][:100]!r} ({len(problems)} problems)"
            raise ValueError(f"{label}: {found}; {forms}, such as {examples}")
        chosen.update(places[name] for name in names)
    if not chosen:
        raise ValueError(f"{label}: selects no problems; {forms}")
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
"""Dataset hashes of JSON Lines files from known upstream commits: the authors' files for GSM8K and MATH, the files of
Qwen2.5-Math's evaluation for the others. A Hub copy in a different row order has a different hash."""


class BadDataset(ValueError):
    """The source has an invalid row or an unexpected number of problems."""


class Benchmark(Description):
    """A built-in benchmark."""

    name: str
    title: str
    kind: Kind = "math"
    count: int
    """Number of problems in a complete copy."""
    hub_count: int | None = None
    """Number of problems in the Hub's copy if it differs from `count`."""
    part_of: str | None = None
    """Name of the benchmark of which this is a subset, selected by `data/selections`."""
    spans: tuple[tuple[str, int, int], ...] = ()
    """Row ranges that form this benchmark: dataset name, first row, end row (exclusive)."""
    training: bool = False
    """Whether it is training data; metrics on it must not be reported as benchmark results."""


DATASETS = {
    name: Benchmark.model_validate({"name": name, **said}, strict=False)
    for name, said in tomllib.loads((BUNDLED / "benchmarks.toml").read_text(encoding="utf-8")).items()
}


def load(name: str, data_dir: Path | None = None, seed: int = 0) -> list[Problem]:
    """Return the problems of a benchmark in order; `seed` sets the order of options in problems of kind `choice`."""
    return load_recorded(name, data_dir, seed).problems


def load_recorded(name: str, data_dir: Path | None = None, seed: int = 0) -> Dataset:
    """Return the problems of a benchmark with their source, such as `bundled` or `hub <id>@<commit>`.

    Searched in order: `<name>.jsonl` in `data_dir` (if None, in $HARNESS_DATA_DIR), the bundled file, the benchmarks of
    which this is a part or a union, the Hub. Raises ValueError for an unknown name, DatasetNotFound and BadDataset.
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
    """Yield the objects of a JSON Lines file with their locations, such as `line 3`. Raises BadDataset.

    Lines end only at "\\n", because problem texts contain U+2028.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line.decode("utf-8-sig")) if line.strip() else None
                if row is not None and not isinstance(row, dict):
                    raise ValueError('not a JSON object: each line must be {"field": value, ...}')
            except RecursionError as error:
                raise BadDataset(f"{path}, line {number}: JSON nested too deeply") from error
            except ValueError as error:
                raise BadDataset(f"{path}, line {number}: {error}") from error
            if row is not None:
                yield f"line {number}", row


def problems_of(
    described: Description, rows: Rows, make: Callable[[Row, int], Problem], where: str, *, once: bool = False
) -> list[Problem]:
    """Convert rows to problems with `make(row, number)`.

    `where`: source of the rows, for messages. `once`: whether to reject duplicate problems (some benchmarks contain
    duplicates). Raises BadDataset for an invalid row, or if the number of problems differs from `described.count`.
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
        raise BadDataset(f"{where}: {len(problems)} problems, expected {described.count} for {described.name}")
    return problems


def read_file(benchmark: Benchmark, path: Traversable, seed: int = 0) -> list[Problem]:
    """Read records from a JSON Lines file. Raises BadDataset."""
    rule = "letter" if benchmark.kind == "choice" else "text"
    plain = benchmark.model_copy(update={"answer_rule": rule})
    return problems_of(plain, json_lines(path), lambda row, n: plain.problem(row, plain.name, n, seed), str(path))


def from_hub_rows(benchmark: Benchmark, rows: Sequence[Row], seed: int = 0) -> list[Problem]:
    """Convert Hub rows. Rows without a gold answer are kept, and later graded `bad_gold`. Raises BadDataset."""

    def mapped(row: Row) -> Record:
        return {field: row[str(column)] for field, column in benchmark.columns.items()}

    convert = _RECORDS.get(benchmark.name, mapped)

    def problem(row: Row, number: int) -> Problem:
        try:
            record = convert(row)
        except KeyError as error:
            raise ValueError(f"no column {error}; found: {', '.join(row)}") from error
        return benchmark.problem(record, benchmark.name, number, seed, may_lack_gold=True)

    of_hub = benchmark.model_copy(update={"count": benchmark.hub_count or benchmark.count})
    numbered = ((f"row {number}", row) for number, row in enumerate(rows))
    return problems_of(of_hub, numbered, problem, f"{benchmark.hub} on the Hub")


def _part(benchmark: Benchmark, whole: Dataset) -> tuple[list[Problem], str]:
    """Return the problems of a selection, in its order and with unchanged ids so runs can be paired.

    No more problems may be missing than are missing from the parent benchmark. Raises BadDataset.
    """
    found = {text_hash(problem.text): problem for problem in whole.problems}
    problems = [replace(found[key], dataset=benchmark.name) for key in listed(benchmark.name) if key in found]
    lacking = DATASETS[whole.name].count - len(whole.problems)
    if len(problems) < benchmark.count - lacking:
        number = f"{len(problems)} of the {benchmark.count} problems of {benchmark.name}"
        raise BadDataset(f"{whole.source}: this copy of {whole.name} has only {number} (matched by text)")
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
    reason = "not on the Hub"
    if benchmark.hub is not None:
        source = HubSource.parsed(benchmark.hub, benchmark.split or "test")
        try:
            rows, commit, _ = hub.read(source)
            return from_hub_rows(benchmark, rows, seed), f"hub {source.hub_id}@{commit}"
        except DatasetNotFound as error:
            reason = str(error)
    raise DatasetNotFound(
        f"{benchmark.name}: not found ({'; '.join([*tried, reason])}). Run once with Hub access to fill the cache, "
        f"set --data-dir or {DATA_DIR_VARIABLE} to a folder with {benchmark.name}.jsonl, or use --dataset demo"
    )
