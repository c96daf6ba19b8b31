"""Every sample of the report in columns, one entry a sample: what the viewer lists, filters and sorts by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from warehouse.database import Connection, rows
from warehouse.report.facts import RunFacts

MAX_TEXT = 50_000
"""Characters of any one text; a longer one is cut, and says so."""

_PROBLEMS = """
SELECT problem_id, content_hash, level, subject, text, answer, choices
FROM problem WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
WITH stepped AS (
    SELECT sample_id, count(*) AS num_steps, count(verdict_kind) AS num_verdicts,
        count(*) FILTER (verdict_kind IS NOT NULL AND NOT verdict_accepted) AS num_refused,
        sum(num_tokens)::BIGINT AS emitted_tokens
    FROM step WHERE run_id = $run_id GROUP BY sample_id
), spent AS (
    SELECT sample_id, sum(output_tokens)::BIGINT AS spent_tokens FROM call WHERE run_id = $run_id GROUP BY sample_id
)
SELECT grade.problem_id, grade.sample_index, grade.sample_id, grade.verdict, grade.graded, grade.stop_reason,
    sample.latency_seconds, coalesce(num_steps, 0) AS num_steps, coalesce(num_verdicts, 0) AS num_verdicts,
    coalesce(num_refused, 0) AS num_refused, coalesce(emitted_tokens, 0) AS emitted_tokens,
    coalesce(spent_tokens, 0) AS spent_tokens
FROM sample_grade AS grade JOIN sample USING (run_id, sample_id)
LEFT JOIN stepped ON stepped.sample_id = sample.sample_id LEFT JOIN spent ON spent.sample_id = sample.sample_id
WHERE grade.run_id = $run_id ORDER BY grade.problem_id, grade.sample_index
"""


@dataclass
class Samples:
    """Problems of all runs, each once, and each run's samples in the order of problem and sample index."""

    problems: list[dict[str, Any]] = field(default_factory=list)
    runs: list[list[dict[str, Any]]] = field(default_factory=list)
    """Of each run one row a sample; `problem` is a place in `problems`."""


def read_samples(connection: Connection, runs: Sequence[RunFacts]) -> Samples:
    """All samples of all runs. A problem is the same where its id and content are."""
    found, places = Samples(), dict[tuple[str, str], int]()
    for run in runs:
        own = {}
        listed: list[dict[str, Any]] = rows(connection, _PROBLEMS, {"run_id": run.summary.run_id})
        for row in listed:
            key = (row["problem_id"], row["content_hash"])
            if key not in places:
                places[key] = len(found.problems)
                found.problems.append({**row, "text": cut(row["text"])})
            own[row["problem_id"]] = places[key]
        samples = rows(connection, _SAMPLES, {"run_id": run.summary.run_id})
        found.runs.append(sorted(({**row, "problem": own[row["problem_id"]]} for row in samples), key=_place))
    return found


def viewing_order(samples: Samples) -> list[tuple[int, int]]:
    """(problem, sample index) of every finished sample, by how early its trace goes into the report.

    First one right and one wrong sample of problems on which runs differ. Then the first sample of every problem, the
    second of every problem, and so on; problems in the order of their content's hash, so that what is left out where
    there is no room for all is as good as a random choice.
    """
    ranks = [hashlib.sha256(p["content_hash"].encode()).hexdigest() for p in samples.problems]
    flipped = _flipped(samples)
    finished = {(s["problem"], s["sample_index"]) for run in samples.runs for s in run if s["stop_reason"] is not None}
    return sorted(finished, key=lambda u: (u not in flipped, u[1], ranks[u[0]], u[0]))


def index(samples: Samples, chunks: dict[tuple[int, int, int], int]) -> dict[str, Any]:
    """What the viewer loads first. chunks: of (run, problem, sample index) the chunk with its trace."""
    columns = (
        "problem",
        "sample_index",
        "verdict",
        "graded",
        "stop_reason",
        "num_steps",
        "num_verdicts",
        "num_refused",
    )
    names = (*columns, "emitted_tokens", "spent_tokens", "latency_seconds", "chunk")
    listed = []
    for place, run in enumerate(samples.runs):
        for sample in run:
            sample["chunk"] = chunks.get((place, sample["problem"], sample["sample_index"]), -1)
            seconds = sample["latency_seconds"]
            sample["latency_seconds"] = None if seconds is None else round(seconds, 2)
        listed.append({name: [sample[name] for sample in run] for name in names})
    problems = [
        {k: p[k] for k in ("problem_id", "level", "subject", "text", "answer", "choices")} for p in samples.problems
    ]
    return {"problems": problems, "samples": listed}


def cut(text: str | None) -> str | None:
    """A text of at most `MAX_TEXT` characters, which says what is missing."""
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT} characters are left out of this report]"


def _flipped(samples: Samples) -> set[tuple[int, int]]:
    """Of problems that runs judge unlike: the first correct and the first other graded sample of each run."""
    first: dict[int, dict[bool, set[int]]] = {}
    shares: dict[int, set[bool]] = {}
    for run in samples.runs:
        of_problem: dict[int, list[tuple[int, bool]]] = {}
        for s in run:
            if s["graded"]:
                of_problem.setdefault(s["problem"], []).append((s["sample_index"], s["verdict"] == "correct"))
        for problem, judged in of_problem.items():
            share = sum(right for _, right in judged) / len(judged)
            if share != 0.5:
                shares.setdefault(problem, set()).add(share > 0.5)
            for right in (True, False):
                wanted = [i for i, is_right in judged if is_right == right]
                first.setdefault(problem, {}).setdefault(right, set()).update(wanted[:1])
    unlike = [problem for problem, sides in shares.items() if len(sides) == 2]
    return {(problem, i) for problem in unlike for right in (True, False) for i in first[problem].get(right, ())}


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["problem"], row["sample_index"]
