"""The section cache: cached prompt tokens as a share of all prompt tokens, and as a share of the reusable ones."""

from __future__ import annotations

from collections import defaultdict

from harness.engine import Role
from harness.trace import Purpose
from tools.bench.prefix_cache import GOAL, PromptTokens, reusable_tokens, total
from tools.bench.setting import Bench
from tools.bench.table import Table


def measure(bench: Bench) -> list[Table]:
    """Return one table per regime, from the runs of the other sections."""
    tables = []
    for regime, runs in bench.runs.items():
        table = Table(
            f"Prefix cache, {regime} runs",
            ["method", "model", "purpose", "calls", "prompt tokens", "cached", "reusable tokens", "cached of reusable"],
            notes=[
                f"reusable: prompt tokens that this engine had seen as a prefix for the same sample, in whole blocks "
                f"of {bench.block_tokens}; goal above {GOAL}. Tokens that another sample left in the cache count as "
                "cached, but not as reusable."
            ],
        )
        groups: dict[tuple[str, Role, Purpose], PromptTokens] = defaultdict(PromptTokens)
        for run in runs:
            for sample in run.calls:
                for call, reusable in zip(sample, reusable_tokens(sample, bench.block_tokens), strict=True):
                    groups[run.method, call.role, call.purpose].add(call, reusable)
        for (method, role, purpose), tokens in sorted(groups.items()):
            table.rows.append([method, role, purpose, *_cells(tokens)])
        if runs:
            table.rows.append(
                ["all", "", "", *_cells(total((sample for run in runs for sample in run.calls), bench.block_tokens))]
            )
            tables.append(table)
    return tables


def _cells(tokens: PromptTokens) -> list[int | float | None]:
    of_reusable = tokens.reused / tokens.reusable if tokens.reusable else None
    return [tokens.calls, tokens.prompt, tokens.cached / max(1, tokens.prompt), tokens.reusable, of_reusable]
