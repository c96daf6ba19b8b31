"""A digest of a sample's whole trace: what was written, by whom, how it was judged, and what was asked of the engines.

Times, cached tokens and requests in flight are left out: they differ between two runs that do the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from harness.trace import Trace
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import trace_from_dict
from warehouse.database import Connection

_DIGITS = 6
"""Digits of probabilities and scores that count, so that the last bit of a logarithm decides nothing."""
_STEPS = """
SELECT sample_id, author, role, text, num_tokens, probabilities(verdict_logprobs), verdict_score, verdict_accepted,
    (SELECT list([candidate.text, candidate.num_tokens::VARCHAR, candidate.accepted::VARCHAR] ORDER BY candidate_index)
    FROM candidate WHERE (candidate.run_id, candidate.sample_id, candidate.step_index)
        = (step.run_id, step.sample_id, step.step_index))
FROM step WHERE run_id = ? ORDER BY sample_id, step_index
"""
_CALLS = """
SELECT sample_id, purpose, model, step_index, n, prompt_tokens, output_tokens, longest_output_tokens
FROM call WHERE run_id = ? ORDER BY sample_id, call_index
"""
_ENDINGS = "SELECT sample_id, stop_reason FROM sample WHERE run_id = ? ORDER BY sample_id"


def in_warehouse(connection: Connection, run_id: str) -> dict[str, str]:
    """The digest of every sample of a loaded run."""
    steps: dict[str, list[object]] = {}
    calls: dict[str, list[object]] = {}
    for sample_id, *step, probabilities, score, accepted, offered in connection.execute(_STEPS, [run_id]).fetchall():
        steps.setdefault(sample_id, []).append([*step, _rounded(probabilities), _number(score), accepted, offered])
    for sample_id, *call in connection.execute(_CALLS, [run_id]).fetchall():
        calls.setdefault(sample_id, []).append(call)
    endings = connection.execute(_ENDINGS, [run_id]).fetchall()
    return {sample: _digest(reason, steps.get(sample, []), calls.get(sample, [])) for sample, reason in endings}


def in_trace_files(run: RunFolder) -> dict[str, list[str]]:
    """The digests of every finished sample of a run folder; one that has several records has several digests."""
    found: dict[str, list[str]] = {}
    for path in run.trace_files():
        for row in trace_files.read_rows(path):
            trace = trace_from_dict(row)
            found.setdefault(trace.sample_id, []).append(of_trace(trace))
    return found


def of_trace(trace: Trace) -> str:
    """The digest of one trace."""
    steps = [
        [
            *(step.author, step.role, step.text, step.num_tokens),
            _rounded(step.verdict.probabilities if step.verdict else None),
            _number(step.verdict.score if step.verdict else None),
            step.verdict.accepted if step.verdict else None,
            [[c.text, str(c.num_tokens), str(c.accepted).lower()] for c in step.candidates] or None,
        ]
        for step in trace.steps
    ]
    calls = [
        [c.purpose, c.model, c.step, c.n, c.prompt_tokens, c.output_tokens, c.longest_output_tokens]
        for c in trace.calls
    ]
    return _digest(trace.stop_reason, steps, calls)


def of_lines(lines: Iterable[str]) -> str:
    """The digest of many ids or digests, in their order."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _digest(stop_reason: str | None, steps: Sequence[object], calls: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([stop_reason, steps, calls]).encode()).hexdigest()[:32]


def _rounded(probabilities: Iterable[float] | None) -> list[float] | None:
    return None if probabilities is None else [round(p, _DIGITS) + 0.0 for p in probabilities]


def _number(score: float | None) -> float | None:
    return None if score is None else round(score, _DIGITS)
