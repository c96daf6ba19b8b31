"""Name → problems: from a folder of JSON Lines files, from the package (demo), or from the Hugging Face hub.

Every source is first turned into the same record (`problem`, `answer` and, where there is something to say, `answers`,
`alternatives`, `choices`, `unit`, `tolerance`, `level`, `subject`), and one function makes a `Problem` of a record.
The hub's columns are mapped in `harness.hub_rows`.

Revisions of hub data sets are full commit ids; each is used as a pin in several independent public repositories and was
taken from there. Where none could be confirmed the revision is None, the current state is read, and `Loaded.source`
holds the commit that it was.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from harness import hub_rows
from harness.problem import Kind, Problem

DATA_DIR_VARIABLE = "HARNESS_DATA_DIR"
BUNDLED = Path(__file__).parent / "data"
LETTERS = "ABCDEFGHIJ"


class DatasetNotFound(LookupError):
    """The benchmark is in none of the three places; the message says in one line what was tried and what helps."""


class BadDataset(ValueError):
    """A source was found and is not what the benchmark should be: a broken line, or another number of problems."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: where it comes from and how many problems it must have."""

    name: str
    title: str
    count: int
    """Problems that a complete copy has."""
    hub_id: str | None = None
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    """Full commit id of the hub repository; None where none could be confirmed."""
    hub_count: int | None = None
    """Problems in the hub's copy where they differ from `count`."""
    kind: Kind = "math"
    record: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Maps the hub's columns to a record."""
    training: bool = False
    """Data to train on, no benchmark: a run on it makes training data, and no number of it is a result."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Problems and where they were read."""

    problems: list[Problem]
    source: str
    """For the manifest: `file <path>`, `bundled`, or `hub <id>@<commit> <fingerprint>`."""


_TABLE = (
    # Cobbe et al. 2021, arXiv 2110.14168.
    Benchmark("gsm8k", "GSM8K test", 1319, "openai/gsm8k", "main", "test",
              "740312add88f781978c0658806c59bc2815b9866", record=hub_rows.gsm8k),
    Benchmark("gsm8k-train", "GSM8K train (training data, no benchmark)", 7473, "openai/gsm8k", "main", "train",
              "740312add88f781978c0658806c59bc2815b9866", record=hub_rows.gsm8k, training=True),
    # Hendrycks et al. 2021, arXiv 2103.03874; the hub's row order is its own, so row numbers differ from ToRA's file.
    Benchmark("math", "MATH test", 5000, "DigitalLearningGmbH/MATH-lighteval", "default", "test",
              "0530c78699ea5e8eb5530600900e1f328b48acad", record=hub_rows.math),
    # Lightman et al. 2023, arXiv 2305.20050.
    Benchmark("math500", "MATH-500", 500, "HuggingFaceH4/MATH-500", None, "test",
              "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", record=hub_rows.math500),
    # MARIO, arXiv 2401.08190. No revision could be confirmed.
    Benchmark("gaokao2023en", "GaoKao-En-2023", 385, "MARIO-Math-Reasoning/Gaokao2023-Math-En", None, "train",
              record=hub_rows.gaokao),
    # MathScale, arXiv 2403.02884. No canonical hub copy and no revision; this one has the columns of Qwen's file.
    Benchmark("college_math", "CollegeMath", 2818, "di-zhang-fdu/College_Math_Test", None, "test",
              record=hub_rows.college_math),
    # He et al. 2024, arXiv 2402.14008; English, text only, open-ended. Qwen's file has one row more than the hub.
    Benchmark("olympiadbench", "OlympiadBench (OE_TO_maths_en_COMP)", 675, "Hothan/OlympiadBench",
              "OE_TO_maths_en_COMP", "train", "91184b52131e7fc9455fef848035173aea8cc01a", hub_count=674,
              record=hub_rows.olympiadbench),
    Benchmark("amc23", "AMC 2023", 40, "math-ai/amc23", None, "test",
              "80815d37005feb82cd7f8fbc6901d5d3eff43057", record=hub_rows.integer_answer),
    Benchmark("aime24", "AIME 2024", 30, "HuggingFaceH4/aime_2024", None, "train",
              "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", record=hub_rows.integer_answer),
    # math-ai/aime25 has lost backslashes in three problems, so MathArena's copy; no revision could be confirmed.
    Benchmark("aime25", "AIME 2025", 30, "MathArena/aime_2025", None, "train", record=hub_rows.integer_answer),
    # Rein et al. 2023, arXiv 2311.12022. Gated: the user's own access. Copies in plain text pair wrong options.
    Benchmark("gpqa", "GPQA-Diamond", 198, "Idavidrein/gpqa", "gpqa_diamond", "train",
              "633f5ee89ab8ad4522a9f850766b73f62147ffdd", kind="choice", record=hub_rows.gpqa),
    Benchmark("demo", "Demo: 40 stories that the bundled pair never saw", 40),
    Benchmark("demo-train", "Demo: 1,000 more stories (training data, no benchmark)", 1000, split="train",
              training=True),
)  # fmt: skip
DATASETS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _TABLE}


