"""`--latency-sample`: what is valid, and what is said of it before a launch."""

from __future__ import annotations

from harness.plural import counted
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.timing import folder

FLAG = "--latency-sample"


def check(asked: int | None, spec: RunSpec, run: RunFolder) -> None:
    """Raise ValueError, one line, where a run cannot time so many samples."""
    if asked is None:
        return
    if asked > spec.num_samples:
        raise ValueError(f"{FLAG} {asked}: the run has {counted(spec.num_samples, 'sample')}; valid: 1 to that many")
    if spec.concurrency == 1:
        raise ValueError(
            f"{FLAG} {asked}: with --concurrency 1 every sample runs alone already; leave out one of the two"
        )
    before = folder.num_asked(run)
    if before and before != asked and run.exists() and folder.of(run).draw_path.exists():
        raise ValueError(
            f"{FLAG} {asked}: {run.path.name} has drawn {before} samples to time; valid: {before}, or --tag NAME for a "
            "run of its own"
        )


def num_left(asked: int | None, run: RunFolder) -> int:
    """Return how many samples a launch would still time: those asked for here, else those asked for earlier."""
    if run.exists() and (folder.num_asked(run) or asked is None):
        return folder.progress(run).left
    return asked or 0


def in_words(asked: int | None) -> list[str]:
    """Return a line about the timing samples of a launch; none where there are none."""
    return [] if asked is None else [f"{counted(asked, 'sample')} again, one at a time, for the latency"]
