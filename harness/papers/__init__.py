"""The papers' settings, their published tables and figures as data, and what the latency model makes of them."""
