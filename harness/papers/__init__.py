"""The papers' settings, prompts, and published tables and figures, as data."""
