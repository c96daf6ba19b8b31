"""Loading and views as the warehouse grows (`python -m tools.bench.warehouse`)."""
