"""The published tables: the runs they need, their conditions, and our values beside the published ones."""
