"""The exit codes of all commands; docs/formats.md has a table of them."""

from __future__ import annotations

DONE = 0
"""Success; for a nightly run, the verdict PASS."""
TROUBLE = 1
"""A failure or a failed check; for a nightly run, the verdict FAIL."""
WRONG_INPUT = 2
"""Invalid input, and nothing was run; for a nightly run, no verdict was possible."""
WARN = 3
"""For a nightly run, the verdict WARN."""
INCONCLUSIVE = 4
"""For a nightly run, the verdict INCONCLUSIVE."""
OUT_OF_TIME = 75
"""A worker reached the time limit in a Slurm task shared with other workers; the task is requeued."""
OUT_OF_TIME_AT_ONCE = 76
"""A worker reached the time limit before doing any work, in a Slurm task shared with other workers."""
ASKS_FOR_REQUEUE = 85
"""A task in a container requests that the batch script requeue the job."""
INTERRUPTED = 130
"""Interrupted with Ctrl-C."""
