"""The schema in SQL: what is stored, what is derived, ready-made queries, and the columns of models."""
