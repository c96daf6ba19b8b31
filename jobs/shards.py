"""The plan: which units each worker is given."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.spec import Unit


def deal(units: Sequence[Unit], shards: int) -> list[list[Unit]]:
    """Deal units to shards in turn, so that every shard sees every part of the dataset; empty shards are left out."""
    if shards < 1:
        raise ValueError(f"at least 1 shard is needed, not {shards}")
    return [shard for shard in (list(units[i::shards]) for i in range(shards)) if shard]
