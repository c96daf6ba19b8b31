"""Read traces and grades, write tables, and answer questions about runs."""
