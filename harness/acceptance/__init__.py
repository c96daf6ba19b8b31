"""Tests of a machine with real engines: what a user runs on a new node, and sends with a bug report."""
