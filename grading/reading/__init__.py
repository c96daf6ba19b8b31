"""Readers of mathematical text: from LaTeX or plain text to numbers, sets, units and expressions."""
