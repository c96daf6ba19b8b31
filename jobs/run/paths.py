"""What lies where in a run folder: its files, and the locks of those who write them.

    runs/<run_id>/spec.json          the frozen specification
    runs/<run_id>/problems.parquet   the problems themselves: nodes need no internet
    runs/<run_id>/shards.parquet     which units each worker is assigned
    runs/<run_id>/journal/*.jsonl    append-only, one file per worker attempt
    runs/<run_id>/parts/*.parquet    trace files: finished samples, compacted from one journal each
    runs/<run_id>/grades/*.parquet   one file per grader version
    runs/<run_id>/candidate_grades/  grades of candidates that are whole chains
    runs/<run_id>/scores/*.parquet   quality of steps and candidates by a process reward model, one file per model
    runs/<run_id>/probe/points.parquet  the steps of another run that this one probes (jobs.probing)
    runs/<run_id>/target_logprobs/   the target's log-probability of each step, where it was asked for
    runs/<run_id>/logs/              the workers', the engines' and Slurm's output
    runs/<run_id>/retries.jsonl      which failed samples may be retried
    runs/<run_id>/submissions.jsonl  which shards each task of each Slurm job was assigned
    runs/<run_id>/results.json       the result of a finished run, for programs (jobs.after.results)
    runs/<run_id>/codes.jsonl        which code may work on the run (jobs.run.codes)
    runs/<run_id>/servers.jsonl      where the servers of its models listen (jobs.run.served)
    runs/<run_id>/code-*.zip         the code that was submitted
    runs/<run_id>/method-*.zip       the code of a method that is not part of this package (jobs.run.own_method)

Journals and the .jsonl files are appended to. All other files are written under a temporary name and then renamed,
so that they are complete or absent. Each has a digest, those of spec.json and problems.parquet stand in shards.parquet,
and each line of the others has a checksum: what is damaged, edited or put into the wrong place is named (digest.py).
Only results.json has none: nothing here reads it, and `jobs finalize` writes it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from jobs.run.files import files_in
from jobs.run.locks import Lock


@dataclass(frozen=True)
class RunPaths:
    """Paths and locks of one run; the run need not exist."""

    path: Path

    @property
    def spec_path(self) -> Path:
        """The frozen specification."""
        return self.path / "spec.json"

    @property
    def problems_path(self) -> Path:
        """The problems, copied at plan time."""
        return self.path / "problems.parquet"

    @property
    def shards_path(self) -> Path:
        """The plan: the units of each shard."""
        return self.path / "shards.parquet"

    @property
    def journal_dir(self) -> Path:
        """Folder of the journals of all attempts."""
        return self.path / "journal"

    @property
    def trace_files_dir(self) -> Path:
        """Folder of the trace files."""
        return self.path / "parts"

    @property
    def grades_dir(self) -> Path:
        """Folder of the grades, one file per grader version."""
        return self.path / "grades"

    @property
    def candidate_grades_dir(self) -> Path:
        """Folder of the grades of candidates that are whole chains, one file per grader version."""
        return self.path / "candidate_grades"

    @property
    def scores_dir(self) -> Path:
        """Folder of the scores of steps and candidates, one file per process reward model."""
        return self.path / "scores"

    @property
    def probe_dir(self) -> Path:
        """Folder of the points that the run probes; only a run that `jobs probe` made has it."""
        return self.path / "probe"

    @property
    def target_logprobs_dir(self) -> Path:
        """Folder of the target's log-probabilities of steps; a run that has it lets its workers add to it."""
        return self.path / "target_logprobs"

    @property
    def logs_dir(self) -> Path:
        """Folder of the output of workers, engines and Slurm."""
        return self.path / "logs"

    @property
    def locks_dir(self) -> Path:
        """Folder of the locks, which keep two workers from running the same shard."""
        return self.path / "locks"

    @property
    def retries_path(self) -> Path:
        """The list of failed samples that may be retried."""
        return self.path / "retries.jsonl"

    @property
    def submissions_path(self) -> Path:
        """The list of submissions to Slurm."""
        return self.path / "submissions.jsonl"

    @property
    def codes_path(self) -> Path:
        """The list of codes that may work on the run."""
        return self.path / "codes.jsonl"

    @property
    def results_path(self) -> Path:
        """The result of the finished run, for programs."""
        return self.path / "results.json"

    @property
    def servers_path(self) -> Path:
        """The list of addresses of the servers that run its models."""
        return self.path / "servers.jsonl"

    def submission_lock(self) -> Lock:
        """Return the lock that is held while shards are chosen and submitted; acquiring it waits.

        Acquiring this and the other locks raises LocksRefused where the filesystem has none.
        """
        return Lock(self.locks_dir / "submission.lock")

    def shard_lock(self, shard: int, wait_seconds: float = 0.0) -> Lock:
        """Return the lock of a shard, held by its worker.

        Acquiring it raises filelock.Timeout where another process holds it for longer than `wait_seconds`.
        """
        return Lock(self.shard_lock_path(shard), timeout=wait_seconds)

    def are_held(self, shards: Iterable[int]) -> bool:
        """Return whether a worker holds one of these shards; it asks for the locks, which no filesystem shows late."""
        for shard in shards:
            try:
                with self.shard_lock(shard):
                    continue
            except Timeout:
                return True
        return False

    def shard_lock_path(self, shard: int) -> Path:
        """Return the file that `shard_lock` locks; it stays when the lock is released."""
        return self.locks_dir / f"shard-{shard}.lock"

    def compaction_lock(self) -> Lock:
        """Return the lock that is held while journals are compacted or grades are written; acquiring it waits."""
        return Lock(self.locks_dir / "compaction.lock")

    def code_lock(self) -> Lock:
        """Return the lock that is held while it is decided which code may work on the run; acquiring it waits."""
        return Lock(self.locks_dir / "code.lock")

    def submission_mark(self, number: int) -> Path:
        """Return the path of the file that says that the submission of this number was recorded."""
        return self.locks_dir / f"submitted-{number}"

    def journals(self) -> list[Path]:
        """Return the journals that exist, sorted by name, that is by the time of their attempt."""
        return files_in(self.journal_dir, ".jsonl")

    def trace_files(self) -> list[Path]:
        """Return the trace files that exist, sorted by name, that is by the time of their attempt."""
        return files_in(self.trace_files_dir, ".parquet")

    def trace_file_of(self, journal: Path) -> Path:
        """Return the path of the trace file that a journal is compacted into, whether or not it exists."""
        return self.trace_files_dir / f"{journal.stem}.parquet"
