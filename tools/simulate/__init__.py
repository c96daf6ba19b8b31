"""Simulations for the tables in docs/statistics.md (`python -m tools.simulate`) and elsewhere."""
