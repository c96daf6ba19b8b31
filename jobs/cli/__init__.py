"""The commands of `python -m jobs`, by what they are for; `jobs/__main__.py` makes one command of them."""
