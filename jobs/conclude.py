"""The former place of `jobs.after.conclude`: jobs that were queued before the move still name it."""

from jobs.after.conclude import conclude

__all__ = ["conclude"]
