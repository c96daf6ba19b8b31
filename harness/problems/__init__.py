"""Benchmark problems: the data model, the built-in benchmarks, and rows from the Hugging Face Hub."""
