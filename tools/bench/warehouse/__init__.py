"""Loading and views as the warehouse grows (`python -m tools.bench.warehouse`), and the balance of shards on recorded
samples (`python -m tools.bench.warehouse.makespan`)."""
