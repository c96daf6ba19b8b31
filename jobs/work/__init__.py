"""What a worker does on a node: run the samples of its shards."""
