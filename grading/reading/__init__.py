"""Readers of mathematical text: from a string of LaTeX or plain text to numbers, sets, units and expressions."""
