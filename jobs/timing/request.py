"""`--latency-sample`: what is valid, and what is said of it before a launch."""

from __future__ import annotations

from collections.abc import Iterable

from harness.engines.placement import core_lists
from harness.environment import accelerator
from harness.methods import build
from harness.plural import counted
from harness.problems.problem import Problem
from harness.sizing.run_sizing import small_models
from jobs.run.folder import RunFolder
from jobs.run.sizing import sizing_of
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


def split_cores_notice(asked: int | None, spec: RunSpec, problems: Iterable[Problem]) -> str | None:
    """Return a warning where samples are timed on other cores of this machine than a run would have that does so alone.

    None where the engines are on GPUs, take turns, or have the same cores with all samples in flight as with one.
    """
    if asked is None or not spec.engine.can.has_processes or spec.engine.take_turns or accelerator() != "cpu":
        return None
    sizing = sizing_of(spec, build(spec.method, dict(spec.params)), problems)
    ranks = {role: spec.settings[role].tensor_parallel or 1 for role in sizing.roles}
    cores, alone = (core_lists(sizing.roles, ranks, n, small=small_models(sizing)) for n in (spec.concurrency, 1))
    if cores == alone:
        return None
    return (
        f"{FLAG} {asked}: on a CPU the samples are timed on the cores that the engines have in full batches, where a "
        "run with --concurrency 1 has others, so latency and speed-up are not those of such a run."
    )


def num_left(asked: int | None, run: RunFolder) -> int:
    """Return how many samples a launch would still time: those asked for here, else those asked for earlier."""
    if run.exists() and (folder.num_asked(run) or asked is None):
        return folder.progress(run).left
    return asked or 0


def in_words(asked: int | None) -> list[str]:
    """Return a line about the timing samples of a launch; none where there are none."""
    return [] if asked is None else [f"{counted(asked, 'sample')} again, one at a time, for the latency"]
