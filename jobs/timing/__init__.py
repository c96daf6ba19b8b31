"""Timing samples: some samples of a run again, one at a time, after all of them have ended in full batches."""
