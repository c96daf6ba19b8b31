"""The exit codes of all commands; docs/formats.md shows this as a table."""

from __future__ import annotations

DONE = 0
"""Everything that was asked for is done, or the verdict on a night is PASS."""
TROUBLE = 1
"""Something failed, a check found something, or the verdict on a night is FAIL."""
WRONG_INPUT = 2
"""The command was asked for something that it cannot do and ran nothing, or no verdict on a night was possible."""
WARN = 3
"""The verdict on a night is WARN."""
INCONCLUSIVE = 4
"""The verdict on a night is INCONCLUSIVE."""
OUT_OF_TIME = 75
"""A worker that shares a Slurm task with others has run out of time, and the task is requeued."""
OUT_OF_TIME_AT_ONCE = 76
"""Such a worker has run out of time before it did anything."""
ASKS_FOR_REQUEUE = 85
"""A task in a container asks the batch script to requeue the job."""
INTERRUPTED = 130
"""The command was interrupted with Ctrl-C."""
