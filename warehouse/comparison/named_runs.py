"""The comparison of runs of a database, which are named by id, by a beginning of it, or by folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.problems.benchmarks import DATASETS
from warehouse import latency_at_one
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import num_shared_problems, read_folders, read_outcomes, resolve
from warehouse.comparison.votes import read_votes
from warehouse.database import WAIT_SECONDS, Connection, WarehouseError, reader_for_grader
from warehouse.pairs import run_factors
from warehouse.summary import summaries


def compare_runs(
    runs: Sequence[str],
    database: Path,
    settings: Settings | None = None,
    *,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Comparison:
    """Compare runs of a database, paired by problem.

    runs: run ids, prefixes of run ids, or paths of run folders. baseline: likewise; default: the target alone, by
    dataset. Raises WarehouseError, also for fewer than two runs, and DatabaseError.
    """
    settings = settings or Settings()
    names = [*([baseline] if baseline else []), *runs]
    with reader_for_grader(database, grader, wait_seconds) as connection:
        records = read_runs(connection, names, votes=settings.majority)
        baseline_id = resolve(connection, baseline) if baseline else None
        if len(records) < 2 <= len(names):
            raise WarehouseError(f"two different runs are needed; all arguments name {records[0].run_id}")
        if len(records) < 2:
            raise WarehouseError("at least two runs are needed")
        return compare(records, settings, baseline_id)


def read_runs(connection: Connection, names: Sequence[str], *, votes: bool) -> list[Run]:
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
            factors.get(run_id),
            latency_at_one.read(connection, run_id),
        )
        for run_id, summary in zip(ids, summaries(connection, ids), strict=True)
    ]
    return named_alike(runs)


def named_alike(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, those on own datasets with a problem in common under the name that the first of them has.

    Known benchmarks are told apart by their names alone.
    """
    named: list[Run] = []
    for run in runs:
        same = next((other for other in named if _is_same(run, other)), None)
        named.append(run if same is None or same.dataset == run.dataset else replace(run, same_as=same.dataset))
    return named


def _is_same(run: Run, other: Run) -> bool:
    if run.summary.dataset in DATASETS or other.summary.dataset in DATASETS:
        return False
    return run.summary.dataset == other.summary.dataset or num_shared_problems(run.outcomes, other.outcomes) > 0
