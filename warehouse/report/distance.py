"""Distance from the target: how probable accepted text is to it, against speed-up and accuracy, and absurd steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from harness.plural import counted
from warehouse.database import Connection, rows
from warehouse.formatting import NOTHING, fixed, span
from warehouse.labels import labels
from warehouse.report import distance_speed, queries
from warehouse.report.charts.points import Dot, Dots
from warehouse.report.differences import Differences
from warehouse.report.distance_settings import Distances, settings
from warehouse.report.facts import RunFacts
from warehouse.report.problem_sets import over_the_same_problems
from warehouse.report.section import Figure, Section, behind
from warehouse.report.tables import Table, limited_label

_NAT_DIGITS = 4
_THRESHOLD = "SELECT absurd_nats() AS nats"


def read_distances(connection: Connection, run_ids: Sequence[str], absurd_nats: float | None = None) -> Distances:
    """Read what is known of runs. absurd_nats: a threshold of absurd steps; None: as the database has it."""
    if absurd_nats is not None:
        connection.execute(f"SET VARIABLE absurd_nats = {absurd_nats!r}")
    [threshold] = (row["nats"] for row in rows(connection, _THRESHOLD))
    of_runs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows(connection, queries.DISTANCE, {"run_ids": list(run_ids)}):
        of_runs.setdefault(str(row["run_id"]), []).append(row)
    speed_ups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows(connection, queries.DISTANCE_SPEED, {"run_ids": list(run_ids)}):
        speed_ups.setdefault(str(row["run_id"]), []).append(row)
    absurdity = rows(connection, queries.ABSURDITY, {"run_ids": list(run_ids)})
    steps = rows(connection, queries.ABSURD_STEPS, {"run_ids": list(run_ids), "nats": threshold})
    return Distances(of_runs, speed_ups, {str(row["run_id"]): row for row in absurdity}, steps, float(str(threshold)))


def section(runs: Sequence[RunFacts], distances: Distances, compared: Differences) -> Section:
    """Return the section, empty where no run is scored."""
    scored = [run for run in runs if run.summary.run_id in distances.of_runs]
    alarms = [line for run in scored if (line := _alarm(run, runs, distances))]
    names = labels([run.summary for run in scored])  # shorter where only runs of one regime are scored
    scored = [replace(run, label=name) for run, name in zip(scored, names, strict=True)]
    figures: list[Figure] = []
    groups = over_the_same_problems(scored) if scored else {}
    for number, (name, members) in enumerate(groups.items(), start=1):
        ending, of = (f"-problems-{number}", f" ({name})") if len(groups) > 1 else ("", "")
        figures.append(_alone(members, distances, f"Nats per token under the target{of}", f"target-nats{ending}"))
    against, beside = distance_speed.drawn(settings(runs, distances, compared), [run.summary.run_id for run in runs])
    figures += against
    tables = [*beside, _table(scored, runs, distances)] if scored else []
    if distances.absurd_steps:
        named = {run.place: run for run in scored}
        tables.append(_absurd_steps([named.get(run.place, run) for run in runs], distances))
    return Section("distance", "Distance from the target", "Distance", figures, tables, alarms)


def _alarm(run: RunFacts, runs: Sequence[RunFacts], distances: Distances) -> str | None:
    """Return a line where the target finds more of a run's steps absurd than of its own."""
    own, row = distances.absurdity.get(run.summary.run_id), distances.with_baseline(run, runs)
    if own is None or row is None or not own["num_absurd_steps"]:
        return None
    rate = "absurd_steps_per_thousand_tokens"
    theirs = distances.absurdity.get(str(row["baseline_run_id"]), {}).get(rate)
    if theirs is not None and own[rate] <= theirs:
        return None
    beside = "" if theirs is None else f"; in its own chains {fixed(theirs, 3)}"
    return (
        f"ABSURD TO THE TARGET: {own['num_absurd_steps']} of {counted(own['num_steps'], 'accepted step')} of "
        f"{run.label} have a token of {distances.threshold:g} nats or more ({fixed(own[rate], 3)} such steps per 1,000 "
        f"tokens{beside}); the section on the distance from the target lists them."
    )


def _alone(scored: Sequence[RunFacts], distances: Distances, title: str, name: str) -> Figure:
    dots = []
    for run in scored:
        row = distances.of_runs[run.summary.run_id][0]
        nats, low, high = (row[f"nats_per_token{end}"] for end in ("", "_low_95", "_high_95"))
        interval = "" if low is None else f" ({span(low, high, _NAT_DIGITS)})"
        dots.append(Dot(run.label, run.place, nats, low, high, f"{fixed(nats, _NAT_DIGITS)}{interval}"))
    caption = (
        "Mean over problems of the mean over their samples of a chain's negative log-probability per token, under the "
        "target's own distribution at temperature 1, given its own prompt and all text before. Line: 95 % interval "
        "over problems (t). Of the target's own chains this is about their entropy; it depends on the problems and the "
        "temperature, so runs are compared by their distance from it."
    )
    chart = Dots(dots, "nats per token", "Nats per token of each run's accepted text under the target")
    return Figure(title, {name: chart}, caption, sql=behind(queries.DISTANCE, scored))


def _table(scored: Sequence[RunFacts], runs: Sequence[RunFacts], distances: Distances) -> Table:
    columns = (
        "run",
        "samples",
        "nats per token",
        "95 % interval",
        "baseline",
        "problems",
        "distance",
        "95 % interval",
        "absurd steps",
        "per 1,000 tokens",
    )
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
    return Table("distance", "Distance from the target", columns, cells, caption, [run.place for run in scored])


def _absurd_steps(runs: Sequence[RunFacts], distances: Distances) -> Table:
    by_id = {run.summary.run_id: run for run in runs}
    shown = distances.absurd_steps
    total = sum(int(row["num_absurd_steps"]) for row in distances.absurdity.values())
    cells = [
        (
            by_id[str(row["run_id"])].label,
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
    places = [by_id[str(row["run_id"])].place for row in shown]
    return Table("absurd", "Steps that the target finds absurd", columns, cells, caption, places, sql=statement)
