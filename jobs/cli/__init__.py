"""The commands of `python -m jobs`, grouped by purpose; `jobs/__main__.py` assembles them."""
