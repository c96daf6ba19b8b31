"""What a load did, from the warehouse itself, and in one line for a person."""

from __future__ import annotations

import time
from dataclasses import dataclass

from warehouse.database import Connection
from warehouse.loading.run_files import SkippedFile
from warehouse.loading.staging import Staged


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading one run did, and what is in the warehouse for it now."""

    run_id: str
    unchanged: bool
    """True where every file was already loaded with this content, so nothing was written."""
    num_samples: int
    """Planned samples: problems × samples."""
    num_finished: int
    num_graded: int
    num_steps: int
    num_candidates: int
    num_calls: int
    num_duplicates: int
    """Records of a sample that an earlier record already held, left out by this load."""
    num_unplanned: int
    """Finished samples that are not in the plan, left out by this load."""
    skipped: tuple[SkippedFile, ...]
    seconds: float


def report_on(connection: Connection, run_id: str, staged: Staged, started: float, *, unchanged: bool) -> LoadReport:
    """What the warehouse holds of a run after `staged` was loaded."""
    [counts] = connection.execute(
        """
        SELECT count(*), count(*) FILTER (finished), count(*) FILTER (graded),
            (SELECT count(*) FROM step WHERE run_id = $run_id),
            (SELECT count(*) FROM candidate WHERE run_id = $run_id),
            (SELECT count(*) FROM call WHERE run_id = $run_id)
        FROM sample_grade WHERE run_id = $run_id
        """,
        {"run_id": run_id},
    ).fetchall()
    num_samples, num_finished, num_graded, num_steps, num_candidates, num_calls = counts
    return LoadReport(
        run_id=run_id,
        unchanged=unchanged,
        num_samples=num_samples,
        num_finished=num_finished,
        num_graded=num_graded,
        num_steps=num_steps,
        num_candidates=num_candidates,
        num_calls=num_calls,
        num_duplicates=staged.num_duplicates,
        num_unplanned=staged.num_unplanned,
        skipped=staged.skipped,
        seconds=time.perf_counter() - started,
    )


def describe(report: LoadReport) -> str:
    """One line on a load."""
    if report.unchanged:
        return f"{report.run_id}: unchanged, {report.num_finished} of {report.num_samples} samples finished"
    extra = [
        f"{number} {what}"
        for number, what in (
            (report.num_finished - report.num_graded, "not graded"),
            (report.num_duplicates, "duplicates left out"),
            (report.num_unplanned, "not in the plan and left out"),
        )
        if number
    ]
    return (
        f"{report.run_id}: {report.num_finished} of {report.num_samples} samples finished, {report.num_steps} steps, "
        f"{report.num_candidates} candidates, {report.num_calls} calls in {report.seconds:.1f} s"
        + "".join(f"; {part}" for part in extra)
    )


def describe_skipped(run_id: str, file: SkippedFile) -> str:
    """One loud line on a file that was left out."""
    return f"WARNING: {run_id}: {file.name} cannot be read and is LEFT OUT: {file.reason}"
