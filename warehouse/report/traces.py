"""Traces for the viewer, in compressed chunks within the page's size limit.

A chunk is JSON, compressed with gzip and encoded as base64, so model output cannot act as HTML or script.
The browser decompresses a chunk when one of its traces is opened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import orjson

from warehouse.database import Connection, Record, Row, rows
from warehouse.report.facts import RunFacts

_BATCH = 256
"""Maximum number of traces per database query, except that all runs of one sample are read together."""
_CHUNK_BYTES = 300_000
"""Uncompressed size at which a chunk is closed."""
_BATCH_KEYS = "(SELECT unnest($run_ids) AS run_id, unnest($sample_ids) AS sample_id)"
_SAMPLE = f"""
SELECT sample.run_id, sample.sample_id, draft_prompt, target_prompt, error, num_attempts, seed, extracted, rule, detail
FROM sample JOIN sample_grade USING (run_id, sample_id) SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id)
"""
_STEP = f"""
SELECT run_id, sample_id, author, role, num_tokens, finish, elapsed_seconds, text,
    CASE WHEN decision_kind IS NOT NULL THEN {{
        'kind': decision_kind, 'value': round(if_finite(decision_value), 4),
        'threshold': round(if_finite(decision_threshold), 4), 'accepts_below': decision_accepts_below,
        'accepted': decision_accepted}} END AS decision
FROM step SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY step_index
"""
_VERDICT = f"""
SELECT run_id, sample_id, step_index, model, kind, question, options, decision, accepted,
    list_transform(probabilities(logprobs), lambda p: round(if_finite(p), 4)) AS probabilities,
    round(if_finite(mass), 4) AS mass, round(if_finite(score), 4) AS score
FROM verdict SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY step_index, verdict_index
"""
_CANDIDATE = f"""
SELECT run_id, sample_id, step_index, num_tokens, finish, option, accepted, text,
    round(if_finite(mean_logprob), 4) AS mean_logprob
FROM candidate SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY step_index, candidate_index
"""
_CALL = f"""
SELECT run_id, sample_id, step_index, purpose, model, n, prompt_tokens, cached_tokens, output_tokens,
    round(epoch(submitted_at - min(submitted_at) OVER (PARTITION BY run_id, sample_id)), 3) AS at,
    round(queued_seconds, 3) AS queued, round(first_token_seconds, 3) AS first_token, round(end_seconds, 3) AS ended,
    in_flight
FROM call SEMI JOIN {_BATCH_KEYS} AS batch USING (run_id, sample_id) ORDER BY call_index
"""
"""Column order matches `CALL` in viewer/trace.js."""

Key = tuple[str, str]
"""Run id and sample id."""


@dataclass
class Chunks:
    """The traces in the page."""

    packed: list[str] = field(default_factory=list)
    """Chunks: JSON objects of traces by "run/problem/sample index", compressed with gzip and encoded as base64."""
    places: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Index in `packed` by (run, problem, sample index)."""
    num_finished: int = 0
    """Number of samples with a trace, including those that are not in the page."""


def pack(value: object) -> str:
    """Return a value as JSON, compressed with gzip and encoded as base64 (letters, digits, `+`, `/` and `=`)."""
    return base64.b64encode(gzip.compress(orjson.dumps(value), compresslevel=6, mtime=0)).decode("ascii")


def pack_traces(
    connection: Connection, run_ids: Sequence[str], samples: Samples, order: Sequence[tuple[int, int]], room_bytes: int
) -> Chunks:
    """Pack the traces of all runs into at most room_bytes, in the given order of (problem, sample index)."""
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
"""(run, problem, sample index), and the trace in JSON."""


def _traces(
    connection: Connection,
    run_ids: Sequence[str],
    finished: list[dict[tuple[int, int], str]],
    order: Sequence[tuple[int, int]],
) -> Iterator[list[Placed]]:
    """Yield, for each (problem, sample index) of `order`, the traces of all runs."""
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


def _read(connection: Connection, keys: Sequence[Key]) -> dict[Key, Row]:
    def selected(sql: str) -> Iterator[tuple[Key, Row]]:
        batch = {"run_ids": [run for run, _ in keys], "sample_ids": [sample for _, sample in keys]}
        for row in rows(connection, sql, batch):
            yield (row.pop("run_id"), row.pop("sample_id")), row

    traces = {key: _cut(row) | {"steps": [], "calls": []} for key, row in selected(_SAMPLE)}
    for key, row in selected(_STEP):
        traces[key]["steps"].append(_cut(row) | {"verdicts": [], "candidates": []})
    for of_step, sql in (("verdicts", _VERDICT), ("candidates", _CANDIDATE)):
        for key, row in selected(sql):
            traces[key]["steps"][row.pop("step_index")][of_step].append(_cut(row))
    for key, row in selected(_CALL):
        traces[key]["calls"].append(list(row.values()))
    return traces


