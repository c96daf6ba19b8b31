"""A suite of one's own as a table laid out like a paper's: rows are methods, columns datasets."""
