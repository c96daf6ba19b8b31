"""The comparison of runs of a database, which are named by id, by a beginning of it, or by folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warehouse import latency_at_one
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.metrics import Run
from warehouse.comparison.modelled import modelled_speed_ups
from warehouse.comparison.outcomes import read_folders, read_outcomes, resolve
from warehouse.comparison.own_datasets import named_alike
from warehouse.comparison.stopwatches import read_definitions, read_times
from warehouse.comparison.votes import read_votes
from warehouse.database import WAIT_SECONDS, Connection, WarehouseError
from warehouse.graders import reader_for_grader
from warehouse.repeated_runs import run_factors
from warehouse.summary import summaries


def compare_runs(
    runs: Sequence[str],
    database: Path,
    settings: Settings | None = None,
    *,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
    stopwatches: bool = False,
) -> Comparison:
    """Compare runs of a database, paired by problem.

    runs: run ids, prefixes of run ids, or paths of run folders. baseline: likewise; default: the target alone, by
    dataset. stopwatches: whether to rank the runs by every paper's definition of latency. Raises WarehouseError, also
    for fewer than two runs, and DatabaseError.
    """
    settings = settings or Settings()
    names = [*([baseline] if baseline else []), *runs]
    with reader_for_grader(database, grader, wait_seconds) as connection:
        settings = replace(settings, stopwatches=read_definitions(connection) if stopwatches else ())
        records = read_runs(connection, names, votes=settings.majority, times=stopwatches)
        baseline_id = resolve(connection, baseline) if baseline else None
        if len(records) < 2 <= len(names):
            raise WarehouseError(f"two different runs are needed; all arguments name {records[0].run_id}")
        if len(records) < 2:
            raise WarehouseError("at least two runs are needed")
        comparison = compare(records, settings, baseline_id)
        return replace(comparison, modelled=modelled_speed_ups(connection, comparison))


def read_runs(connection: Connection, names: Sequence[str], *, votes: bool, times: bool = False) -> list[Run]:
    """Read everything that a comparison needs of the named runs, in their order. Raises WarehouseError."""
    ids = list(dict.fromkeys(resolve(connection, name) for name in names))
    manifests, folders = read_manifests(connection, ids), read_folders(connection, ids)
    factors = run_factors(connection, ids)
    [(named_grader,)] = connection.execute("SELECT getvariable('grader_version')").fetchall()
    runs = [
        Run(
            summary,
            manifests[run_id],
            folders[run_id],
            read_outcomes(connection, run_id),
            read_votes(connection, run_id) if votes else None,
            named_grader,
            read_times(connection, run_id) if times else None,
            factors.get(run_id),
            latency_at_one.read(connection, run_id),
        )
        for run_id, summary in zip(ids, summaries(connection, ids), strict=True)
    ]
    return named_alike(runs)
