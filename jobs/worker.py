"""The former place of `jobs.work.worker`: array tasks that were queued before the move still name it."""

from jobs.work.worker import run_shard, run_shards

__all__ = ["run_shard", "run_shards"]
