"""What a finished run still lacks where the job or command that concludes it has died: grades, or its results.

It is read from files, as little of them as will do, so that it needs neither Slurm's accounting nor a digest of traces.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jobs.after import warehouse
from jobs.run import own_files, trace_files
from jobs.run.endings import Endings, by_shard
from jobs.run.files import files_in
from jobs.run.folder import RunFolder
from jobs.run.grades import graded_at

_COLUMNS = ("sample_id", "verdict")


def missing_after(run: RunFolder, endings: Endings) -> str:
    """Return in words what a run lacks whose samples are all finished; empty where nothing, or where some are not.

    What this user may not read, and a database that another version of the warehouse wrote, is not judged.
    """
    if by_shard(run, endings).num_unfinished:
        return ""
    try:
        return _missing(run, endings)
    except OSError:
        return ""


def _missing(run: RunFolder, endings: Endings) -> str:
    num_planned, num_ungraded = run.units_by_shard().num_rows, _num_ungraded(run, endings)
    if num_ungraded == num_planned:
        return "not graded"
    if num_ungraded:
        return f"{num_ungraded} of {num_planned} samples are not graded"
    database = warehouse.database_of(run)
    state = warehouse.files_loaded(database, run.path.name)
    if state is None:
        return ""
    if not state:
        return f"graded, but not in {database.name}"
    changed = _files(run).items() - state.items()
    return f"graded, but {database.name} has an earlier state of it" if changed else ""


def _num_ungraded(run: RunFolder, endings: Endings) -> int:
    """Return how many samples the version that graded last has not graded, or only before they were retried."""
    planned = run.units_by_shard()["sample_id"].combine_chunks()
    tables = {path: table for path in files_in(run.grades_dir, ".parquet") if (table := _grades(run, path)) is not None}
    if not tables:
        return len(planned)
    table = tables[max(tables, key=graded_at)]
    has_no_answer = pc.fill_null(pc.equal(table["verdict"], "error"), fill_value=False)
    is_stale = pc.and_(has_no_answer, pc.invert(pc.is_in(table["sample_id"], value_set=endings.failed)))
    graded = table["sample_id"].filter(pc.invert(is_stale)).combine_chunks()
    return len(planned) - int(pc.sum(pc.is_in(planned, value_set=graded)).as_py() or 0)


def _grades(run: RunFolder, path: Path) -> pa.Table | None:
    """Read a file of grades; None where it does not count, because it is damaged or of another run."""
    try:
        with trace_files.opened(path, whole=False) as file:
            own_files.check_owner(path, trace_files.metadata_of(file), own_files.run_ids(run))
            return trace_files.columns_of(file, _COLUMNS)
    except PermissionError:
        raise
    except trace_files.DAMAGED:
        return None


def _files(run: RunFolder) -> dict[str, int]:
    """Return the sizes of the files that the end of a run loads, by their paths in the run folder."""
    paths = [*run.trace_files(), *files_in(run.grades_dir, ".parquet")]
    return {path.relative_to(run.path).as_posix(): path.stat().st_size for path in paths}
