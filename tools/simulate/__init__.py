"""Simulations behind the table of warehouse/statistics/README.md (`python -m tools.simulate`) and others' tables."""
