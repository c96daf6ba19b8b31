"""The exit codes of all commands; jobs/README.md has the same as a table, which a test compares with this."""

from __future__ import annotations

DONE = 0
"""All that was asked for is done; of a night: PASS."""
TROUBLE = 1
"""Something failed, or a check found something; of a night: FAIL."""
WRONG_INPUT = 2
"""The command was asked for something that it cannot do; nothing was run. Of a night: no verdict was possible."""
WARN = 3
"""Of a night: WARN."""
INCONCLUSIVE = 4
"""Of a night: INCONCLUSIVE."""
OUT_OF_TIME = 75
"""Of a worker beside others in a task of Slurm: its time is up, and the task is requeued."""
OUT_OF_TIME_AT_ONCE = 76
"""The same where it has done nothing."""
ASKS_FOR_REQUEUE = 85
"""Of a task in a container: the batch script is to requeue the job."""
INTERRUPTED = 130
"""Ctrl-C."""
