"""Distance from the target: how probable accepted text is to it, against speed-up and accuracy, and absurd steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from harness.plural import counted
from warehouse.database import Connection, rows
from warehouse.formatting import NOTHING, fixed, percent, span
from warehouse.report import queries
from warehouse.report.charts.points import Dot, Dots, Point, Scatter
from warehouse.report.differences import Differences
from warehouse.report.facts import Estimate, RunFacts
from warehouse.report.problem_sets import over_the_same_problems
from warehouse.report.section import Figure, Section, behind
from warehouse.report.tables import Table, limited_label

_NAT_DIGITS = 4
_THRESHOLD = "SELECT absurd_nats() AS nats"


@dataclass(frozen=True)
class Distances:
    """What the target gives the accepted text of the runs that are scored."""

    of_runs: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of `queries.DISTANCE` by run id: one for each baseline, or one without."""
    absurdity: Mapping[str, Mapping[str, Any]]
    """The row of `queries.ABSURDITY` of each run whose steps the database has."""
    absurd_steps: Sequence[Mapping[str, Any]]
    """The most absurd steps, at most 20."""
    threshold: float
    """Nats of a token from which on its step is absurd."""


def read_distances(connection: Connection, run_ids: Sequence[str], absurd_nats: float | None = None) -> Distances:
    """Read what is known of runs. absurd_nats: a threshold of absurd steps; None: as the database has it."""
    if absurd_nats is not None:
        connection.execute(f"SET VARIABLE absurd_nats = {absurd_nats!r}")
    [threshold] = (row["nats"] for row in rows(connection, _THRESHOLD))
    of_runs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows(connection, queries.DISTANCE, {"run_ids": list(run_ids)}):
        of_runs.setdefault(str(row["run_id"]), []).append(row)
    absurdity = rows(connection, queries.ABSURDITY, {"run_ids": list(run_ids)})
    steps = rows(connection, queries.ABSURD_STEPS, {"run_ids": list(run_ids), "nats": threshold})
    return Distances(of_runs, {str(row["run_id"]): row for row in absurdity}, steps, float(str(threshold)))


def section(runs: Sequence[RunFacts], distances: Distances, compared: Differences) -> Section:
    """Return the section, empty where no run is scored."""
    scored = [run for run in runs if run.summary.run_id in distances.of_runs]
    figures: list[Figure] = []
    groups = over_the_same_problems(scored) if scored else {}
    for number, (name, members) in enumerate(groups.items(), start=1):
        ending = f"-problems-{number}" if len(groups) > 1 else ""
        title = f"Nats per token under the target{f' ({name})' if ending else ''}"
        figures += _figures(members, runs, distances, compared, title, ending)
    tables = [_table(scored, runs, distances)] if scored else []
    if distances.absurd_steps:
        tables.append(_absurd_steps(runs, distances))
    alarms = [line for run in scored if (line := _alarm(run, runs, distances))]
    return Section("distance", "Distance from the target", "Distance", figures, tables, alarms)


def _alarm(run: RunFacts, runs: Sequence[RunFacts], distances: Distances) -> str | None:
    """Return a line where the target finds more of a run's steps absurd than of its own."""
    own, row = distances.absurdity.get(run.summary.run_id), _with_baseline(run, runs, distances)
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


def _figures(
    scored: Sequence[RunFacts],
    runs: Sequence[RunFacts],
    distances: Distances,
    compared: Differences,
    title: str,
    ending: str,
) -> list[Figure]:
    points = [(run, row) for run in scored if (row := _with_baseline(run, runs, distances)) is not None]
    baselines = {str(row["baseline_run_id"]) for _, row in points}
    points += [(run, {}) for run in scored if run.summary.run_id in baselines]
    speed = [_point(run, row, x) for run, row in points if (x := _speed_up(run, row, compared)) is not None]
    accuracy = [_point(run, row, x) for run, row in points if (x := _accuracy(run)) is not None]
    figures = [_alone(scored, distances, title, ending)]
    for name, drawn, axis, better in (
        ("speed-up", speed, "speed-up over the target alone (×)", "Down and to the right is better. "),
        ("accuracy", accuracy, "pass@1 (%)", ""),
    ):
        if len(drawn) < 2:
            continue
        missing = len(points) - len(drawn)
        caption = (
            "Nats per token of the accepted text under the target, minus those of its own chains on the same problems: "
            f"0 is what the target alone has, and token-level speculation by construction. {better}Lines: 95 % "
            "intervals over problems, paired for the distance."
        )
        caption += f" Runs without a value are not drawn: {missing}." if missing else ""
        description = f"Distance from the target against {name}, one mark per run"
        figures.append(
            Figure(
                title.replace("Nats per token under the target", f"Distance from the target against {name}"),
                {f"distance-{name}{ending}": _scatter(drawn, axis, description)},
                caption,
                sql=behind(queries.DISTANCE, scored),
            )
        )
    return figures


def _alone(scored: Sequence[RunFacts], distances: Distances, title: str, ending: str) -> Figure:
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
    return Figure(title, {f"target-nats{ending}": chart}, caption, sql=behind(queries.DISTANCE, scored))


def _with_baseline(run: RunFacts, runs: Sequence[RunFacts], distances: Distances) -> Mapping[str, Any] | None:
    """Return the row of a run with a baseline that is in the report; None where it has none."""
    ids = {other.summary.run_id for other in runs}
    found = distances.of_runs[run.summary.run_id]
    return next((row for row in found if row["distance"] is not None and row["baseline_run_id"] in ids), None)


def _speed_up(run: RunFacts, row: Mapping[str, Any], compared: Differences) -> Estimate | None:
    """Return a run's speed-up over the baseline of its distance; 1 for the baseline itself (an empty row)."""
    if not row:
        return Estimate(1.0, run.summary.n, None, None)
    if row["speed_up"] is not None:
        return Estimate(row["speed_up"], row["n"], row["speed_up_low_95"], row["speed_up_high_95"])
    ratios = (
        own.speed.ratio
        for comparison in compared.comparisons
        for own in comparison.rows
        if own.run.run_id == run.summary.run_id and own.speed and own.speed.baseline == row["baseline_run_id"]
    )
    ratio = next((ratio for ratio in ratios if ratio is not None), None)
    return None if ratio is None else Estimate(ratio.estimate, row["n"], ratio.low, ratio.high)


def _accuracy(run: RunFacts) -> Estimate | None:
    result = run.summary.result
    if result is None:
        return None
    low, high = (None if end is None else 100 * end for end in (result.low, result.high))
    return Estimate(100 * result.estimate, run.summary.n, low, high)


def _point(run: RunFacts, row: Mapping[str, Any], x: Estimate) -> Point:
    distance, low, high = (row.get(f"distance{end}") for end in ("", "_low_95", "_high_95"))
    value = fixed(distance, _NAT_DIGITS) if row else "the target alone"
    accuracy = _accuracy(run)
    value += f", pass@1 {percent(accuracy.value / 100)}" if accuracy else ""
    return Point(run.label, run.place, x.value, x.low, x.high, distance or 0.0, low, high, value)


def _scatter(points: Sequence[Point], axis: str, description: str) -> Scatter:
    return Scatter(points, axis, "distance (nats per token)", description, float("-inf"), float("inf"))


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
    names = {run.summary.run_id: run.label for run in runs}
    cells = []
    for run in scored:
        row = _with_baseline(run, runs, distances) or {}
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
