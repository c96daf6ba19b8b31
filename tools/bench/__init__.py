"""Benchmarks of the harness: overhead compared with bare engines, and resource use."""
