"""Tensor-parallel sizes and memory shares of the engines on a worker's GPUs, calculated before loading a model."""
