"""Runs that go on from the chains of another run, and what is made of them."""
