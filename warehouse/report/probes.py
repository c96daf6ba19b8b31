"""The table of what probes found: how often the judges truly accept wrong steps and refuse right ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warehouse.probed import EXPLAINED, RATES, areas, cells_of, left_out
from warehouse.report.facts import RunFacts
from warehouse.report.queries import copyable
from warehouse.report.tables import Table, limited_label

_SQL = """
SELECT source_run_id, probe.run_id AS probe_run_id, metric, group_kind, group_value, n, num_samples, estimate,
    low_95, high_95, interval_kind
FROM counted_estimate JOIN (SELECT DISTINCT run_id, source_run_id FROM probe) AS probe USING (run_id)
WHERE metric LIKE 'probe_%' AND probe.run_id IN (SELECT unnest($run_ids)) ORDER BY ALL
"""


def tables(runs: Sequence[RunFacts]) -> list[Table]:
    """Return the table of the newest probe of each run, if any run was probed; its SQL is of the same probes."""
    rows, places = [], []
    for place, run in enumerate(runs):
        for name, *cells in cells_of(run.probe["estimates"]) if run.probe else ():
            rows.append((limited_label(run), name, *cells))
            places.append(place)
    if not rows:
        return []
    sentences = " ".join(sentence for run in runs if run.probe for sentence in _sentences(run, run.probe))
    columns = ("run", "decisions", *(f"{heading} %" for heading in RATES.values()))
    statement = copyable(_SQL, [str(run.probe["run_id"]) for run in runs if run.probe])
    return [
        Table(
            "probe",
            "What the judge really lets through",
            columns,
            rows,
            f"{EXPLAINED} {sentences}",
            places,
            sql=statement,
        )
    ]


def _sentences(run: RunFacts, probe: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{run.label}: {probe['num_points']} points with {probe['num_rollouts']} continuations each way, of "
        f"{probe['run_id']}{', the newest of several probes' if run.num_probes > 1 else ''}."
    )
    yield from left_out(probe)
    yield from areas(probe)
