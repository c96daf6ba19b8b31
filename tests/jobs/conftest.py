"""Fixtures of the tests of jobs."""

from tests.jobs.slurm.fake import slurm

__all__ = ["slurm"]
