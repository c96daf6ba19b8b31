"""Benchmarks of the warehouse: loading and views as it grows (`python -m warehouse.bench`), and the balance of shards
on recorded samples (`python -m warehouse.bench.makespan`)."""
