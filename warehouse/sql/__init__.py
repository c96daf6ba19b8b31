"""SQL schema: stored tables, derived views, bundled queries, and the columns of models."""
