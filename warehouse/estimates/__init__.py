"""Estimates with their intervals: computed once, at the end of a load, and stored as rows of the table `estimate`."""
