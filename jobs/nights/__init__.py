"""Nights: their settings and record, how they recover, who is told, and what is archived after years."""
