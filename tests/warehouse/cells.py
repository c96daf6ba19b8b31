"""Run folders with many problems whose results are given as numbers, for comparisons and nights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness.problems.problem import Problem, dataset_hash
from jobs.run import derived, trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, units
from tests.warehouse import runs

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


def finished(
    where: Path,
    spec: RunSpec,
    correct: Sequence[int],
    *,
    latency: float = 10.0,
    started_at: float = runs.START,
    device: str = "NVIDIA H100",
    num_devices: int = 1,
    processor: str = "a processor",
    versions: dict[str, str] | None = None,
    engines: dict[str, object] | None = None,
    wrong: str = "wrong",
    extracted: Sequence[str] = ("7",),
    missing: int = 0,
    has_run: Callable[[int, int], bool] = lambda problem, sample: True,
    has_grade: Callable[[int, int], bool] = lambda problem, sample: True,
    has_failed: Callable[[int, int], bool] = lambda problem, sample: False,
    grader: str = "1",
    skipped: int = 0,
    slower: Callable[[int, int], float] | None = None,
) -> RunFolder:
    """A run of which `correct[i]` samples of problem i are right; the others get the verdict `wrong`.

    extracted: the answers of what is not right, in turn; missing: how many of the last samples never ran; has_run,
    has_grade and has_failed: by problem and sample index, which of the others ran, were graded, and ended in an error.
    slower: how many times as long as `latency` a sample takes; by default later samples of a problem take longer than
    its earlier ones. skipped: problem 0 is that with this index in PROBLEMS.
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
    attempt = replace(runs.attempt(folder.path.name, device=device), started_at=started_at)
    attempt = replace(
        attempt, versions=versions or {"vllm": "0.32"}, hardware={"cpu": processor}, num_devices=num_devices
    )
    attempt = replace(attempt, engines=engines if engines is not None else attempt.engines)
    metadata = {"attempt": json.dumps(asdict(attempt))}
    trace_files.write_table(
        folder.trace_files_dir / "a0.parquet", trace_files.TRACES, [asdict(trace) for trace in traces], metadata
    )
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
