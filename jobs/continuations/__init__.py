"""Runs that continue the chains of another run, and their evaluation."""
