"""Failed samples that may be run once more: a list that grows; no record is ever taken back.

A sample is finished when a record of it has no error, or when it failed more often than it was granted another try.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from jobs.run.folder import RunFolder, append_record, read_records


@dataclass(frozen=True)
class Granted:
    """What a round of retries did."""

    retried: list[str]
    """Sample ids that will be run once more."""
    exhausted: int
    """Failed samples that have had all their tries, and stay as data."""


def granted(run: RunFolder) -> Counter[str]:
    """How many further tries each sample was granted; a torn last line grants nothing."""
    tries: Counter[str] = Counter()
    for record in read_records(run.retries_path):
        tries.update(record["samples"])
    return tries


def grant(run: RunFolder, at_most: int) -> Granted:
    """Grant every failed sample one more try, no sample more than `at_most` in all; durable when this returns."""
    from jobs.run.endings import read_endings

    with run.submission_lock():
        before = granted(run)
        failed = read_endings(run).failed.to_pylist()
        retried = [sample for sample in failed if before[sample] < at_most]
        if retried:
            append_record(run.retries_path, {"granted_at": time.time(), "samples": retried})
    return Granted(retried, len(failed) - len(retried))
