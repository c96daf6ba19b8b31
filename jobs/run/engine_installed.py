"""Whether the Python of this process has the packages that a run's engine needs."""

from __future__ import annotations

import sys

from harness.engines import registry


def check_worker(kind: str) -> None:
    """Raise ValueError where this worker cannot start the engine of its run."""
    if missing := _missing(kind):
        raise ValueError(
            f"the run needs the engine {kind}, and {missing}: install it "
            "there, name another python in the profile, or launch with another --engine"
        )


def check_launch(kind: str, *, on_slurm: bool) -> None:
    """Raise ValueError where the workers of a launch, which run in this Python, could not start its engine."""
    if missing := _missing(kind):
        profile = "name another python in the profile, " if on_slurm else ""
        raise ValueError(
            f"--engine {kind}: {missing}: install vLLM there (python -m harness.installation, or pip install "
            f"'speculative-reasoning-harness[engine]'), {profile}or choose --engine scripted, which runs no model"
        )


def _missing(kind: str) -> str:
    packages = registry.missing_packages(kind)
    return f"{sys.executable} has no {' and no '.join(packages)}" if packages else ""
