"""Handing shards to a cluster: the decision what to submit, the code snapshot, the array job."""
