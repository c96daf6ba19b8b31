"""Slurm: queries through its commands, and cluster profiles."""
