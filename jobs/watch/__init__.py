"""Progress, status and exit reasons of runs."""
