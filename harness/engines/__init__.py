"""Engines: vLLM, transformers, model servers, scripted."""
