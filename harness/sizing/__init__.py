"""Widths and memory shares of the engines on a worker's GPUs, calculated before any model is loaded."""
