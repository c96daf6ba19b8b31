"""Which samples run where; the only package that knows about nodes."""
