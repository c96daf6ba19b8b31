"""Keep the table `estimate` up to date: called at the end of every load."""

from __future__ import annotations

from warehouse.database import Connection, rows, transaction
from warehouse.estimates import speed_ups
from warehouse.estimates.accuracies import accuracies
from warehouse.estimates.rates import bring_distances_up_to_date, distances, judges, probed, rates
from warehouse.estimates.row import insert

_RUNS_AT_ONCE = 50
"""Runs whose problems are in memory together."""
_WITHOUT = """
SELECT run_id FROM run ANTI JOIN (FROM estimate WHERE metric = 'pass_at_1') AS known USING (run_id) ORDER BY run_id
"""


def bring_up_to_date(connection: Connection) -> None:
    """Compute the rows of runs that have none, and those of pairs of runs that other runs have changed.

    Replacing a run deletes its rows, so these are the runs that were loaded since the last call.
    """
    with transaction(connection):
        run_ids = [str(row["run_id"]) for row in rows(connection, _WITHOUT)]
        for start in range(0, len(run_ids), _RUNS_AT_ONCE):
            some = run_ids[start : start + _RUNS_AT_ONCE]
            insert(
                connection,
                [
                    *accuracies(connection, some),
                    *judges(connection, some),
                    *rates(connection, some),
                    *probed(connection, some),
                    *distances(connection, some),
                ],
            )
        speed_ups.bring_up_to_date(connection)
        bring_distances_up_to_date(connection)
