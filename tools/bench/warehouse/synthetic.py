"""Synthetic run folders of four methods, with any number of steps and the shape of real traces.

Lengths are log-normal (about 40 tokens per step; 45 steps per chain of SpecReason, 25 of SpecCoT), rejections depend on
the problem, and all steps have distinct texts. DuckDB writes the trace files; `jobs.run` writes all other files.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.problems.problem import Problem, dataset_hash
from jobs.run import derived, events, files
from jobs.run.folder import RunFolder
from jobs.run.spec import Attempt, EngineSpec, ModelSpec, RunSpec, Unit
from tools.bench.warehouse.scratch import scratch
from warehouse.database import Connection

SAMPLES = 16
MOST_PROBLEMS = 500
DISTINCT_CYCLES = 2
"""Number of cycles through the methods with distinct data; the runs of further cycles are copies under other names."""
_SAMPLES_PER_FILE = 1000
_TRACE_FILE_SQL = Path(__file__).with_name("trace_file.sql")
_TEXT = """
the a so we then if value of number sum is equal to area first second total each per cost wait but hmm let me check that
again $x$ $\\frac{a}{b}$ hours days apples triangle side angle multiply divide add subtract both therefore which gives
remaining left answer because since every one two three four five six seven eight nine
"""
_MACROS = """
CREATE MACRO uniform(key, salt) AS (hash(key, salt) % 16777213) / 16777213.0;
CREATE MACRO normal(key, salt) AS sqrt(3) * (uniform(key, salt || 1) + uniform(key, salt || 2)
    + uniform(key, salt || 3) + uniform(key, salt || 4) - 2);
CREATE MACRO call_of(purpose, model, i, n, tokens, longest, moment, seconds) AS struct_pack(
    purpose := purpose, model := model, step := i, n := n::INTEGER, prompt_tokens := (200 + 40 * i)::INTEGER,
    cached_tokens := (180 + 40 * i)::INTEGER, output_tokens := tokens::INTEGER,
    longest_output_tokens := longest::INTEGER, submitted_at := moment::DOUBLE, queued_seconds := 0.01,
    first_token_seconds := 0.05, end_seconds := seconds::DOUBLE, in_flight := 8::INTEGER,
    proposed_tokens := NULL::INTEGER, accepted_tokens := NULL::INTEGER,
    overlapped_seconds := 0.0::DOUBLE);
"""


@dataclass(frozen=True)
class Shape:
    """The shape of a method's traces."""

    method: str
    mean_steps: float
    least_steps: int
    mean_tokens: float
    drafts: int
    repeats: int
    """Number of phrases per 40 tokens in the text of a step."""


SHAPES = (
    Shape("vanilla", 1, 1, 1200, 1, 20),
    Shape("specreason", 45, 2, 40, 1, 1),
    Shape("speccot", 25, 3, 40, 3, 1),
    Shape("scot", 2, 2, 500, 3, 8),
)
_STEPS_PER_SAMPLE = sum(shape.mean_steps for shape in SHAPES)


def create(folder: Path, num_steps: int) -> list[RunFolder]:
    """Write run folders with about `num_steps` steps in total into `folder`, and return them."""
    cycles = max(1, round(num_steps / (_STEPS_PER_SAMPLE * SAMPLES * MOST_PROBLEMS)))
    num_problems = max(2, round(num_steps / (_STEPS_PER_SAMPLE * SAMPLES * cycles)))
    problems = [
        Problem(f"synthetic/{i}", "synthetic", f"What is {i} + {i}?", str(2 * i), level=str(1 + i % 5))
        for i in range(num_problems)
    ]
    created = []
    folder.mkdir(parents=True, exist_ok=True)
    with scratch(folder) as connection:
        connection.execute(_MACROS)
        connection.execute("CREATE TABLE phrase (id INTEGER, text VARCHAR)")
        connection.executemany("INSERT INTO phrase VALUES (?, ?)", list(_phrases(4096)))
        for cycle in range(min(cycles, DISTINCT_CYCLES)):
            created += [_write_run(connection, folder, shape, problems, cycle) for shape in SHAPES]
    originals = list(created)
    for number in range(len(originals), cycles * len(SHAPES)):
        created.append(_linked_copy(originals[number % len(originals)], number))
    return created


