"""Checks of whether a machine can execute a run."""
