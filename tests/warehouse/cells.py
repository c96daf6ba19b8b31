"""Run folders with many problems whose results are given as numbers, and what compare and SQL say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from harness.problems.problem import Problem, dataset_hash
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, units
from tests.warehouse import runs
from warehouse import compare as comparing
from warehouse.database import reader, rows
from warehouse.loading.runs import load_runs

PROBLEMS = [Problem(f"sums/{i}", "sums", f"{i} + 1?", str(i + 1)) for i in range(12)]
SPEC = replace(
    runs.SPEC,
    dataset="sums",
    dataset_hash=dataset_hash(PROBLEMS),
    dataset_size=len(PROBLEMS),
    num_problems=len(PROBLEMS),
    samples=4,
)
VANILLA = replace(SPEC, method="vanilla", params={"model": "target"}, draft=None)
GOOD = (4, 4, 4, 3, 3, 4, 2, 4, 1, 4, 0, 3)
BAD = (3, 2, 4, 1, 3, 2, 0, 3, 1, 2, 0, 1)
"""Right samples of four, by problem."""
Has = Callable[[int, int], bool]
"""Whether a run has something, by problem and sample index."""


def every_one(problem: int, sample: int) -> bool:
    return True


def none(problem: int, sample: int) -> bool:
    return False


def finished(
    where: Path,
    spec: RunSpec,
    correct: Sequence[int],
    *,
    latency: float = 10.0,
    wrong: str = "wrong",
    extracted: Sequence[str] = ("7",),
    missing: int = 0,
    has_run: Has = every_one,
    has_grade: Has = every_one,
    has_failed: Has = none,
    grader: str = "1",
    skipped: int = 0,
    slower: Callable[[int, int], float] | None = None,
    **attempt: Any,
) -> RunFolder:
    """A run of which `correct[i]` samples of problem i are right; the others get the verdict `wrong`.

    extracted: the answers of what is not right, in turn; missing: how many of the last samples never ran; has_run,
    has_grade and has_failed: by problem and sample index, which of the others ran, were graded, and ended in an error.
    slower: how many times as long as `latency` a sample takes; by default later samples of a problem take longer than
    its earlier ones. skipped: problem 0 is that with this index in PROBLEMS. attempt: what its record has.
    """
    problems = PROBLEMS[skipped : skipped + len(correct)]
    spec = replace(spec, dataset_hash=dataset_hash(problems), num_problems=len(problems))
    folder = RunFolder(where / spec.run_id)
    planned = units(spec, problems)
    folder.create(spec, problems, [planned])
    number = {problem.id: i for i, problem in enumerate(problems)}
    ran = [unit for unit in planned[: len(planned) - missing] if has_run(number[unit.problem_id], unit.sample_index)]
    traces = [
        runs.vanilla(unit, latency=latency * (slower or _slower)(number[unit.problem_id], unit.sample_index))
        for unit in ran
    ]
    for trace in traces:
        if has_failed(number[trace.problem_id], trace.sample_index):
            runs.ended(trace, "error", "RequestRefused: too long")
    runs.write_part(folder, traces, **({"device": "NVIDIA H100", "hardware": {"cpu": "a processor"}} | attempt))
    grades = []
    for i, unit in enumerate(unit for unit in ran if has_grade(number[unit.problem_id], unit.sample_index)):
        is_right = unit.sample_index < correct[number[unit.problem_id]]
        verdict, answer = ("correct", "right") if is_right else (wrong, extracted[i % len(extracted)])
        grade = {"sample_id": unit.sample_id, "grader_version": grader, "verdict": verdict, "extracted": answer}
        grades.append(grade | {"rule": "boxed", "detail": "", "seconds": 0.1})
    derived.write(folder, "grades", grader, grades)
    return folder


def _slower(problem: int, sample: int) -> float:
    """Return the ratio of a sample's duration to that of the first sample of the first problem."""
    return 1 + problem / 10 + sample / 4


def load(where: Path, *folders: RunFolder) -> list[str]:
    """Load runs into the database of a folder; returns their ids."""
    list(load_runs(folders, where / "w.duckdb"))
    return [folder.path.name for folder in folders]


def select(where: Path, sql: str, **parameters: object) -> list[dict[str, Any]]:
    with reader(where / "w.duckdb") as connection:
        return rows(connection, sql, parameters)


def compare(where: Path, *words: str) -> Result:
    return CliRunner().invoke(comparing.main, [*words, "--database", str(where / "w.duckdb")])


def compared(where: Path, *words: str) -> list[dict[str, Any]]:
    result = compare(where, *words, "--format", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


@dataclass(frozen=True)
class Warehouse:
    """A folder with a database, and its runs by name: a word of a command that is such a name is the run's id."""

    where: Path
    ids: dict[str, str]

    @classmethod
    def of(cls, where: Path, folders: dict[str, RunFolder]) -> Warehouse:
        return cls(where, dict(zip(folders, load(where, *folders.values()), strict=True)))

    def compare(self, *words: str) -> Result:
        return compare(self.where, *(self.ids.get(word, word) for word in words))

    def compared(self, *words: str) -> list[dict[str, Any]]:
        return compared(self.where, *(self.ids.get(word, word) for word in words))

    def select(self, sql: str, **parameters: object) -> list[dict[str, Any]]:
        return select(self.where, sql, **parameters)
