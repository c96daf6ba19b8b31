"""Simulations behind the table of docs/statistics.md (`python -m tools.simulate`) and others' tables."""
