"""One verdict a night over all cells: a pure function of what the warehouse holds."""