def _linked_copy(run: RunFolder, number: int) -> RunFolder:
    """Return a copy of a run that links to the run's files. It takes neither time nor disk space; a database stores
    both runs.
    """
    other = run.path.with_name(f"{run.path.name}-{number}")
    shutil.copytree(run.path, other, copy_function=os.link)
    return RunFolder(other)


def _phrases(count: int) -> Iterator[tuple[int, str]]:
    generator, words = random.Random(0), _TEXT.split()
    for number in range(count):
        yield number, " ".join(generator.choices(words, k=generator.randint(8, 22))) + ".\n"


def _write_run(connection: Connection, folder: Path, shape: Shape, problems: list[Problem], seed: int) -> RunFolder:
    draft, target = (
        ModelSpec(model=name, path=f"synthetic/{name}", revision=None, fingerprint=name) for name in ("draft", "target")
    )
    spec = RunSpec(
        method=shape.method,
        params=_params(shape),
        dataset="synthetic",
        dataset_hash=dataset_hash(problems),
        dataset_size=len(problems),
        num_problems=len(problems),
        samples=SAMPLES,
        seed=seed,
        temperature=0.6,
        top_p=0.95,
        token_budget=8192,
        draft=None if shape.method == "vanilla" else draft,
        target=target,
        engine=EngineSpec("scripted"),
        concurrency=8,
        prompt_hash="synthetic",
    )
    run = RunFolder(folder / spec.run_id)
    count = len(problems) * SAMPLES
    units = [
        Unit(_sample_id(run, place), problems[place % len(problems)].id, place // len(problems))
        for place in range(count)
    ]
    run.create(spec, problems, [units])
    for number, first in enumerate(range(0, count, _SAMPLES_PER_FILE)):
        _write_trace_file(connection, run, shape, len(problems), first, min(count, first + _SAMPLES_PER_FILE), number)
    _write_grades(run, units)
    return run


def _params(shape: Shape) -> dict[str, int | float | str | bool]:
    match shape.method:
        case "vanilla":
            return {"model": "target"}
        case "specreason":
            return {"threshold": 7.0, "score": "greedy", "first_steps": 0, "step_tokens": 512}
        case _:
            return {"drafts": shape.drafts}


def _sample_id(run: RunFolder, place: int) -> str:
    return hashlib.md5(f"{run.path.name}:{place}".encode(), usedforsecurity=False).hexdigest()[:16]


def _write_trace_file(
    connection: Connection, run: RunFolder, shape: Shape, num_problems: int, first: int, last: int, number: int
) -> None:
    path = run.trace_files_dir / f"attempt-{number:04}.parquet"
    attempt = Attempt(path.stem, run.path.name, 0, "synthetic", 1, 1_700_000_000.0, None)
    sql = _TRACE_FILE_SQL.read_text(encoding="utf-8")
    connection.execute(
        sql.replace("{attempt}", json.dumps(asdict(attempt))).replace("{format}", str(files.FORMAT)),
        {
            "run": run.path.name,
            "dataset": "synthetic",
            "method": shape.method,
            "num_problems": num_problems,
            "first": first,
            "last": last,
            "mean_steps": shape.mean_steps,
            "least_steps": shape.least_steps,
            "mean_tokens": shape.mean_tokens,
            "drafts": shape.drafts,
            "repeats": shape.repeats,
            "question": "Score the last step from 0 to 9 by its correctness and logic. " * 4,
            "file": str(path),
        },
    )
    events.write_announced(path, path.read_bytes())


def _write_grades(run: RunFolder, units: list[Unit]) -> None:
    """Write grades that depend on the problem's difficulty; 95 % of the answers to the easiest problems are correct."""
    rows = []
    for unit in units:
        draw = random.Random(unit.sample_id).random()
        difficulty = random.Random(unit.problem_id).random()
        verdict = "correct" if draw < 0.95 - 0.6 * difficulty else "wrong"
        rows.append(
            {
                "sample_id": unit.sample_id,
                "grader_version": "synthetic",
                "verdict": verdict,
                "extracted": "2",
                "rule": "boxed",
                "detail": "",
                "seconds": 0.01,
            }
        )
    derived.write(run, "grades", "synthetic", rows)
