"""The final answer of a chain: its tokens and its time, by the rule that insert_totals.sql has for `sample_answer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.weights.templates import CLOSE

_WHITE = " \n\t\r"


def answer_of(record: Mapping[str, Any], attempt: Mapping[str, Any]) -> tuple[float, float]:
    """Return the tokens and the seconds of a chain's final answer, 0 where it has none.

    `record` is a row of a trace file, `attempt` the record of the attempt that wrote it.
    """
    steps: Sequence[Mapping[str, Any]] = record["steps"] or ()
    thought = [index for index, step in enumerate(steps) if CLOSE in step["text"]]
    tokens, seconds = 0.0, 0.0
    for index, step in enumerate(steps):
        if (thought and index >= thought[-1]) or (not thought and step["role"] == "answer"):
            share = _share(step, attempt) if thought and index == thought[-1] else None
            tokens += step["num_tokens"] * (1.0 if share is None else share)
            seconds += sum(_seconds(call, step, share) for call in record["calls"] or () if call["step"] == index)
    return tokens, seconds


def _share(step: Mapping[str, Any], attempt: Mapping[str, Any]) -> float:
    """Return how much of the step that ends the thought is behind its end."""
    behind = len(step["text"].rpartition(CLOSE)[2].strip(_WHITE))
    if not behind:
        return 0.0
    end = ((attempt.get("engines") or {}).get(step["author"]) or {}).get("think_end_id")
    ids = list(reversed(step["token_ids"] or ()))
    if end is not None and end in ids and step["num_tokens"]:
        return min(1.0, float(ids.index(end) / step["num_tokens"]))
    return min(1.0, behind / len(step["text"]))


def _seconds(call: Mapping[str, Any], step: Mapping[str, Any], share: float | None) -> float:
    """Return the time of a call that is the answer's; `share` of what was written, or all of the call for None."""
    if call["purpose"] == "lookahead":
        return 0.0
    waited = float(call["end_seconds"] - (call["overlapped_seconds"] or 0.0))
    if share is None:
        return waited
    if call["model"] != step["author"] or call["purpose"] == "verdict":
        return 0.0
    return share * min(float(call["end_seconds"] - call["first_token_seconds"]), waited)
