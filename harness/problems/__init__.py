"""The problems of a benchmark: what one is, the benchmarks that are known by name, and the Hugging Face hub's rows."""
