"""Small real run folders: written through jobs.run.folder and jobs.run.trace_files, with traces made by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.engine import Role
from harness.problems.problem import Problem, dataset_hash
from harness.trace import Call, Candidate, Purpose, Step, StepRole, StopReason, Trace, Verdict
from jobs.run import derived, trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import Attempt, EngineSpec, ModelSpec, RunSpec, Unit, units
from warehouse.files import write_lock

PROBLEMS = [
    Problem("toy/0", "toy", "1 + 1?", "2", level="easy"),
    Problem("toy/1", "toy", "2 + 2?", "4", level="easy", subject="sums"),
    Problem("toy/2", "toy", "Which?", "B", kind="choice", choices=("one", "two"), level="hard"),
]
DRAFT = ModelSpec(model="small", path="org/small", revision="r1", fingerprint="small@r1")
TARGET = ModelSpec(model="large", path="org/large", revision="r1", fingerprint="large@r1")
SPEC = RunSpec(
    method="speccot",
    params={"drafts": 2, "guidance_tokens": 8},
    dataset="toy",
    dataset_hash=dataset_hash(PROBLEMS),
    dataset_size=3,
    num_problems=3,
    samples=2,
    seed=0,
    temperature=0.6,
    top_p=0.95,
    token_budget=256,
    draft=DRAFT,
    target=TARGET,
    engine=EngineSpec("scripted"),
    concurrency=1,
    prompt_hash="p",
)
VANILLA = replace(SPEC, method="vanilla", params={"model": "target"}, draft=None)
START = 1_700_000_000.0


def attempt(run_id: str, name: str = "a0", **changes: Any) -> Attempt:
    return replace(Attempt(name, run_id, 0, "node1", 42, START, "abc", versions={"vllm": "0.32"}), **changes)


def call(
    purpose: Purpose,
    model: Role,
    step: int,
    output: int,
    *,
    at: float = 0.0,
    seconds: float = 1.0,
    queued: float = 0.25,
    n: int = 1,
    longest: int | None = None,
    prompt: int = 100,
    cached: int = 50,
    overlapped: float = 0.0,
) -> Call:
    return Call(
        purpose=purpose,
        model=model,
        step=step,
        n=n,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        longest_output_tokens=output if longest is None else longest,
        submitted_at=START + at,
        queued_seconds=queued,
        first_token_seconds=queued + 0.1,
        end_seconds=seconds,
        in_flight=1,
        overlapped_seconds=overlapped,
    )


def step(author: Role, role: StepRole, text: str, tokens: int, at: float = 0.0) -> Step:
    return Step(author, role, text, tokens, tuple(range(tokens)), "stop", elapsed_seconds=at)


def choice(decision: int, accepted: bool, probabilities: tuple[float, ...] = (0.5, 0.2, 0.1)) -> Verdict:
    logprobs = tuple(math.log(p) if p else -math.inf for p in probabilities)
    return Verdict("choice", "Which one?", ("1", "2", "3"), logprobs, decision, None, accepted)


def speculative(unit: Unit, refused: bool = False, latency: float = 10.0, text: str = "So 2.\n") -> Trace:
    """Guidance, one step drafted or refused, an answer: 8 + 6 + 4 emitted tokens."""
    trace = Trace(unit.sample_id, unit.problem_id, unit.sample_index, seed=7, started_at=START)
    trace.draft_prompt, trace.target_prompt = "draft prompt <think>", "target prompt <think>"
    second = step("target" if refused else "draft", "fallback" if refused else "draft", text, 6, 5.0)
    second.candidates = [
        Candidate(text, 6, "stop", -0.5, 0, accepted=not refused),
        Candidate("Perhaps 3.\n", 5, "stop", -1.5, 1),
    ]
    second.verdicts = [choice(2, False, (0.1, 0.2, 0.5)) if refused else choice(0, True)]
    trace.steps = [
        step("target", "guidance", "Let us see. ", 8, 2.0),
        second,
        step("target", "answer", "\\boxed{2}", 4, 9),
    ]
    trace.calls = [
        call("guidance", "target", 0, 8, at=0, cached=0),
        call("draft", "draft", 1, 11, at=1, n=2, longest=6, seconds=2.0),
        call("verdict", "target", 1, 1, at=3),
        *([call("fallback", "target", 1, 6, at=4, seconds=3.0)] if refused else []),
        call("answer", "target", 2, 4, at=7, seconds=1.5),
    ]
    trace.stop_reason, trace.latency_seconds = "answered", latency
    return trace


def lookahead(unit: Unit, refused: bool = False, latency: float = 10.0) -> Trace:
    """Two steps, the second begun 1 s before the first one's verdict ended; discarded where that refused. 6 + 4."""
    trace = Trace(unit.sample_id, unit.problem_id, unit.sample_index, seed=7, started_at=START)
    role: StepRole = "fallback" if refused else "draft"
    trace.steps = [
        step("target" if refused else "draft", role, "So 2.\n", 6, 4),
        step("draft", "draft", "It is 2.", 4, 8),
    ]
    trace.calls = [
        call("draft", "draft", 0, 6, at=0, seconds=2.0),
        call("verdict", "target", 0, 1, at=2),
        *(
            [
                call("lookahead", "draft", 1, 5, at=2, seconds=3.0, overlapped=3.0),
                call("fallback", "target", 0, 6, at=3, seconds=2.0),
                call("draft", "draft", 1, 4, at=5, seconds=1.5),
            ]
            if refused
            else [call("draft", "draft", 1, 4, at=2, seconds=1.5, overlapped=1.0)]
        ),
        call("verdict", "target", 1, 1, at=7),
    ]
    trace.stop_reason, trace.latency_seconds = "answered", latency
    return trace


