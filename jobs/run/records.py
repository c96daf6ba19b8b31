"""The record of each finished sample that counts, read from the trace files of a run.

That is its first record that did not end in an error, else its first of all; the warehouse counts the same one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from jobs.run import trace_files
from jobs.run.folder import RunFolder


def counting_records(run: RunFolder, columns: Sequence[str], *, failed: bool = True) -> Iterator[dict[str, Any]]:
    """Each finished sample once: `sample_id`, `stop_reason` and the given columns, nested ones by their path.

    Without `failed`, samples that ended in an error every time are left out. What a damaged file held counts as not
    finished.
    """
    files = sorted(run.parts_dir.glob("*.parquet"))
    good = _good(files) if failed else set()
    seen: set[str] = set()
    for file in files:
        with contextlib.suppress(*trace_files.DAMAGED):
            for row in trace_files.iterate_rows(file, ["sample_id", "stop_reason", *columns]):
                sample_id = row["sample_id"]
                if row["stop_reason"] is None or sample_id in seen:
                    continue
                if row["stop_reason"] == "error" and (not failed or sample_id in good):
                    continue
                seen.add(sample_id)
                yield row


def _good(files: Sequence[Path]) -> set[str]:
    """Samples with a record that did not end in an error."""
    found: set[str] = set()
    for file in files:
        endings = trace_files.endings(file)
        found.update(endings["sample_id"].filter(pc.not_equal(endings["stop_reason"], "error")).to_pylist())
    return found
