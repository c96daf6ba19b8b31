"""Checks that a machine can execute a run, without loading a model: a module per subject; `every` runs all."""
