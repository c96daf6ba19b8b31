"""Models that a server already runs: its address, its requests and replies, and what it can give."""
