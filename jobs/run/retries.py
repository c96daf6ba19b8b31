"""The rule for retries: a sample that ended in an error is finished, as data, unless it was granted another try.

The grants stand among the run's events (`retries`) and only grow; no record of a try is ever removed. A sample whose
records all end in an error is to be run again while it has no more of them than grants. `jobs retry-failed` grants;
jobs.run.endings counts by this rule, and workers then run what is not finished, as always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobs.run.folder import RunFolder


def granted(run: RunFolder) -> Counter[str]:
    """Return how many further tries each sample was granted."""
    return Counter(sample_id for event in run.events("retries") for sample_id in event["samples"])


def grant(run: RunFolder, failed: Sequence[str], at_most: int) -> list[str]:
    """Grant failed samples one more try, but none more than `at_most` in all; durable when this returns.

    Returns the ids of the samples that will be retried; the others are out of retries and stay as data. The run's lock
    `submission` is held, so that nobody is granted two tries at once.
    """
    before = granted(run)
    retried = [sample_id for sample_id in failed if before[sample_id] < at_most]
    if retried:
        run.append("retries", samples=retried)
    return retried
