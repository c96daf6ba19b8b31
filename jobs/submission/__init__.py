"""Submitting shards to a cluster: what needs a job, the archive of the code, the array job."""
