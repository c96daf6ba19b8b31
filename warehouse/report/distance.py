"""Distance from the target: how probable the accepted text of each run is to it, and the steps that it finds absurd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed, span
from warehouse.database import Connection, Record, rows
from warehouse.report import queries
from warehouse.report.facts import RunFacts
from warehouse.report.queries import behind
from warehouse.report.run_tables import RunTable, Section, limited_label, run_table

_NAT_DIGITS = 4
_THRESHOLD = "SELECT absurd_nats() AS nats"


@dataclass(frozen=True)
class Distances:
    """What the target gives the accepted text of the runs that are scored."""

    of_runs: Mapping[str, Sequence[Record]]
    """Rows of `queries.DISTANCE` by run id: one for each baseline, or one without."""
    absurdity: Mapping[str, Record]
    """The row of `queries.ABSURDITY` of each run whose steps the database has."""
    absurd_steps: Sequence[Record]
    """The most absurd steps, at most 20."""
    threshold: float
    """Nats of a token from which on its step is absurd."""

    def with_baseline(self, run: RunFacts, runs: Sequence[RunFacts]) -> Record | None:
        """Return a run's row with the baseline of the report that shares most problems, first of its own regime.

        None where it has none.
        """
        in_flight = {other.summary.run_id: other.summary.concurrency for other in runs}
        found = [
            row
            for row in self.of_runs[run.summary.run_id]
            if row["distance"] is not None and row["baseline_run_id"] in in_flight
        ]
        own = run.summary.concurrency
        return max(found, key=lambda row: (row["n"], in_flight[row["baseline_run_id"]] == own), default=None)


def read_distances(connection: Connection, run_ids: Sequence[str], absurd_nats: float | None = None) -> Distances:
    """Read what is known of runs. absurd_nats: a threshold of absurd steps; None: as the database has it."""
    if absurd_nats is not None:
        connection.execute(f"SET VARIABLE absurd_nats = {absurd_nats!r}")
    [threshold] = (row["nats"] for row in rows(connection, _THRESHOLD))
    of_runs: dict[str, list[Record]] = {}
    for row in rows(connection, queries.DISTANCE, {"run_ids": list(run_ids)}):
        of_runs.setdefault(row["run_id"], []).append(row)
    absurdity = rows(connection, queries.ABSURDITY, {"run_ids": list(run_ids)})
    steps = rows(connection, queries.ABSURD_STEPS, {"run_ids": list(run_ids), "nats": threshold})
    return Distances(of_runs, {row["run_id"]: row for row in absurdity}, steps, float(threshold))


def section(runs: Sequence[RunFacts], distances: Distances) -> Section:
    """Return the section, empty where no run is scored."""
    scored = [run for run in runs if run.summary.run_id in distances.of_runs]
    alarms = [line for run in scored if (line := _alarm(run, runs, distances))]
    tables = [_table(scored, runs, distances), _absurd_steps(runs, distances)]
    return Section("distance", "Distance from the target", (), tables, alarms)


def _alarm(run: RunFacts, runs: Sequence[RunFacts], distances: Distances) -> str | None:
    """Return a line where the target finds more of a run's steps absurd than of its own."""
    own, row = distances.absurdity.get(run.summary.run_id), distances.with_baseline(run, runs)
    if own is None or row is None or not own["num_absurd_steps"]:
        return None
    rate = "absurd_steps_per_thousand_tokens"
    theirs = distances.absurdity.get(row["baseline_run_id"], {}).get(rate)
    if theirs is not None and own[rate] <= theirs:
        return None
    beside = "" if theirs is None else f"; in its own chains {fixed(theirs, 3)}"
    return (
        f"ABSURD TO THE TARGET: {own['num_absurd_steps']} of {counted(own['num_steps'], 'accepted step')} of "
        f"{run.label} have a token of {distances.threshold:g} nats or more ({fixed(own[rate], 3)} such steps per 1,000 "
        f"tokens{beside}); the section on the distance from the target lists them."
    )


def _table(scored: Sequence[RunFacts], runs: Sequence[RunFacts], distances: Distances) -> RunTable:
    columns = (
        "run", "samples", "nats per token", "95 % interval", "baseline", "problems", "distance", "95 % interval",
        "absurd steps", "per 1,000 tokens",
    )  # fmt: skip
    names = {run.summary.run_id: run.label for run in scored}
    cells = []
    for run in scored:
        row = distances.with_baseline(run, runs) or {}
        own, absurd = distances.of_runs[run.summary.run_id][0], distances.absurdity.get(run.summary.run_id, {})
        cells.append(
            (
                limited_label(run),
                str(own["num_samples"]),
                fixed(own["nats_per_token"], _NAT_DIGITS),
                span(own["nats_per_token_low_95"], own["nats_per_token_high_95"], _NAT_DIGITS),
                names[row["baseline_run_id"]] if row else NOTHING,
                str(row["n"]) if row else NOTHING,
                fixed(row.get("distance"), _NAT_DIGITS),
                span(row.get("distance_low_95"), row.get("distance_high_95"), _NAT_DIGITS),
                f"{absurd['num_absurd_steps']} of {absurd['num_steps']}" if absurd else NOTHING,
                fixed(absurd.get("absurd_steps_per_thousand_tokens"), 3),
            )
        )
    caption = (
        "Negative log-probability of the generated tokens of accepted chains under the target (jobs target-logprobs), "
        "and the difference from the target's own chains, paired by problem, with 95 % t intervals. A difference of "
        "cross-entropies: the divergence per token where both texts vary equally, too small where the run's text "
        "varies less. Absurd: a step with a token of "
        f"{distances.threshold:g} nats or more (--absurd-nats); the target's own chains may have some, too."
    )
    places, statement = [run.place for run in scored], behind(queries.DISTANCE, scored)
    return run_table("distance", "Distance from the target", columns, cells, caption, places, sql=statement)


def _absurd_steps(runs: Sequence[RunFacts], distances: Distances) -> RunTable:
    by_id = {run.summary.run_id: run for run in runs}
    shown = distances.absurd_steps
    total = sum(row["num_absurd_steps"] for row in distances.absurdity.values())
    cells = [
        (
            by_id[row["run_id"]].label,
            str(row["step_index"]),
            f"{row['author']}, {row['role']}",
            str(row["num_tokens"]),
            fixed(row["nats_per_token"], 2),
            fixed(row["most_nats"], 1),
            " ".join(quote(str(row[name])) for name in ("run_id", "problem_id", "sample_index")),
        )
        for row in shown
    ]
    columns = ("run", "step", "author, role", "tokens", "nats per token", "least probable token (nats)", "trace")
    caption = (
        f"{len(shown)} of {total} accepted steps with a token of {distances.threshold:g} nats or more under the "
        "target, the most absurd first. To read one: python -m warehouse.trace with the words of the last column, or "
        "the viewer below."
    )
    statement = behind(queries.ABSURD_STEPS, list(by_id.values())).replace("$nats", f"{distances.threshold:g}")
    places = [by_id[row["run_id"]].place for row in shown]
    return run_table("absurd", "Steps that the target finds absurd", columns, cells, caption, places, sql=statement)
