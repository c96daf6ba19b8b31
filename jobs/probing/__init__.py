"""Probes: what accepted and refused drafts were worth, found by continuing a run's chains from its decided steps."""
