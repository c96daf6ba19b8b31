"""Nights: their record, how they recover, and what is archived after years."""
