"""The cost of a death: the recorded calls of models that had to be made again."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.run import submissions, trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal

Call = tuple[str, float]
"""Sample id and submission time of a call; no two calls of a sample have the same time."""


@dataclass
class Witness:
    """The content of a run folder at the moment before something in it died."""

    run: RunFolder
    calls: set[Call] = field(default_factory=set)
    finished: int = 0
    under_way: int = 0
    """Samples with accepted steps that had not ended."""
    steps: int = 0
    """Accepted steps of these."""

    def look(self) -> None:
        """Add what is recorded now to what was recorded at earlier looks."""
        under_way: dict[str, int] = {}
        for path in self.run.journals():
            try:
                journal = read_journal(path)
            except FileNotFoundError:
                continue
            for trace in [*journal.finished.values(), *journal.unfinished.values()]:
                self.calls |= {(trace.sample_id, call.submitted_at) for call in trace.calls}
            under_way |= {trace.sample_id: len(trace.steps) for trace in journal.unfinished.values() if trace.steps}
        self.calls |= calls_of_finished(self.run)
        self.finished = len({sample for sample, _ in self.calls} - under_way.keys())
        self.under_way, self.steps = len(under_way), sum(under_way.values())

    def lost(self) -> int:
        """Return how many of the calls seen are in no finished sample now."""
        return len(self.calls - calls_of_finished(self.run))


@dataclass(frozen=True)
class Death:
    """A row of the table of deaths."""

    what: str
    finished: int
    under_way: int
    steps: int
    calls: int
    lost: int
    launches: int
    """Number of submissions to Slurm; 1: the run resumed by itself."""

    def __str__(self) -> str:
        cells = (self.what, self.finished, self.under_way, self.steps, self.calls, self.lost, self.launches)
        return "| " + " | ".join(map(str, cells)) + " |"


HEADER = (
    "| death | samples finished then | under way | with accepted steps | calls recorded | of these made again "
    "| submissions |\n|---|---|---|---|---|---|---|"
)


def death(what: str, witness: Witness) -> Death:
    """Return the row of a run that is complete now."""
    launches = len({submission.number for submission in submissions.read(witness.run)})
    seen = (witness.finished, witness.under_way, witness.steps, len(witness.calls))
    return Death(what, *seen, witness.lost(), launches)


def calls_of_finished(run: RunFolder) -> set[Call]:
    """Return the calls of the samples in trace files."""
    calls: set[Call] = set()
    for path in run.trace_files():
        try:
            rows = list(trace_files.iterate_rows(path, ["sample_id", "calls.list.element.submitted_at"]))
        except (FileNotFoundError, *trace_files.DAMAGED):
            continue
        calls |= {(row["sample_id"], float(call["submitted_at"] or 0.0)) for row in rows for call in row["calls"]}
    return calls
