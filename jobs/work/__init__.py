"""The worker: runs shards of runs on engines."""
