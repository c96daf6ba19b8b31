"""The benchmarks by name, and their problems: from JSON Lines files, from the package (demo), or from the hub.

Every source is first converted to the same record (`problem`, `answer` and optionally `answers`, `alternatives`,
`choices`, `unit`, `tolerance`, `level`, `subject`, `family`), and one function makes a `Problem` of a record.

Revisions of hub datasets are full commit ids that several independent public repositories pin. Where none could be
confirmed, the revision is None: the current state is read, and `Loaded.source` records its commit.

A part of a benchmark is a list of its problems in a text file of `data/selections`, one a line and comments behind `#`,
by the hashes of their texts: copies differ in the order of their rows, so a list of rows would select others elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from harness.problems import hub
from harness.problems.columns import (
    Fields,
    answer_parts,
    as_integer,
    behind_hashes,
    boxes,
    shuffled_choices,
)
from harness.problems.hub import Row
from harness.problems.problem import Kind, Problem

Record = dict[str, Any]

# MATH solutions with several boxes usually repeat one answer or box an intermediate step. In eight all boxes together
# are the answer and in four any one is right. Named by their texts, as copies differ in row order.
_ALL_BOXES = frozenset({
    "847b92c6a1d55221", "0240db7ffa8c3cd8", "c9b61debeac1e634", "681d4a2604471ef5",
    "7e91dcaf7b7d0512", "e6b9ba681655042e", "e55543f8451c83a7", "6a16dc51efa7d2d7",
})  # fmt: skip
_ANY_BOX = frozenset({"e42e4259255b85bb", "a7cf9617c20c7514", "29421c88ce2a48cf", "9fe4fe4f46e6a776"})


def gsm8k_record(row: Row) -> Record:
    """Convert a row, whose answer is a solution."""
    return {"problem": row["question"], "answer": behind_hashes(row["answer"])}


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


def math500_record(row: Row) -> Record:
    """Convert a row, which has a column for each field."""
    return {field: row[field] for field in ("problem", "answer", "level", "subject")}


def gaokao_record(row: Row) -> Record:
    """Convert a row and repair known defects: answers inside the problem, and `$145$solution:`."""
    problem, answer = row["question"], str(row["answer"] or "").strip().removesuffix("solution:")
    leak = re.search(r"\s*\banswers?:\s*(\S.*?)\s*$", problem, re.IGNORECASE)
    if not answer and leak:
        problem, answer = problem[: leak.start()], leak[1]
    return {"problem": problem, "answer": answer}


def college_math_record(row: Row) -> Record:
    """Convert a row; answers are kept unchanged, with their dollar signs."""
    return {"problem": row["question"], "answer": row["answer"], "subject": row.get("data_topic")}


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


def integer_answer_record(row: Row) -> Record:
    """Convert a row of AIME or AMC; 027, 27.0 and 27 are the same answer."""
    return {
        "problem": row["problem"] if "problem" in row else row["question"],
        "answer": as_integer(str(row["answer"])),
    }


def gpqa_record(row: Row) -> Record:
    """Convert a row with the right option first, as in the source; the loader shuffles the options."""
    columns = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    return {
        "problem": row["Question"].strip(),
        "choices": [str(row[column]).strip() for column in columns],
        "answer": "A",
        "subject": row.get("High-level domain"),
    }


SELECTIONS = resources.files("harness") / "data" / "selections"


def text_hash(text: str) -> str:
    """Return 16 hex digits over the text of a problem with its blanks collapsed."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def listed(name: str) -> list[str]:
    """Return the hashes of a selection in its order."""
    lines = (SELECTIONS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def part(name: str, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that the selection lists, in its order; those that the copy lacks are left out.

    They keep their ids, so that runs on the whole benchmark can be paired with runs on the part.
    """
    found = {text_hash(problem.text): problem for problem in problems}
    return [replace(found[key], dataset=name) for key in listed(name) if key in found]


_FORMS = "valid: rows (3), ranges (10-15) or ids"


def select(problems: Sequence[Problem], limit: int | None = None, ids: str | None = None) -> list[Problem]:
    """Return the problems named by `ids` ("3,7,10-15", or ids), and of these the first `limit`, in their order.

    A number is the row at the end of a problem's id, or its place where no id ends in one. Raises ValueError for
    unknown problems.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the limit must be at least 1, not {limit}")
    chosen = list(problems)
    if ids is not None:
        places = _numbered(problems) | {p.id: i for i, p in enumerate(problems)}
        tokens = [token.strip() for token in ids.split(",") if token.strip()]
        try:
            selected = {place for token in tokens for place in _places(token, places)}
        except ValueError as error:
            raise ValueError(f"--problems {ids[:100]}: {error}") from error
        if not selected:
            raise ValueError(f"--problems {ids[:100]}: names no problem; {_FORMS}")
        chosen = [problems[i] for i in sorted(selected)]
    return chosen[:limit]


def _numbered(problems: Sequence[Problem]) -> dict[str, int]:
    """Return the places of the problems by the ends of their ids, without ends that several have."""
    ends = [problem.id.rsplit("/", 1)[-1] for problem in problems]
    counts = Counter(ends)
    if not any(end.isdigit() for end in ends):
        return {str(place): place for place in range(len(ends))}
    return {end: place for place, end in enumerate(ends) if counts[end] == 1}


def _places(token: str, places: Mapping[str, int]) -> Iterator[int]:
    span = re.fullmatch(r"(\d+)-(\d+)", token)
    names = [token]
    if token not in places and span:
        first, last = int(span[1]), int(span[2])
        if not first <= last < first + 1_000_000:
            raise ValueError(f"not a range of problems: {token!r}; {_FORMS}")
        names = [str(row) for row in range(first, last + 1)]
    for name in names:
        if name not in places:
            raise ValueError(
                f"unknown problem {name[:100]!r} of {len(set(places.values()))}; {_FORMS}, such as "
                + " or ".join(dict.fromkeys([next(iter(places)), [*places][-1]]))
            )
        yield places[name]


DATA_DIR_VARIABLE = "HARNESS_DATA_DIR"
BUNDLED = resources.files("harness") / "data"
SCOT_PROGRAM = "gsm8k-scot"


class DatasetNotFound(LookupError):
    """The benchmark is in none of the three places; the message names them and the remedies in one line."""


class BadDataset(ValueError):
    """A source is not what the benchmark should be: an invalid line, or another number of problems."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: its source, and how many problems it must have."""

    name: str
    title: str
    count: int
    """Number of problems in a complete copy."""
    hub_id: str | None = None
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    """Full commit id of the hub repository; None where none could be confirmed."""
    hub_count: int | None = None
    """Number of problems in the hub's copy if it differs from `count`."""
    kind: Kind = "math"
    record: Callable[[Row], Record] = dict
    """Maps the hub's columns to a record."""
    part_of: str | None = None
    """Name of the benchmark whose problems these are: those that `data/selections` lists, by their contents."""
    spans: tuple[tuple[str, int, int], ...] = ()
    """The rows that it is put together from: name of a dataset, first row, and the row behind the last."""
    training: bool = False
    """Whether it is training data rather than a benchmark; numbers of a run on it are not results."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Problems and their source."""

    problems: list[Problem]
    source: str
    """For the manifest: `file <path>`, `bundled`, or `hub <id>@<commit> <fingerprint>`."""


_TABLE = (
    # Cobbe et al. 2021, arXiv 2110.14168.
    Benchmark("gsm8k", "GSM8K test", 1319, "openai/gsm8k", "main", "test",
              "740312add88f781978c0658806c59bc2815b9866", record=gsm8k_record),
    Benchmark("gsm8k-train", "GSM8K train (training data, no benchmark)", 7473, "openai/gsm8k", "main", "train",
              "740312add88f781978c0658806c59bc2815b9866", record=gsm8k_record, training=True),
    # Test questions that the authors of SCoT train on: harness.training.training_examples asks before it takes them.
    Benchmark(SCOT_PROGRAM, "GSM8K test 500 to 999, then train 0 to 999: what SCoT's program trains on", 1500,
              spans=(("gsm8k", 500, 1000), ("gsm8k-train", 0, 1000)), training=True),
    # Hendrycks et al. 2021, arXiv 2103.03874; the hub's row order is its own, so row numbers differ from ToRA's file.
    Benchmark("math", "MATH test", 5000, "DigitalLearningGmbH/MATH-lighteval", "default", "test",
              "0530c78699ea5e8eb5530600900e1f328b48acad", record=math_record),
    Benchmark("math-scot", "MATH: the 500 problems of SCoT's authors (not MATH-500)", 500, part_of="math"),
    # Lightman et al. 2023, arXiv 2305.20050.
    Benchmark("math500", "MATH-500", 500, "HuggingFaceH4/MATH-500", None, "test",
              "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", record=math500_record),
    # MARIO, arXiv 2401.08190. No revision could be confirmed.
    Benchmark("gaokao2023en", "GaoKao-En-2023", 385, "MARIO-Math-Reasoning/Gaokao2023-Math-En", None, "train",
              record=gaokao_record),
    # MathScale, arXiv 2403.02884. No canonical hub copy and no revision; this one has the columns of Qwen's file.
    Benchmark("college_math", "CollegeMath", 2818, "di-zhang-fdu/College_Math_Test", None, "test",
              record=college_math_record),
    # He et al. 2024, arXiv 2402.14008; English, text only, open-ended. Qwen's file has one row more than the hub.
    Benchmark("olympiadbench", "OlympiadBench (OE_TO_maths_en_COMP)", 675, "Hothan/OlympiadBench",
              "OE_TO_maths_en_COMP", "train", "91184b52131e7fc9455fef848035173aea8cc01a", hub_count=674,
              record=olympiadbench_record),
    Benchmark("olympiadbench-scot", "OlympiadBench: the 500 problems of SCoT's authors", 500, part_of="olympiadbench"),
    Benchmark("amc23", "AMC 2023", 40, "math-ai/amc23", None, "test",
              "80815d37005feb82cd7f8fbc6901d5d3eff43057", record=integer_answer_record),
    Benchmark("aime24", "AIME 2024", 30, "HuggingFaceH4/aime_2024", None, "train",
              "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", record=integer_answer_record),
    # math-ai/aime25 has lost backslashes in three problems, so MathArena's copy; no revision could be confirmed.
    Benchmark("aime25", "AIME 2025", 30, "MathArena/aime_2025", None, "train", record=integer_answer_record),
    # Rein et al. 2023, arXiv 2311.12022. Gated: the user's own access. Copies in plain text pair wrong options.
    Benchmark("gpqa", "GPQA-Diamond", 198, "Idavidrein/gpqa", "gpqa_diamond", "train",
              "633f5ee89ab8ad4522a9f850766b73f62147ffdd", kind="choice", record=gpqa_record),
    Benchmark("demo", "Demo: 40 stories that the bundled pair never saw", 40),
    Benchmark("demo-train", "Demo: 1,000 more stories (training data, no benchmark)", 1000, split="train",
              training=True),
)  # fmt: skip
DATASETS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _TABLE}


def load(name: str, data_dir: Path | None = None, seed: int = 0) -> list[Problem]:
    """Return the problems of a benchmark in its own order; `seed` decides the order of options of kind `choice`."""
    return load_recorded(name, data_dir, seed).problems


def load_recorded(name: str, data_dir: Path | None = None, seed: int = 0) -> Loaded:
    """Return the problems of a benchmark with their source.

    Sources in order: `<name>.jsonl` in `data_dir` (otherwise in $HARNESS_DATA_DIR), the bundled file, the whole that it
    is a part of, the hub. Raises ValueError for an unknown name, DatasetNotFound and BadDataset.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; valid: {', '.join(DATASETS)}")
    benchmark = DATASETS[name]
    tried = []
    folder = data_dir or (Path(os.environ[DATA_DIR_VARIABLE]) if os.environ.get(DATA_DIR_VARIABLE) else None)
    if folder is not None:
        path = folder / f"{name}.jsonl"
        if path.is_file():
            return Loaded(read_file(benchmark, path, seed), f"file {path.resolve()}")
        tried.append(f"no file {path}")
    bundled = BUNDLED / f"{name}.jsonl"
    if bundled.is_file():
        return Loaded(read_file(benchmark, bundled, seed), "bundled")
    if benchmark.spans:
        return _joined(benchmark, data_dir, seed)
    if benchmark.part_of is not None:
        return _part(benchmark, load_recorded(benchmark.part_of, data_dir, seed))
    rows, source = _read_hub(benchmark, tried)
    return Loaded(from_hub_rows(benchmark, rows, seed), source)


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


def read_file(benchmark: Benchmark, path: Traversable, seed: int = 0) -> list[Problem]:
    """Read records from a JSON Lines file. Raises BadDataset."""
    problems: list[Problem] = []
    for place, record in json_lines(path):
        try:
            problem = to_problem(benchmark, len(problems), record, seed)
            if not problem.answer:
                raise ValueError("the answer is empty")
        except ValueError as error:
            raise BadDataset(f"{path}, {place}: {error}") from error
        problems.append(problem)
    return _checked(benchmark, problems, benchmark.count, str(path))


def from_hub_rows(benchmark: Benchmark, rows: Sequence[Row], seed: int = 0) -> list[Problem]:
    """Convert rows with the hub's columns. A row without a gold answer is kept and graded `bad_gold`.

    Raises BadDataset.
    """
    problems = []
    for index, row in enumerate(rows):
        try:
            problems.append(to_problem(benchmark, index, benchmark.record(row), seed))
        except KeyError as error:
            raise BadDataset(f"{benchmark.hub_id} row {index}: no column {error}; it has {', '.join(row)}") from error
        except ValueError as error:
            raise BadDataset(f"{benchmark.hub_id} row {index}: {error}") from error
    return _checked(benchmark, problems, benchmark.hub_count or benchmark.count, f"{benchmark.hub_id} on the hub")


def to_problem(benchmark: Benchmark, index: int, record: Row, seed: int) -> Problem:
    """Return a record as a Problem. Raises ValueError for an invalid one."""
    said = Fields.read(record)
    identity, answer, choices = said.id or f"{benchmark.name}/{index}", said.answer, said.choices
    if benchmark.kind == "choice":
        choices, answer = shuffled_choices(choices, answer, f"{seed}/{identity}")
    return said.as_problem(benchmark.name, benchmark.kind, identity, answer, choices)


def _part(benchmark: Benchmark, whole: Loaded) -> Loaded:
    """Return a part of a benchmark; it may lack as many problems as the copy of the whole does. Raises BadDataset."""
    assert benchmark.part_of is not None
    problems = part(benchmark.name, whole.problems)
    lacking = DATASETS[benchmark.part_of].count - len(whole.problems)
    if len(problems) < benchmark.count - lacking:
        found = f"{len(problems)} of the {benchmark.count} problems of {benchmark.name}"
        raise BadDataset(f"{whole.source}: only {found} are in this copy of {benchmark.part_of}, by their texts")
    return Loaded(problems, f"part of {whole.source}")


def _joined(benchmark: Benchmark, data_dir: Path | None, seed: int) -> Loaded:
    problems: list[Problem] = []
    sources = []
    for name, first, end in benchmark.spans:
        whole = load_recorded(name, data_dir, seed)
        problems += whole.problems[first:end]
        sources.append(f"rows {first} to {end - 1} of {whole.source}")
    numbered = [replace(p, id=f"{benchmark.name}/{i}", dataset=benchmark.name) for i, p in enumerate(problems)]
    source = " and ".join(sources)
    return Loaded(_checked(benchmark, numbered, benchmark.count, source), source)


def _checked(benchmark: Benchmark, problems: list[Problem], expected: int, where: str) -> list[Problem]:
    if len(problems) != expected:
        raise BadDataset(f"{where}: {len(problems)} problems, {benchmark.name} should have {expected}")
    if len({p.id for p in problems}) != len(problems):
        raise BadDataset(f"{where}: two problems have the same id")
    return problems


def _read_hub(benchmark: Benchmark, tried: Sequence[str]) -> tuple[list[Row], str]:
    """Return the hub's rows and their source. Raises DatasetNotFound."""
    reason = "it is not on the hub"
    if benchmark.hub_id is not None:
        try:
            read = hub.read(benchmark.hub_id, benchmark.config, benchmark.split, benchmark.revision)
            return read.rows, f"hub {benchmark.hub_id}@{read.commit} {read.fingerprint}"
        except hub.HubUnavailable as unavailable:
            reason = str(unavailable)
    raise DatasetNotFound(
        f"{benchmark.name}: not found ({'; '.join([*tried, reason])}). Three ways: run once with access to the hub ("
        f"its cache is used afterwards), give --data-dir or {DATA_DIR_VARIABLE} with {benchmark.name}.jsonl, "
        "or use the bundled demo"
    )
