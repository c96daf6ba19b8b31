"""Checks for what killed processes have left in a machine's memory."""

from __future__ import annotations

from collections.abc import Iterator

from harness.checks.finding import Check, warning
from harness.engines import shared_memory
from harness.plural import counted


def check_left_overs() -> Iterator[Check]:
    """Warn of segments of shared memory of this user that nothing uses; nothing is removed, and none is no check."""
    sizes = {path: path.stat().st_size for path in shared_memory.unused() if path.exists()}
    if sizes:
        are = counted(len(sizes), "segment is", "segments are")
        yield warning(
            "left-overs",
            f"{are} left in memory, {sum(sizes.values()) / 2**30:.1f} GiB, such as {next(iter(sizes))}: remove what no "
            "container of yours on this machine uses",
        )
