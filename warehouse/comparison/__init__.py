"""Comparison of runs: differences between their manifests, and differences between their results."""
