"""The cost of a death: the recorded calls of models that had to be made again."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal

Call = tuple[str, float]
"""Sample id and submission time of a call; no two calls of a sample have the same time."""


@dataclass
class Witness:
    """The content of a run folder at the moment before something in it died."""

    run: RunFolder
    calls: set[Call] = field(default_factory=set)
    steps: int = 0
    """Accepted steps of samples that had not ended."""

    def look(self) -> None:
        """Add what is recorded now to what was recorded at earlier looks."""
        self.steps = 0
        for path in self.run.journals():
            try:
                journal = read_journal(path)
            except FileNotFoundError:
                continue
            for trace in [*journal.finished.values(), *journal.unfinished.values()]:
                self.calls |= {(trace.sample_id, call.submitted_at) for call in trace.calls}
            self.steps += sum(len(trace.steps) for trace in journal.unfinished.values())
        self.calls |= calls_of_finished(self.run)

    def lost(self) -> int:
        """Return how many of the calls seen are in no finished sample now."""
        return len(self.calls - calls_of_finished(self.run))


def calls_of_finished(run: RunFolder) -> set[Call]:
    calls: set[Call] = set()
    for path in run.trace_files():
        try:
            rows = list(trace_files.iterate_rows(path, ["sample_id", "calls.list.element.submitted_at"]))
        except (FileNotFoundError, *trace_files.DAMAGED):
            continue
        calls |= {(row["sample_id"], float(call["submitted_at"] or 0.0)) for row in rows for call in row["calls"]}
    return calls
