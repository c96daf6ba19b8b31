"""Failed samples that are retried: a list that only grows; no record is ever removed.

A sample is finished when a record of it has no error, or when it failed more often than it was granted another try.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from jobs.run.endings import granted_retries, read_endings
from jobs.run.files import append_record
from jobs.run.folder import RunFolder


@dataclass(frozen=True)
class RetryRound:
    """What a round of retries did."""

    retried: list[str]
    """Ids of the samples that will be retried."""
    num_exhausted: int
    """Number of failed samples that are out of retries and stay as data."""


def grant(run: RunFolder, at_most: int) -> RetryRound:
    """Grant every failed sample one more try, but no sample more than `at_most` in all; durable when this returns."""
    with run.submission_lock():
        granted = granted_retries(run)
        failed = read_endings(run).failed.to_pylist()
        retried = [sample_id for sample_id in failed if granted[sample_id] < at_most]
        if retried:
            append_record(run.retries_path, {"granted_at": time.time(), "samples": retried}, run.spec_id() or "")
    return RetryRound(retried, len(failed) - len(retried))
