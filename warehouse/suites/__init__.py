"""Published tables: required runs, their conditions, and our values next to the published ones."""
