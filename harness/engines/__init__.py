"""Engines: vLLM, transformers, scripted."""
