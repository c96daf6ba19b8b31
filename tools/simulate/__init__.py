"""Simulations behind the tables of warehouse/statistics/README.md and harness/engines/README.md."""
