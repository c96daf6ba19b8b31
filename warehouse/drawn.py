"""How many samples of a run are drawn, in words: a run in waves has fewer than all, and unequally many per problem."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Protocol


class Drawn(Protocol):
    """What a run's summary says of its samples."""

    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def fewest(self) -> int: ...
    @property
    def num_planned(self) -> int: ...
    @property
    def all_samples(self) -> int: ...
    @property
    def waves(self) -> Sequence[int] | None: ...
    @property
    def wave(self) -> int | None: ...
    @property
    def first_wave(self) -> int | None: ...
    @property
    def decision(self) -> str | None: ...
    @property
    def is_greedy(self) -> bool: ...


def per_problem(run: Drawn) -> str:
    """Return the samples per problem, such as `16`, or `5–11` where problems have unequal numbers."""
    return str(run.k) if run.fewest == run.k else f"{run.fewest}–{run.k}"


def size(run: Drawn) -> str:
    """Return problems × samples, such as `40 × 16`, or `40 × 5–11`."""
    return f"{run.n} × {per_problem(run)}"


def stopped(run: Drawn) -> list[str]:
    """Return a line where not all samples of a run were drawn, with what was decided without them."""
    total = run.n * run.all_samples
    if run.num_planned >= total:
        return []
    drawn = f"{run.num_planned} of {total} samples are drawn, {per_problem(run)} of a problem"
    over = f" pass@k and maj@k are over the first {run.first_wave} of every problem." if run.first_wave else ""
    if run.decision is None:
        at = f", in wave {run.wave} of {len(run.waves)}" if run.waves else ""
        return [f"NOT ALL SAMPLES DRAWN: {drawn}{at}; nothing is decided yet.{over}"]
    return [f"STOPPED BY DECISION: {run.decision}; {drawn}, and the others were not needed.{over}"]


def repeated(run: Drawn) -> list[str]:
    """Return a line where the samples of a problem repeat each other."""
    if not run.is_greedy or run.k < 2:
        return []
    return [
        f"GREEDY: no model was sampled, so that the {per_problem(run)} samples of a problem repeat the first and count "
        "as one: there is no pass@k."
    ]


def completion(run: str, num_not_run: int) -> str:
    """Return the command that runs the missing samples of a run, or grades them where all have run."""
    return f"python -m jobs {'resume' if num_not_run else 'finalize'} {quote(run)}"


def is_stopped(run: Drawn) -> bool:
    """Return whether samples were not drawn because the run's comparison was decided without them."""
    return run.decision is not None and run.num_planned < run.n * run.all_samples
