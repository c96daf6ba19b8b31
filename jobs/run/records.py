"""Which record of a sample counts, and the records that do, read from the trace files of a run.

A sample that was run more than once has a record in several trace files. The one that counts is the first that did
not end in an error or, where all did, the first of all; files are read in the order of their names, which begin with
the time of the attempt. Whatever else needs this rule refers to it here: jobs.run.endings counts by it, and the
warehouse expresses it in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.compute as pc

from jobs.run import own_files, trace_files
from jobs.run.digest import FileDamaged, say_once
from jobs.run.folder import RunFolder
from jobs.run.trace_files import SampleRow

FAILED = "error"
"""The stop reason of a record that does not count where the sample has another one."""


def counting_records(run: RunFolder, columns: Sequence[str], *, failed: bool = True) -> Iterator[SampleRow]:
    """Yield each finished sample once: `sample_id`, `stop_reason` and the given columns, nested ones by their path.

    Without `failed`, samples that ended in an error every time are left out. Samples of a file that is damaged or of
    another run are not finished, unless another file has them; samples that are not in the plan are left out.
    """
    files = own_files.usable(run, run.trace_files())
    planned = set(run.units_by_shard()["sample_id"].to_pylist())
    succeeded = _succeeded(run, files) if failed else set()
    seen: set[str] = set()
    for file in files:
        try:
            for row in trace_files.iterate_rows(file, ["sample_id", "stop_reason", *columns]):
                sample_id = row["sample_id"]
                if row["stop_reason"] is None or sample_id in seen or sample_id not in planned:
                    continue
                if row["stop_reason"] == FAILED and (not failed or sample_id in succeeded):
                    continue
                seen.add(sample_id)
                yield row
        except FileDamaged as error:  # of a format without a digest, damaged where only this reads
            say_once(f"{error}; samples behind the damage count as not finished")


def _succeeded(run: RunFolder, files: Sequence[Path]) -> set[str]:
    """Return the ids of the samples that have a record that did not end in an error."""
    sample_ids: set[str] = set()
    ids = own_files.run_ids(run)
    for file in files:
        endings = own_files.endings(file, ids, whole=False)
        sample_ids.update(endings["sample_id"].filter(pc.not_equal(endings["stop_reason"], FAILED)).to_pylist())
    return sample_ids
