"""The exit codes of all commands; docs/formats.md shows this as a table."""

from __future__ import annotations

DONE = 0
"""Success, or the verdict on a night is PASS."""
TROUBLE = 1
"""A failure, a failed check, or the verdict on a night is FAIL."""
WRONG_INPUT = 2
"""Invalid input, nothing was run; or no verdict on a night was possible."""
WARN = 3
"""The verdict on a night is WARN."""
INCONCLUSIVE = 4
"""The verdict on a night is INCONCLUSIVE."""
OUT_OF_TIME = 75
"""A worker in a shared Slurm task reached the time limit; the task is requeued."""
OUT_OF_TIME_AT_ONCE = 76
"""A worker in a shared Slurm task reached the time limit before doing any work."""
ASKS_FOR_REQUEUE = 85
"""A task in a container requests that the batch script requeue the job."""
INTERRUPTED = 130
"""Interrupted with Ctrl-C."""
