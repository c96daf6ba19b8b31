"""Estimators and tests: pure functions over arrays. docs/statistics.md has their error rates."""
