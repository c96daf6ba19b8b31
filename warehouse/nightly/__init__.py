"""One verdict per night over all cells: a pure function of the database."""
