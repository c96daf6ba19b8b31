"""Reads traces and grades, writes tables, answers questions."""
