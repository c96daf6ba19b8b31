"""`results.json`, the result of a finished run for programs: the same numbers as its summary, from the same tables."""

from __future__ import annotations

import contextlib
from pathlib import Path

from jobs.after import warehouse
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder


def write(run: RunFolder, database: Path) -> str:
    """Write the result of a run that was just loaded, if all its samples are finished and graded; otherwise remove it.

    Returns why it could not be written, as one line, and an empty text where it was. Raises WarehouseFailed.
    """
    result = warehouse.results_of(run, database)
    try:
        if result.state != "finished":  # samples that had failed are retried
            run.results_path.unlink(missing_ok=True)
            return ""
        content = result.to_json()
        with contextlib.suppress(FileNotFoundError):
            if run.results_path.read_bytes() == content:
                return ""
        write_atomically(run.results_path, content)
    except OSError as error:  # a colleague's folder, or a full disk: the database has the same numbers
        return f"{run.results_path} was not written: {error.strerror or error}"
    return ""
