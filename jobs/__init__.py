"""Assign samples to workers, here or on Slurm; the only package that handles nodes."""
