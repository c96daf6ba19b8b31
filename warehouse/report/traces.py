"""Traces for the viewer, in compressed chunks, as many as fit.

A chunk is JSON, compressed with gzip and encoded as base64 text, so no model output is in the page as HTML or script.
The browser unpacks a chunk when one of its traces is opened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from harness.engine import normalized
from warehouse.database import Connection, rows
from warehouse.report.facts import RunFacts

_BATCH = 256
"""Number of samples read from the database at a time."""
_CHUNK_BYTES = 300_000
"""Uncompressed size at which a chunk is closed."""
_BATCH_KEYS = "(SELECT unnest($run_ids) AS run_id, unnest($sample_ids) AS sample_id)"
_SAMPLE = f"""
SELECT sample.run_id, sample.sample_id, draft_prompt, target_prompt, error, num_attempts, seed, extracted, rule, detail
FROM sample JOIN sample_grade USING (run_id, sample_id) SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id)
"""
_STEP = f"SELECT step.* FROM step SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY step_index"
_CANDIDATE = f"""
SELECT candidate.* FROM candidate SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id)
ORDER BY step_index, candidate_index
"""
_CALL = f"""
SELECT call.* EXCLUDE (submitted_at),
    epoch(submitted_at - min(submitted_at) OVER (PARTITION BY run_id, sample_id)) AS at
FROM call SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY call_index
"""

Key = tuple[str, str]
"""Run id and sample id."""


@dataclass
class Chunks:
    """The traces in the page."""

    packed: list[str] = field(default_factory=list)
    """Base64 of gzip of JSON objects with a trace for each key "run/problem/sample index"."""
    places: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Index in `packed` of the chunk with the trace of (run, problem, sample index)."""
    num_finished: int = 0
    """Number of samples that have a trace, in the report or not."""


def pack(value: object) -> str:
    """Return a value as compressed JSON in base64, which has only letters, digits, `+`, `/` and `=`."""
    return base64.b64encode(gzip.compress(orjson.dumps(value), compresslevel=6, mtime=0)).decode("ascii")


def pack_traces(
    connection: Connection, run_ids: Sequence[str], samples: Samples, order: Sequence[tuple[int, int]], room_bytes: int
) -> Chunks:
    """Pack the traces of all runs by (problem, sample index), in this order, until room_bytes is full."""
    finished = [
        {(s["problem"], s["sample_index"]): s["sample_id"] for s in run if s["stop_reason"] is not None}
        for run in samples.runs
    ]
    chunks, used = Chunks(num_finished=sum(map(len, finished))), 0
    for chunk in _grouped(_traces(connection, run_ids, finished, order)):
        packed = pack({f"{run}/{problem}/{sample}": orjson.Fragment(trace) for (run, problem, sample), trace in chunk})
        used += len(packed)
        if used > room_bytes:
            break
        chunks.places.update(dict.fromkeys((place for place, _ in chunk), len(chunks.packed)))
        chunks.packed.append(packed)
    return chunks


Placed = tuple[tuple[int, int, int], bytes]
"""(run, problem, sample index), and the trace as JSON."""


def _traces(
    connection: Connection,
    run_ids: Sequence[str],
    finished: list[dict[tuple[int, int], str]],
    order: Sequence[tuple[int, int]],
) -> Iterator[list[Placed]]:
    """Yield the traces of all runs of each (problem, sample index)."""
    per_batch = max(1, _BATCH // len(run_ids))
    for start in range(0, len(order), per_batch):
        units = order[start : start + per_batch]
        keys = {
            (run, *unit): (run_ids[run], sample_ids[unit])
            for unit in units
            for run, sample_ids in enumerate(finished)
            if unit in sample_ids
        }
        traces = _read(connection, list(keys.values()))
        for unit in units:
            places = [place for place in keys if place[1:] == unit]
            yield [(place, orjson.dumps(traces[keys[place]])) for place in places]


def _grouped(units: Iterator[list[Placed]]) -> Iterator[list[Placed]]:
    """Group the units into chunks of about `_CHUNK_BYTES`."""
    chunk: list[Placed] = []
    size = 0
    for unit in units:
        chunk += unit
        size += sum(len(trace) for _, trace in unit)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read(connection: Connection, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    batch: dict[str, object] = {"run_ids": [run for run, _ in keys], "sample_ids": [sample for _, sample in keys]}
    traces: dict[Key, dict[str, Any]] = {}
    samples: list[dict[str, Any]] = rows(connection, _SAMPLE, batch)
    for row in samples:
        key = (row.pop("run_id"), row.pop("sample_id"))
        texts = {name: cut(value) if isinstance(value, str) else value for name, value in row.items()}
        traces[key] = texts | {"steps": [], "calls": []}
    for row in rows(connection, _STEP, batch):
        traces[_key(row)]["steps"].append(_step(row))
    for row in rows(connection, _CANDIDATE, batch):
        traces[_key(row)]["steps"][row["step_index"]]["candidates"].append(_candidate(row))
    for row in rows(connection, _CALL, batch):
        traces[_key(row)]["calls"].append(_call(row))
    return traces


def _key(row: dict[str, Any]) -> Key:
    return row["run_id"], row["sample_id"]


def _step(row: dict[str, Any]) -> dict[str, Any]:
    step = {name: row[name] for name in ("author", "role", "num_tokens", "finish", "elapsed_seconds")}
    step |= {"text": cut(row["text"]), "candidates": []}
    if row["decision_kind"] is not None:
        step["decision"] = {
            "kind": row["decision_kind"],
            "value": _rounded(row["decision_value"]),
            "threshold": _rounded(row["decision_threshold"]),
            "accepts_below": row["decision_accepts_below"],
            "accepted": row["decision_accepted"],
        }
    if row["verdict_kind"] is not None:
        step["verdict"] = {
            "kind": row["verdict_kind"],
            "question": cut(row["verdict_question"]),
            "options": row["verdict_options"],
            "probabilities": _probabilities(row["verdict_logprobs"]),
            "decision": row["verdict_decision"],
            "mass": _rounded(row["verdict_mass"]),
            "score": _rounded(row["verdict_score"]),
            "accepted": row["verdict_accepted"],
        }
    return step


def _candidate(row: dict[str, Any]) -> dict[str, Any]:
    candidate = {name: row[name] for name in ("num_tokens", "finish", "option", "accepted")}
    return candidate | {"text": cut(row["text"]), "mean_logprob": _rounded(row["mean_logprob"])}


def _call(row: dict[str, Any]) -> list[Any]:
    """Return a call as a list in the order of `CALL` in viewer/trace.js."""
    names = ("step_index", "purpose", "model", "n", "prompt_tokens", "cached_tokens", "output_tokens")
    times = ("at", "queued_seconds", "first_token_seconds", "end_seconds")
    return [*(row[n] for n in names), *(_rounded(row[n], 3) for n in times), row["in_flight"]]


def _probabilities(logprobs: list[float] | None) -> list[float | None]:
    defined = [x for x in logprobs or () if x is not None and not math.isnan(x)]
    if logprobs is None or len(defined) < len(logprobs) or not any(map(math.isfinite, defined)):
        return [None] * len(logprobs or ())
    return [round(p, 4) for p in normalized(logprobs)]


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


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
