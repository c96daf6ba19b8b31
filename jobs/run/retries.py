"""The rule for retries: a sample that ended in an error counts as finished unless it was granted a retry.

Grants are recorded in the run's events (`retries`) and only accumulate; no record of an attempt is ever removed. If all
records of a sample ended in an error, the sample is run again until it has more records than grants. `jobs
retry-failed` grants retries, and jobs.run.endings applies the rule; workers run the unfinished samples as usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobs.run.folder import RunFolder


def granted(run: RunFolder) -> Counter[str]:
    """Return the number of retries granted per sample."""
    return Counter(sample_id for event in run.events("retries") for sample_id in event["samples"])


def grant(run: RunFolder, failed: Sequence[str], at_most: int) -> list[str]:
    """Durably grant each failed sample one more retry, up to `at_most` retries per sample.

    Returns the ids of the samples that will be retried; the others are out of retries. The caller holds the run's
    `submission` lock, so two commands cannot grant at the same time.
    """
    before = granted(run)
    retried = [sample_id for sample_id in failed if before[sample_id] < at_most]
    if retried:
        run.append("retries", samples=retried)
    return retried
