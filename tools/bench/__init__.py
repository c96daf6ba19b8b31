"""Benchmarks of the harness: its overhead over bare engines, and its own resource use."""