def _cut(row: Record) -> Row:
    return {name: cut(value) if isinstance(value, str) else value for name, value in row.items()}


MAX_TEXT = 50_000
"""Maximum text length in characters; longer texts are truncated with a note."""

_PROBLEMS = """
SELECT problem_id, content_hash, level, subject, text, answer, choices
FROM problem WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
WITH decided AS (
    SELECT sample_id, count(*) AS num_decisions, count(*) FILTER (NOT accepted) AS num_rejected
    FROM decision WHERE run_id = $run_id GROUP BY sample_id
)
SELECT problem_id, sample_index, sample_id, verdict, graded, stop_reason, round(latency_seconds, 2) AS latency_seconds,
    coalesce(num_steps, 0) AS num_steps, coalesce(num_decisions, 0) AS num_decisions,
    coalesce(num_rejected, 0) AS num_rejected, coalesce(emitted_tokens, 0) AS emitted_tokens,
    coalesce(spent_tokens, 0) AS spent_tokens
FROM wide_sample LEFT JOIN decided USING (sample_id) WHERE run_id = $run_id
"""


@dataclass
class Samples:
    """Distinct problems of all runs, and each run's samples, ordered by problem and sample index."""

    problems: list[Row] = field(default_factory=list)
    runs: list[list[Row]] = field(default_factory=list)
    """One row per sample for each run; `problem` is an index in `problems`."""


def read_samples(connection: Connection, runs: Sequence[RunFacts]) -> Samples:
    """Read all samples of all runs. Problems are equal if id and content are equal."""
    samples, places = Samples(), dict[tuple[str, str], int]()
    for run in runs:
        run_places = {}
        problem_rows: list[Row] = rows(connection, _PROBLEMS, {"run_id": run.summary.run_id})
        for row in problem_rows:
            key = (row["problem_id"], row["content_hash"])
            if key not in places:
                places[key] = len(samples.problems)
                samples.problems.append({**row, "text": cut(row["text"])})
            run_places[row["problem_id"]] = places[key]
        sample_rows = rows(connection, _SAMPLES, {"run_id": run.summary.run_id})
        placed = [{**row, "problem": run_places[str(row["problem_id"])]} for row in sample_rows]
        samples.runs.append(sorted(placed, key=itemgetter("problem", "sample_index")))
    return samples


def viewing_order(samples: Samples) -> list[tuple[int, int]]:
    """Return (problem, sample index) of every finished sample, in the order of inclusion in the report.

    First: a correct and a wrong sample of each problem on which runs differ. Then the first sample of every problem,
    the second, and so on. Problems are ordered by content hash, so omitted traces are effectively random.
    """
    ranks = [hashlib.sha256(p["content_hash"].encode()).hexdigest() for p in samples.problems]
    flipped = _flipped(samples)
    finished = {(s["problem"], s["sample_index"]) for run in samples.runs for s in run if s["stop_reason"] is not None}
    return sorted(finished, key=lambda u: (u not in flipped, u[1], ranks[u[0]], u[0]))


def index(samples: Samples, chunks: dict[tuple[int, int, int], int]) -> Row:
    """Return the viewer's index. chunks: chunk number by (run, problem, sample index)."""
    names = (
        "problem", "sample_index", "verdict", "graded", "stop_reason", "num_steps", "num_decisions", "num_rejected",
        "emitted_tokens", "spent_tokens", "latency_seconds", "chunk",
    )  # fmt: skip
    columns_by_run = []
    for place, run in enumerate(samples.runs):
        for sample in run:
            sample["chunk"] = chunks.get((place, sample["problem"], sample["sample_index"]), -1)
        columns_by_run.append({name: [sample[name] for sample in run] for name in names})
    problems = [
        {k: p[k] for k in ("problem_id", "level", "subject", "text", "answer", "choices")} for p in samples.problems
    ]
    return {"problems": problems, "samples": columns_by_run}


def cut(text: str | None) -> str | None:
    """Truncate a text to `MAX_TEXT` characters, with a note on the omitted characters."""
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT} more characters omitted from this report]"


def _flipped(samples: Samples) -> set[tuple[int, int]]:
    """Return (problem, sample index) of each run's first correct and wrong sample of problems on which runs differ."""
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