def vanilla(unit: Unit, tokens: int = 40, latency: float = 20.0) -> Trace:
    trace = Trace(unit.sample_id, unit.problem_id, unit.sample_index, seed=7, started_at=START, target_prompt="prompt")
    trace.steps = [step("target", "chain", "Long. \\boxed{2}", tokens, latency)]
    trace.calls = [call("chain", "target", 0, tokens, seconds=latency - 1)]
    trace.stop_reason, trace.latency_seconds = "answered", latency
    return trace


def ended(trace: Trace, reason: StopReason, error: str | None = None) -> Trace:
    trace.stop_reason, trace.error = reason, error
    return trace


def create(
    runs: Path, spec: RunSpec = SPEC, name: str | None = None, problems: Sequence[Problem] = PROBLEMS
) -> RunFolder:
    """A planned run in two shards, nothing run yet."""
    folder = RunFolder(runs / (name or spec.run_id))
    chosen = list(problems[: spec.num_problems])
    planned = units(spec, chosen)
    folder.create(spec, chosen, [planned[::2], planned[1::2]])
    return folder


def planned(folder: RunFolder) -> list[Unit]:
    return units(folder.spec(), folder.problems())


def write_part(folder: RunFolder, traces: Sequence[Trace], name: str = "a0", **changes: Any) -> Path:
    """Write the trace file of an attempt; `changes`: what its record has."""
    path = folder.trace_files_dir / f"{name}.parquet"
    metadata = {"attempt": json.dumps(asdict(attempt(folder.path.name, name, **changes)))}
    trace_files.write_table(path, trace_files.TRACES, [asdict(trace) for trace in traces], metadata)
    return path


def write_grades(folder: RunFolder, verdicts: dict[str, str], version: str = "1") -> Path:
    rows = [
        {
            "sample_id": sample_id,
            "grader_version": version,
            "verdict": verdict,
            "extracted": "2",
            "rule": "boxed",
            "detail": "equal",
            "seconds": 0.1,
        }
        for sample_id, verdict in verdicts.items()
    ]
    return derived.write(folder, "grades", version, rows)


def write(folder: RunFolder, traces: Sequence[Trace], verdicts: str | Sequence[str] | None = None) -> RunFolder:
    """Write traces, and the verdicts of the first ones in their order, or one of all; None: they are not graded."""
    write_part(folder, traces)
    if verdicts is not None:
        each = [verdicts] * len(traces) if isinstance(verdicts, str) else verdicts
        write_grades(folder, {trace.sample_id: verdict for trace, verdict in zip(traces, each, strict=False)})
    return folder


def finished(
    where: Path,
    spec: RunSpec = SPEC,
    make: Callable[[Unit], Trace] = speculative,
    verdicts: str | Sequence[str] | None = None,
    **named: Any,
) -> RunFolder:
    """A run all of whose samples are made so; further arguments are those of `create`."""
    folder = create(where, spec, **named)
    return write(folder, [make(unit) for unit in planned(folder)], verdicts)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the lock of whoever writes to a database, which keeps writers of this process out as well."""
    with write_lock(database, 0):
        yield
