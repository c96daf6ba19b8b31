"""Load a run folder into the database: staging tables, row conversion, load report."""
