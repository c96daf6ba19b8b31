"""SQL schema: stored tables, derived views, bundled queries, and the columns that describe the models of a run."""
