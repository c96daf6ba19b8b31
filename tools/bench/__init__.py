"""Measurements of the harness itself: what it costs around bare engines, and what it needs on its own."""
