"""The index of all samples, in columns, by which the trace viewer lists, filters and sorts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from warehouse.database import Connection, rows
from warehouse.report.facts import RunFacts

MAX_TEXT = 50_000
"""Largest number of characters of a text; longer texts are cut, with a note."""

_PROBLEMS = """
SELECT problem_id, content_hash, level, subject, text, answer, choices
FROM problem WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
WITH stepped AS (
    SELECT sample_id, count(*) AS num_steps, count(decision_kind) AS num_decisions,
        count(*) FILTER (decision_kind IS NOT NULL AND NOT decision_accepted) AS num_rejected,
        sum(num_tokens)::BIGINT AS emitted_tokens
    FROM step WHERE run_id = $run_id GROUP BY sample_id
), spent AS (
    SELECT sample_id, sum(output_tokens)::BIGINT AS spent_tokens FROM call WHERE run_id = $run_id GROUP BY sample_id
)
SELECT grade.problem_id, grade.sample_index, grade.sample_id, grade.verdict, grade.graded, grade.stop_reason,
    sample.latency_seconds, coalesce(num_steps, 0) AS num_steps, coalesce(num_decisions, 0) AS num_decisions,
    coalesce(num_rejected, 0) AS num_rejected, coalesce(emitted_tokens, 0) AS emitted_tokens,
    coalesce(spent_tokens, 0) AS spent_tokens
FROM sample_grade AS grade JOIN sample USING (run_id, sample_id)
LEFT JOIN stepped ON stepped.sample_id = sample.sample_id LEFT JOIN spent ON spent.sample_id = sample.sample_id
WHERE grade.run_id = $run_id ORDER BY grade.problem_id, grade.sample_index
"""


@dataclass
class Samples:
    """The distinct problems of all runs, and each run's samples in the order of problem and sample index."""

    problems: list[dict[str, Any]] = field(default_factory=list)
    runs: list[list[dict[str, Any]]] = field(default_factory=list)
    """A row per sample for each run; `problem` is an index in `problems`."""


def read_samples(connection: Connection, runs: Sequence[RunFacts]) -> Samples:
    """Read all samples of all runs. Two problems are the same if their id and content are."""
    samples, places = Samples(), dict[tuple[str, str], int]()
    for run in runs:
        run_places = {}
        problem_rows: list[dict[str, Any]] = rows(connection, _PROBLEMS, {"run_id": run.summary.run_id})
        for row in problem_rows:
            key = (row["problem_id"], row["content_hash"])
            if key not in places:
                places[key] = len(samples.problems)
                samples.problems.append({**row, "text": cut(row["text"])})
            run_places[row["problem_id"]] = places[key]
        sample_rows = rows(connection, _SAMPLES, {"run_id": run.summary.run_id})
        placed = [{**row, "problem": run_places[str(row["problem_id"])]} for row in sample_rows]
        samples.runs.append(sorted(placed, key=_place))
    return samples


def viewing_order(samples: Samples) -> list[tuple[int, int]]:
    """Return (problem, sample index) of every finished sample, in the order in which traces go into the report.

    A right and a wrong sample of each problem on which runs differ come first, then the first sample of every problem,
    then the second, and so on. Problems are in the order of their content's hash, so that the traces for which there
    is no room are as good as a random choice.
    """
    ranks = [hashlib.sha256(p["content_hash"].encode()).hexdigest() for p in samples.problems]
    flipped = _flipped(samples)
    finished = {(s["problem"], s["sample_index"]) for run in samples.runs for s in run if s["stop_reason"] is not None}
    return sorted(finished, key=lambda u: (u not in flipped, u[1], ranks[u[0]], u[0]))


def index(samples: Samples, chunks: dict[tuple[int, int, int], int]) -> dict[str, Any]:
    """Return the data that the viewer loads first. chunks: (run, problem, sample index) → the chunk with its trace."""
    columns = (
        "problem",
        "sample_index",
        "verdict",
        "graded",
        "stop_reason",
        "num_steps",
        "num_decisions",
        "num_rejected",
    )
    names = (*columns, "emitted_tokens", "spent_tokens", "latency_seconds", "chunk")
    columns_by_run = []
    for place, run in enumerate(samples.runs):
        for sample in run:
            sample["chunk"] = chunks.get((place, sample["problem"], sample["sample_index"]), -1)
            seconds = sample["latency_seconds"]
            sample["latency_seconds"] = None if seconds is None else round(seconds, 2)
        columns_by_run.append({name: [sample[name] for sample in run] for name in names})
    problems = [
        {k: p[k] for k in ("problem_id", "level", "subject", "text", "answer", "choices")} for p in samples.problems
    ]
    return {"problems": problems, "samples": columns_by_run}


def cut(text: str | None) -> str | None:
    """Return the first `MAX_TEXT` characters of a text, with a note on how many more there are."""
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT} more characters are not in this report]"


def _flipped(samples: Samples) -> set[tuple[int, int]]:
    """Return (problem, sample index) of each run's first right and first wrong sample of problems that flip."""
    first: dict[int, dict[bool, set[int]]] = {}
    outcomes: dict[int, set[bool]] = {}
    for run in samples.runs:
        graded_by_problem: dict[int, list[tuple[int, bool]]] = {}
        for s in run:
            if s["graded"]:
                graded_by_problem.setdefault(s["problem"], []).append((s["sample_index"], s["verdict"] == "correct"))
        for problem, graded in graded_by_problem.items():
            share = sum(is_right for _, is_right in graded) / len(graded)
            if share != 0.5:
                outcomes.setdefault(problem, set()).add(share > 0.5)
            for outcome in (True, False):
                matching = [i for i, is_right in graded if is_right == outcome]
                first.setdefault(problem, {}).setdefault(outcome, set()).update(matching[:1])
    flipped = [problem for problem, sides in outcomes.items() if len(sides) == 2]
    return {(problem, i) for problem in flipped for outcome in (True, False) for i in first[problem].get(outcome, ())}


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["problem"], row["sample_index"]
