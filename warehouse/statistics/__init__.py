"""Estimators over arrays: pure functions that know no run and no database. README.md has their simulations."""
