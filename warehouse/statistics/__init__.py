"""Estimators and tests: pure functions over arrays, independent of runs and database. README.md has the simulations."""
