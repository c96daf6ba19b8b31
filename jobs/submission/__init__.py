"""Submission to a cluster: shards that need a job, the code archive, array jobs."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 the python of a profile is often a container's
    version = sys.version.split()[0]
    sys.exit(f"error: {sys.executable} ({version}) is too old: the python of the profile must be 3.11 or later")
