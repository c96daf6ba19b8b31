"""The content of a run without times and paths, to compare it with an undisturbed run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jobs.finished.grading import finished_samples
from jobs.run.folder import RunFolder

_ROWS = {
    "sample": "sample_id, stop_reason, seed",
    "step": "sample_id, step_index, author, text, num_tokens, finish",
    "candidate": "sample_id, step_index, candidate_index, text, accepted",
    "call": "sample_id, call_index, step_index, purpose, model, prompt_tokens, output_tokens",
    "sample_grade": "sample_id, verdict, graded",
}
"""Tables and views of the warehouse, with the columns whose values no kill may change."""


@dataclass(frozen=True)
class Content:
    """Content of a run."""

    texts: dict[str, str]
    pass_at_1: tuple[Any, ...]
    rows: dict[str, tuple[int, int]]
    """Number of rows of each table, and a hash over them in any order."""
    lost: int
    """Number of planned samples that are missing."""
    doubled: int
    """Number of samples that occur more than once, in trace files or in the warehouse."""


def content(run: RunFolder, database: Path) -> Content:
    """Read a run and its rows of a warehouse."""
    import duckdb

    planned = [unit.sample_id for shard in run.shards() for unit in shard]
    samples = list(finished_samples(run))
    counts = Counter(sample["sample_id"] for sample, _ in samples)
    with duckdb.connect(str(database), read_only=True) as connection:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return connection.execute(sql, [run.path.name]).fetchall()

        rows = {
            name: ask(f"SELECT count(*), coalesce(bit_xor(hash({columns})), 0) FROM {name} WHERE run_id = ?")[0]
            for name, columns in _ROWS.items()
        }
        in_warehouse = Counter(dict(ask("SELECT sample_id, count(*) FROM sample_grade WHERE run_id = ? GROUP BY ALL")))
        pass_at_1 = ask("SELECT pass_at_1 FROM pass_at_1 WHERE run_id = ?")
    lost = {sample for sample in planned if not counts[sample] or not in_warehouse[sample]}
    doubled = {sample for sample in counts | in_warehouse if counts[sample] > 1 or in_warehouse[sample] > 1}
    texts = {sample["sample_id"]: text for sample, text in samples}
    return Content(texts, tuple(pass_at_1), rows, len(lost), len(doubled))


def differences(found: Content, expected: Content) -> list[str]:
    """Return the differences from an undisturbed run, one line each."""
    lines = [f"{name}: {count}" for name in ("lost", "doubled") if (count := getattr(found, name))]
    if wrong := sum(found.texts.get(sample) != text for sample, text in expected.texts.items()):
        lines.append(f"texts: {wrong} of {len(expected.texts)} differ")
    if found.pass_at_1 != expected.pass_at_1:
        lines.append(f"pass@1: {found.pass_at_1} instead of {expected.pass_at_1}")
    for name, rows in expected.rows.items():
        if found.rows[name] != rows:
            lines.append(f"rows of {name}: {found.rows[name]} instead of {rows}")
    return lines


def summary(found: Content) -> dict[str, Any]:
    """Return a content as JSON without its texts."""
    assert {field.name for field in fields(found)} >= {"texts"}
    return {name: value for name, value in asdict(found).items() if name != "texts"} | {"samples": len(found.texts)}
