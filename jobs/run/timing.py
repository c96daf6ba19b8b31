"""The timing samples of a run, stored separately from its other samples and never read with them.

    runs/<run_id>/timing/journal/*.jsonl   journals of the attempts that timed samples
    runs/<run_id>/timing/traces/*.parquet  trace files of the timing samples

The number of timing samples is recorded in the run's events (the last one applies), and the drawn samples with strata
in derived/timing_draw-1.parquet. The draw is a stratified random sample with the run's seed. Samples are ordered by
level and, within levels, by length, alternately ascending and descending, so neighbors are similar across levels too.
Strata are equal-sized blocks of this order with equally many timing samples each (implicit stratification; Cochran,
Sampling Techniques, 1977, sections 5A.7 and 8.11): every stratum is large enough to estimate its variance, for any
number of levels.

A timing sample has its own id, derived from that of the sample it repeats. No plan lists it, so even a misplaced file
adds nothing to the run's samples. It also uses other random numbers: the prefix caches hold the original chain, and
would make an identical repeat faster than a new chain.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise

from harness.cli.messages import counted
from jobs.run import derived, trace_files
from jobs.run.files import is_held
from jobs.run.folder import Below, RunFolder
from jobs.run.journal import is_own_journal, read_journal
from jobs.run.spec import RunSpec

_DRAW = "timing_draw", "1"
_ID_DIGITS = 16
SAMPLES_PER_STRATUM = 4
"""Timed samples per stratum. Strata of two leave half of the timed samples as degrees of freedom to estimate the
variance within strata; strata of four leave three quarters."""


@dataclass(frozen=True)
class TimingFolder(RunFolder):
    """The files of a run's timing samples; all other files are those of the run itself."""

    journal_dir = Below("timing/journal")
    """Folder of the journals of the attempts that timed samples."""
    trace_files_dir = Below("timing/traces")
    """Folder of the trace files."""


def is_at_work(run: RunFolder) -> bool:
    """Return whether a worker is timing samples of a run."""
    return is_held(run.locks_dir / "timing.lock")


def timing_id(sample_id: str) -> str:
    """Return the id of the timing sample for a sample."""
    return hashlib.sha256(f"{sample_id} timed alone".encode()).hexdigest()[:_ID_DIGITS]


def request(run: RunFolder, samples: int) -> None:
    """Record how many samples of a run to time, if changed."""
    if samples != num_asked(run):
        run.append("timing", samples=samples)


def num_asked(run: RunFolder) -> int:
    """Return how many samples of a run to time."""
    asked = run.events("timing")
    return int(asked[-1]["samples"]) if asked else 0


def write_draw(run: RunFolder, drawn: Sequence[Drawn]) -> None:
    """Record which samples are timed, once for all attempts."""
    derived.write(run, *_DRAW, [asdict(one) for one in drawn])


def read_draw(run: RunFolder) -> list[Drawn] | None:
    """Return all samples with stratum and selection; None before the draw. Raises FileDamaged."""
    path = run.derived_path(*_DRAW)
    return [Drawn(**row) for row in trace_files.read_rows(path)] if path.exists() else None


def finished(run: RunFolder) -> set[str]:
    """Return the ids of the timing samples that have ended."""
    timings, ids = TimingFolder(run.path), run.ids()
    ended: set[str] = set()
    for path in timings.journals():  # read before the trace files: a compaction writes these first
        with contextlib.suppress(FileNotFoundError):  # compacted since the listing
            journal = read_journal(path)
            if is_own_journal(path, journal.attempt, ids):
                ended.update(journal.finished)
    return ended.union(*(trace_files.finished_ids(path) for path in timings.trace_files()))


@dataclass(frozen=True)
class Progress:
    """Timing progress of a run."""

    asked: int
    """Number of samples to time; below the requested number if fewer ended without an error and with an engine call."""
    done: int

    @property
    def left(self) -> int:
        """Samples not timed yet."""
        return self.asked - self.done


def progress(run: RunFolder) -> Progress:
    """Return a run's timing progress."""
    if not (asked := num_asked(run)):
        return Progress(0, 0)
    drawn = read_draw(run)
    if drawn is None:
        return Progress(asked, 0)
    wanted = {timing_id(one.sample_id) for one in drawn if one.is_timed}
    return Progress(len(wanted), len(wanted & finished(run)))


def check_request(asked: int | None, spec: RunSpec, run: RunFolder) -> None:
    """Raise a one-line ValueError if a run cannot time this many samples."""
    if asked is None:
        return
    if asked > spec.num_samples:
        raise ValueError(f"--latency-sample {asked}: the run has only {counted(spec.num_samples, 'sample')}")
    if spec.concurrency == 1:
        raise ValueError(
            f"--latency-sample {asked}: with --concurrency 1 every sample already runs alone; omit one of the two flags"
        )
    before = num_asked(run)
    if before and before != asked and run.exists() and run.derived_path(*_DRAW).exists():
        raise ValueError(
            f"--latency-sample {asked}: {run.path.name} already uses {before} timing samples; valid: {before}. "
            "To start a separate run, use --tag NAME"
        )


def num_left(asked: int | None, run: RunFolder) -> int:
    """Return how many samples a launch would still time; `asked`: the number it requests; None: the recorded number."""
    if run.exists() and (num_asked(run) or asked is None):
        return progress(run).left
    return asked or 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A sample that may be timed."""

    sample_id: str
    level: str
    """Level of its problem; empty if the benchmark has none."""
    length: int
    """Number of emitted tokens."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sample with its stratum, and whether it is timed."""

    sample_id: str
    stratum: int
    is_timed: bool


def draw(samples: Iterable[Ended], number: int, seed: str) -> list[Drawn]:
    """Assign samples to strata and select `number` of them, or all if there are fewer.

    The result depends only on samples, number and seed, not on the order of the samples.
    """
    ordered = _ordered(list(samples))
    number = min(number, len(ordered))
    if not number:
        return []
    strata = max(1, number // SAMPLES_PER_STRATUM)

    def rank(sample_id: str) -> str:
        return hashlib.sha256(f"{seed} {sample_id}".encode()).hexdigest()

    drawn: list[Drawn] = []
    for stratum, (block, size) in enumerate(zip(_parts(len(ordered), strata), _parts(number, strata), strict=True)):
        members = ordered[block.start : block.stop]
        chosen = set(sorted((one.sample_id for one in members), key=rank)[: len(size)])
        drawn += [Drawn(one.sample_id, stratum, one.sample_id in chosen) for one in members]
    return drawn


def _ordered(samples: Sequence[Ended]) -> list[Ended]:
    ordered: list[Ended] = []
    by_level = sorted(samples, key=lambda one: (one.level, one.length, one.sample_id))
    for number, (_, of_level) in enumerate(groupby(by_level, key=lambda one: one.level)):
        ordered += list(of_level)[:: -1 if number % 2 else 1]
    return ordered


def _parts(total: int, number: int) -> list[range]:
    """Split the range 0 to total into ranges whose sizes differ by at most one."""
    bounds = [total * part // number for part in range(number + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]
