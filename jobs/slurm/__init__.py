"""Slurm: queries through its commands, cluster profiles, and checks that it works."""
