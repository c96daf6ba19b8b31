"""The section cache: cached prompt tokens, as a share of all and of those that could have been cached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench.drive import RecordedCall, Run
from harness.bench.setting import Bench
from harness.bench.table import Table
from harness.engine import Role
from harness.trace import Purpose

GOAL = 0.9


@dataclass
class PromptTokens:
    """Counts of prompt tokens over a group of calls."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0
    reusable: int = 0
    reused: int = 0
    """Reusable tokens that were cached."""


def measure(bench: Bench) -> list[Table]:
    """Return one table per regime, from the runs of the other sections."""
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
        groups: dict[tuple[str, Role, Purpose], PromptTokens] = defaultdict(PromptTokens)
        for run in runs:
            for sample in run.calls:
                for call, reusable in zip(sample, reusable_tokens(sample, bench.block_tokens), strict=True):
                    _count(groups[run.method, call.role, call.purpose], call, reusable)
        for (method, role, purpose), tokens in sorted(groups.items()):
            table.rows.append([method, role, purpose, *_cells(tokens)])
        if runs:
            table.rows.append(["all", "", "", *_cells(total(runs, bench.block_tokens))])
            tables.append(table)
    return tables


def total(runs: Sequence[Run], block_tokens: int) -> PromptTokens:
    """Return the counts over all calls of these runs."""
    tokens = PromptTokens()
    for sample in (sample for run in runs for sample in run.calls):
        for call, reusable in zip(sample, reusable_tokens(sample, block_tokens), strict=True):
            _count(tokens, call, reusable)
    return tokens


def reusable_tokens(calls: Sequence[RecordedCall], block_tokens: int) -> list[int]:
    """Return for each call of one sample how many prompt tokens its engine had already computed for earlier calls.

    They are whole cache blocks and never include the prompt's last token.
    """
    seen: dict[Role, list[Sequence[int]]] = defaultdict(list)
    counts = []
    for call in calls:
        num_seen = max((_common(call.prompt, ids) for ids in seen[call.role]), default=0)
        counts.append(min(num_seen, len(call.prompt) - 1) // block_tokens * block_tokens)
        seen[call.role] += [[*call.prompt, *ids[:-1]] for ids in call.outputs] or [call.prompt]
    return counts


def _count(tokens: PromptTokens, call: RecordedCall, reusable: int) -> None:
    tokens.calls += 1
    tokens.prompt += len(call.prompt)
    tokens.cached += call.cached
    tokens.reusable += reusable
    tokens.reused += min(call.cached, reusable)


def _cells(tokens: PromptTokens) -> list[int | float | None]:
    of_reusable = tokens.reused / tokens.reusable if tokens.reusable else None
    return [tokens.calls, tokens.prompt, tokens.cached / max(1, tokens.prompt), tokens.reusable, of_reusable]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
