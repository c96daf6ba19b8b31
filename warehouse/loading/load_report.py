"""Report what loading a run did, counted in the warehouse itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from shlex import quote

from jobs.run.endings import num_only_in_journals
from jobs.run.folder import RunDamaged, RunFolder
from warehouse.database import Connection
from warehouse.loading.convert import SkippedFile
from warehouse.loading.staging import Staged


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading one run did, and what the warehouse holds of it now."""

    run_id: str
    unchanged: bool
    """Whether every file was already loaded with this content, so that nothing was written."""
    num_samples: int
    """Planned samples: problems × samples."""
    num_finished: int
    num_graded: int
    num_steps: int
    num_candidates: int
    num_calls: int
    num_duplicates: int
    """Records left out because another record of the same sample counts, failed ones excepted."""
    num_unplanned: int
    """Finished samples left out because they are not in the plan."""
    skipped: tuple[SkippedFile, ...]
    seconds: float
    former_names: tuple[str, ...] = ()
    """Names under which the run was loaded before its folder was renamed; their rows are replaced."""
    copies: tuple[str, ...] = ()
    """Names of other runs in the database with the same specification and attempts: copies of the folder."""


def report_on(connection: Connection, run_id: str, staged: Staged, started: float, *, unchanged: bool) -> LoadReport:
    """Return the report on a run after `staged` was loaded. `started`: of time.perf_counter."""
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
        former_names=staged.former_names,
        copies=staged.copies,
    )


def describe(report: LoadReport) -> str:
    """Return one line that describes a load."""
    if report.unchanged:
        return f"{report.run_id}: unchanged, {report.num_finished} of {report.num_samples} samples finished"
    remarks = [
        f"{number} {remark}"
        for number, remark in (
            (report.num_finished - report.num_graded, "not graded"),
            (report.num_duplicates, "duplicates left out"),
            (report.num_unplanned, "not in the plan and left out"),
        )
        if number
    ]
    return (
        f"{report.run_id}: {report.num_finished} of {report.num_samples} samples finished, {report.num_steps} steps, "
        f"{report.num_candidates} candidates, {report.num_calls} calls in {report.seconds:.1f} s"
        + "".join(f"; {remark}" for remark in remarks)
        + "".join(f"; it was loaded as {name} before it was renamed" for name in report.former_names)
    )


def describe_copies(report: LoadReport) -> str:
    """Return one line of warning about copies of a run, or an empty text where there is none."""
    if not report.copies:
        return ""
    names = ", ".join(report.copies)
    return f"WARNING: {report.run_id} is a copy of {names}: the database holds the same samples as several runs"


def describe_journals(folder: RunFolder) -> str:
    """Return one line about finished samples that loading does not see yet, or an empty text where there are none."""
    try:
        number = num_only_in_journals(folder)
    except (RunDamaged, OSError):
        return ""  # what cannot be read is named elsewhere
    are = f"{number} more {'is' if number == 1 else 'are'}"
    return f"  {are} finished in journals:  python -m jobs finalize {quote(str(folder.path))}" if number > 0 else ""


def describe_skipped(run_id: str, file: SkippedFile) -> str:
    """Return one line of warning about a file that was left out."""
    return f"WARNING: {run_id}: {file.name} cannot be read and is LEFT OUT: {file.reason}"
