"""Measures of the warehouse itself: how fast it loads and answers as it grows."""
