"""Watching a run: status, progress and recent speed."""