def load(name: str, data_dir: Path | None = None, seed: int = 0) -> list[Problem]:
    """The problems of a benchmark in its own order; `seed` decides the order of the options of kind `choice`."""
    return load_recorded(name, data_dir, seed).problems


def load_recorded(name: str, data_dir: Path | None = None, seed: int = 0) -> Loaded:
    """Like `load`, and says where the problems were read.

    In this order: `<name>.jsonl` in `data_dir` (else in $HARNESS_DATA_DIR), the bundled file, the hub.
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
    rows, source = _read_hub(benchmark, tried)
    return Loaded(from_hub_rows(benchmark, rows, seed), source)


def read_file(benchmark: Benchmark, path: Path, seed: int = 0) -> list[Problem]:
    """Reads records from a JSON Lines file. Lines end at "\\n" only: problem texts hold U+2028."""
    problems: list[Problem] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            problem = to_problem(benchmark, len(problems), json.loads(line.decode()), seed)
            if not problem.answer:
                raise ValueError("the answer is empty")
        except ValueError as e:
            raise BadDataset(f"{path}, line {number}: {e}") from e
        problems.append(problem)
    return _checked(benchmark, problems, benchmark.count, str(path))


def from_hub_rows(benchmark: Benchmark, rows: Sequence[Mapping[str, Any]], seed: int = 0) -> list[Problem]:
    """Converts rows with the hub's columns. A row without a gold answer stays in: it is graded `bad_gold`."""
    problems = []
    for index, row in enumerate(rows):
        try:
            problems.append(to_problem(benchmark, index, benchmark.record(row), seed))
        except KeyError as e:
            raise BadDataset(f"{benchmark.hub_id} row {index}: no column {e}; it has {', '.join(row)}") from e
        except ValueError as e:
            raise BadDataset(f"{benchmark.hub_id} row {index}: {e}") from e
    return _checked(benchmark, problems, benchmark.hub_count or benchmark.count, f"{benchmark.hub_id} on the hub")


def to_problem(benchmark: Benchmark, index: int, record: Any, seed: int) -> Problem:
    """One record as a Problem; ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    for field in ("problem", "answer"):
        if not isinstance(record.get(field), str):
            raise ValueError(f"no text {field!r}")
    if not record["problem"].strip():
        raise ValueError("the problem is empty")
    identity = str(record.get("id", f"{benchmark.name}/{index}"))
    answer: str = record["answer"]
    choices: tuple[str, ...] = ()
    if benchmark.kind == "choice":
        choices, answer = shuffled_choices(_texts(record, "choices"), answer, f"{seed}/{identity}")
    return Problem(
        id=identity,
        dataset=benchmark.name,
        text=record["problem"],
        answer=answer,
        kind=benchmark.kind,
        answers=_texts(record, "answers"),
        alternatives=_texts(record, "alternatives"),
        choices=choices,
        level=_optional(record, "level"),
        subject=_optional(record, "subject"),
        unit=_optional(record, "unit"),
        tolerance=None if record.get("tolerance") is None else float(record["tolerance"]),
    )


def shuffled_choices(choices: Sequence[str], answer: str, key: str) -> tuple[tuple[str, ...], str]:
    """Options in an order that depends on the key and on their texts only, and the right one's letter there.

    They are sorted first, so the order in which a source lists them (the hub: the right one first) has no influence.
    """
    if not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"{len(choices)} choices")
    right = LETTERS.find(answer) if len(answer) == 1 else -1
    if not 0 <= right < len(choices):
        raise ValueError(f"the answer {answer!r} is not one of the letters {LETTERS[: len(choices)]}")
    order = sorted(range(len(choices)), key=lambda i: choices[i])
    random.Random(key).shuffle(order)
    return tuple(choices[i] for i in order), LETTERS[order.index(right)]


def select(problems: Sequence[Problem], limit: int | None = None, ids: str | None = None) -> list[Problem]:
    """The problems named by `ids` ("3,7,10-15", or ids), then the first `limit` of them, in the benchmark's order.

    A number is the row at the end of a problem's id.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the limit must be at least 1, not {limit}")
    chosen = list(problems)
    if ids is not None:
        rows = {p.id.rsplit("/", 1)[-1]: i for i, p in enumerate(problems)}
        places = rows | {p.id: i for i, p in enumerate(problems)}
        wanted = {place for token in ids.split(",") if token.strip() for place in _places(token.strip(), places)}
        if not wanted:
            raise ValueError(f"no problem is named by {ids!r}")
        chosen = [problems[i] for i in sorted(wanted)]
    return chosen[:limit]


