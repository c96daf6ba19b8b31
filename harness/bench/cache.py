"""The section cache: cached prompt tokens, as a share of all and of those that could have been cached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench.drive import RecordedCall
from harness.bench.setting import Bench
from harness.bench.table import Table
from harness.engine import Role
from harness.trace import Purpose

GOAL = 0.9


@dataclass
class Held:
    """Prompt tokens of some calls."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0
    reusable: int = 0
    reused: int = 0
    """Cached tokens, of the reusable ones."""


def measure(bench: Bench) -> list[Table]:
    """One table per regime, from the runs of the other sections."""
    tables = []
    for regime, runs in bench.runs.items():
        table = Table(
            f"Prefix cache, {regime} runs",
            ["method", "model", "purpose", "calls", "prompt tokens", "cached", "reusable tokens", "cached of reusable"],
            notes=[
                f"reusable: prompt tokens that this engine had seen as a prefix for the same sample, in whole blocks "
                f"of {bench.block_tokens}; goal above {GOAL}. What another sample left counts as cached only."
            ],
        )
        every = Held()
        held: dict[tuple[str, Role, Purpose], Held] = defaultdict(Held)
        for run in runs:
            for sample in run.calls:
                for call, reusable in zip(sample, reusable_tokens(sample, bench.block_tokens), strict=True):
                    _count(held[run.method, call.role, call.purpose], call, reusable)
                    _count(every, call, reusable)
        for (method, role, purpose), some in sorted(held.items()):
            table.rows.append([method, role, purpose, *_cells(some)])
        if runs:
            table.rows.append(["all", "", "", *_cells(every)])
            tables.append(table)
    return tables


def reusable_tokens(calls: Sequence[RecordedCall], block_tokens: int) -> list[int]:
    """Per call of one sample: tokens that its engine had computed for earlier ones; never the prompt's last token."""
    seen: dict[Role, list[Sequence[int]]] = defaultdict(list)
    found = []
    for call in calls:
        known = max((_common(call.prompt, ids) for ids in seen[call.role]), default=0)
        found.append(min(known, len(call.prompt) - 1) // block_tokens * block_tokens)
        seen[call.role] += [[*call.prompt, *ids[:-1]] for ids in call.outputs] or [call.prompt]
    return found


def _count(held: Held, call: RecordedCall, reusable: int) -> None:
    held.calls += 1
    held.prompt += len(call.prompt)
    held.cached += call.cached
    held.reusable += reusable
    held.reused += min(call.cached, reusable)


def _cells(held: Held) -> list[int | float | None]:
    of_reusable = held.reused / held.reusable if held.reusable else None
    return [held.calls, held.prompt, held.cached / max(1, held.prompt), held.reusable, of_reusable]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
