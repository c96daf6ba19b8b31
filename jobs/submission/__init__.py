"""Submitting shards to a cluster: what needs a job, the code snapshot, the array job."""