def _places(token: str, places: Mapping[str, int]) -> Iterator[int]:
    span = re.fullmatch(r"(\d+)-(\d+)", token)
    names = [token]
    if token not in places and span:
        first, last = int(span[1]), int(span[2])
        if not first <= last < first + 1_000_000:
            raise ValueError(f"not a range of problems: {token!r}")
        names = [str(row) for row in range(first, last + 1)]
    for name in names:
        if name not in places:
            raise ValueError(f"unknown problem {name!r}: give rows (3), ranges (10-15) or ids ({next(iter(places))})")
        yield places[name]


def _checked(benchmark: Benchmark, problems: list[Problem], expected: int, where: str) -> list[Problem]:
    if len(problems) != expected:
        raise BadDataset(f"{where}: {len(problems)} problems, {benchmark.name} should have {expected}")
    if len({p.id for p in problems}) != len(problems):
        raise BadDataset(f"{where}: two problems have one id")
    return problems


def _texts(record: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = record.get(field) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{field!r} is not a list of texts")
    return tuple(value)


def _optional(record: Mapping[str, Any], field: str) -> str | None:
    value = record.get(field)
    return None if value is None or value == "" else str(value)


def _read_hub(benchmark: Benchmark, tried: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Rows and where they came from; anything that keeps the hub from answering becomes one line."""
    if benchmark.hub_id is None:
        raise _not_found(benchmark, [*tried, "it is not on the hub"])
    with _quick_failure():
        try:
            import datasets
        except ImportError as e:
            raise _not_found(benchmark, [*tried, f"the package datasets cannot be imported ({e})"]) from e
        try:
            table = datasets.load_dataset(
                benchmark.hub_id, benchmark.config, split=benchmark.split, revision=benchmark.revision
            )
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as e:
            reason = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
            raise _not_found(benchmark, [*tried, f"hub {benchmark.hub_id}: {reason}"]) from e
    commit = re.search(r"@([0-9a-f]{40})/", " ".join(table.info.download_checksums or ()))
    revision = commit[1] if commit else benchmark.revision or "unknown"
    return list(table), f"hub {benchmark.hub_id}@{revision} {table._fingerprint}"


def _not_found(benchmark: Benchmark, reasons: list[str]) -> DatasetNotFound:
    return DatasetNotFound(
        f"{benchmark.name}: not found ({'; '.join(reasons)}). Three ways: a machine that reaches the hub (once, "
        f"then its cache is used), --data-dir or {DATA_DIR_VARIABLE} with {benchmark.name}.jsonl, or the bundled demo"
    )


@contextmanager
def _quick_failure(timeout_seconds: float = 5.0) -> Iterator[None]:
    """Keeps an unreachable hub from costing minutes: huggingface_hub retries each of its requests five times.

    One connection is tried first; where it fails the hub's libraries work offline, from their cache. They read these
    variables once, when they are imported, so for an import that happened earlier the copies are set as well.
    """
    wanted = {"HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "20"}
    wanted = {k: v for k, v in wanted.items() if k not in os.environ}
    if os.environ.get("HF_HUB_OFFLINE") is None and not hub_answers(timeout_seconds):
        wanted["HF_HUB_OFFLINE"] = "1"
    os.environ.update(wanted)
    modules = [sys.modules.get(n) for n in ("huggingface_hub.constants", "datasets.config")]
    copies = [m for m in modules if m is not None and hasattr(m, "HF_HUB_OFFLINE") and is_offline()]
    before = [m.HF_HUB_OFFLINE for m in copies]
    for module in copies:
        module.__dict__["HF_HUB_OFFLINE"] = True
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)
        for module, value in zip(copies, before, strict=True):
            module.__dict__["HF_HUB_OFFLINE"] = value


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE says yes, in the words that huggingface_hub takes for it."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def hub_answers(timeout_seconds: float) -> bool:
    """True where a connection to the hub, or to the proxy in front of it, can be opened."""
    url = urlsplit(getproxies().get("https") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout_seconds).close()
    except OSError:
        return False
    return True
