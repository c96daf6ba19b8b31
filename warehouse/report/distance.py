"""Distance from the target: how probable accepted text is to it, against speed-up and accuracy, and absurd steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from harness.plural import counted
from warehouse.comparison.show import setting
from warehouse.database import Connection, Record, rows
from warehouse.formatting import NOTHING, fixed, percent, span
from warehouse.labels import labels
from warehouse.report import queries
from warehouse.report.charts import Dot, Dots, Point, Scatter
from warehouse.report.differences import Differences
from warehouse.report.facts import Estimate, RunFacts, over_the_same_problems
from warehouse.report.tables import Figure, Section, Table, behind, limited_label

_OF_TEXT = (
    "top_p",
    "token_budget",
    "draft_sampling",
    "target_sampling",
    "draft_template",
    "target_template",
    "draft_fingerprint",
    "target_fingerprint",
    "prompt_hash",
    "engine_kind",
    "engine_dtype",
    "tag",
)
"""Columns of the table `run` that distinguish settings, beside what its summary has."""


@dataclass(frozen=True)
class Distances:
    """What the target gives the accepted text of the runs that are scored."""

    of_runs: Mapping[str, Sequence[Record]]
    """Rows of `queries.DISTANCE` by run id: one for each baseline, or one without."""
    speed_ups: Mapping[str, Sequence[Record]]
    """Rows of `queries.DISTANCE_SPEED` by run id, of all runs of the report.

    There is one for each baseline, and one more where both were timed one sample at a time beside their batches.
    """
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


@dataclass(frozen=True)
class Setting:
    """A setting of the report that has a distance from the target, or whose chains others are compared with."""

    run: RunFacts
    """Its run with most scored samples, which has the distance."""
    nats: Record
    """A row of `queries.DISTANCE` about the run."""
    distance: Record | None
    """Its row with a baseline of the report; None for a baseline itself."""
    label: str = ""
    """Short name, unique in the report; it need not tell regimes apart."""
    speed_ups: Mapping[int, Estimate] = field(default_factory=dict)
    """Speed-up over the target alone by the number of samples in flight, where it is known; 1 for a baseline."""
    is_from_sample: bool = False
    """Whether that with one sample in flight is estimated from timing samples."""

    @property
    def accuracy(self) -> Estimate | None:
        """Its pass@1 in percent; None where nothing is graded."""
        result = self.run.summary.result
        if result is None:
            return None
        low, high = (None if end is None else 100 * end for end in (result.low, result.high))
        return Estimate(100 * result.estimate, self.run.summary.n, low, high)


def settings(runs: Sequence[RunFacts], distances: Distances, compared: Differences) -> list[Setting]:
    """Return the settings with a distance and their baselines, in the order of the runs."""
    groups, found = _by_setting(runs), list[tuple[Setting, Mapping[int, RunFacts]]]()
    for group in groups:
        scored = [run for run in group.values() if run.summary.run_id in distances.of_runs]
        if scored:
            run = max(scored, key=lambda run: distances.of_runs[run.summary.run_id][0]["num_samples"])
            row = distances.with_baseline(run, runs)
            found.append((Setting(run, distances.of_runs[run.summary.run_id][0], row), group))
    baselines = {str(own.distance["baseline_run_id"]) for own, _ in found if own.distance}
    kept = [(own, members) for own, members in found if own.distance or own.run.summary.run_id in baselines]
    names = labels([replace(own.run.summary, concurrency=0) for own, _ in kept])
    known: list[Setting] = []
    for name, (own, members) in zip(names, kept, strict=True):
        theirs = next((other for other in groups if _baseline_of(own) in _ids(other)), {})
        speed_ups = {n: _speed_up(run, n, _ids(theirs), distances, compared) for n, run in members.items()}
        is_from_sample = False
        if own.distance is None:
            timed = [1] if any(run.summary.at_one for run in members.values()) else []
            speed_ups = {number: Estimate(1.0, own.run.summary.n, None, None) for number in [*timed, *members]}
        elif 1 not in members:
            at_one = (_stored(run, 1, _ids(theirs), distances) for run in members.values())
            speed_ups[1] = next((found for found in at_one if found), None)
            is_from_sample = speed_ups[1] is not None
        values = {number: speed_ups[number] for number in sorted(speed_ups)}
        speeds = {number: value for number, value in values.items() if value}
        known.append(replace(own, label=name, speed_ups=speeds, is_from_sample=is_from_sample))
    return known


def in_flight(found: Sequence[Setting]) -> list[int]:
    """Return the numbers of samples in flight at which settings other than the baselines have speed-ups, ascending."""
    return sorted({number for own in found if own.distance for number in own.speed_ups})


def _by_setting(runs: Sequence[RunFacts]) -> list[dict[int, RunFacts]]:
    """Return the runs of each setting by samples in flight; runs that repeat one at the same number are kept apart."""
    found: dict[tuple[str, int], dict[int, RunFacts]] = {}
    for run in runs:
        own, number = json.dumps([setting(run.summary), *(run.conditions[name] for name in _OF_TEXT)]), 0
        while run.summary.concurrency in found.get((own, number), {}):
            number += 1
        found.setdefault((own, number), {})[run.summary.concurrency] = run
    return list(found.values())


def _ids(members: Mapping[int, RunFacts]) -> list[str]:
    return [run.summary.run_id for run in members.values()]


def _baseline_of(own: Setting) -> str | None:
    return str(own.distance["baseline_run_id"]) if own.distance else None


def _speed_up(
    run: RunFacts, number: int, baselines: Sequence[str], distances: Distances, compared: Differences
) -> Estimate | None:
    """Return a run's speed-up over one of these baselines: that of the warehouse, otherwise that of the comparison."""
    if (stored := _stored(run, number, baselines, distances)) is not None:
        return stored
    for comparison in compared.comparisons:
        for own in comparison.rows:
            speed = own.speed if own.run.run_id == run.summary.run_id else None
            if speed is not None and speed.ratio is not None and speed.baseline in baselines:
                return Estimate(speed.ratio.estimate, speed.n, speed.ratio.low, speed.ratio.high)
    return None


def _stored(run: RunFacts, number: int, baselines: Sequence[str], distances: Distances) -> Estimate | None:
    """Return the warehouse's speed-up of a run with so many samples in flight over one of these baselines."""
    for row in distances.speed_ups.get(run.summary.run_id, ()):
        if row["in_flight"] == number and row["baseline_run_id"] in baselines:
            return Estimate(row["speed_up"], row["n"], row["low_95"], row["high_95"])
    return None


_NAT_DIGITS = 4
_READING = (
    "Nats per token of the accepted text under the target, minus those of its own chains on the same problems: 0 is "
    "what the target alone has, and token-level speculation by construction."
)
_Y_AXIS = "distance (nats per token)"
_GEOMETRIC = "Speed-ups are geometric means over problems of paired ratios. "
_DASHES = (
    "The vertical axis is by square roots, so that small distances are seen beside large ones. Lines: 95 % intervals "
    "over problems, paired for the distance."
)


def drawn(found: Sequence[Setting], runs: Sequence[str]) -> tuple[list[Figure], list[Table]]:
    """Return two figures and a table for each set of problems that several settings have. runs: ids, for the SQL."""
    figures, tables = list[Figure](), list[Table]()
    groups = over_the_same_problems([own.run for own in found])
    for number, (name, members) in enumerate(groups.items(), start=1):
        of, ending = (f" ({name})", f"-problems-{number}") if len(groups) > 1 else ("", "")
        places = {run.place for run in members}
        same = [own for own in found if own.run.place in places]
        if len(same) < 2:
            continue
        figures += [*_against_speed_up(same, runs, of, ending), *_against_accuracy(same, of, ending)]
        tables.append(_speed_table(same, of, ending))
    return figures, tables


def _against_speed_up(found: Sequence[Setting], runs: Sequence[str], of: str, ending: str) -> Iterator[Figure]:
    numbers = in_flight(found)
    has_several = len(numbers) > 1
    baselines = [own for own in found if own.distance is None]
    shown = [own for own in found if own.distance]
    if baselines:  # not where the target alone has other problems, of which the comparisons take those of both
        shown.append(_as_one(baselines))  # all of them are at one place
    points = [point for own in shown for point in _at_each_number(own, numbers)]
    if len({point.index for point in points}) < 2:
        return
    caption = f"{_READING} Down and to the right is better. "
    if has_several:
        caption += f"{_regimes(numbers)} How many samples are in flight decides no text, so a method has one distance. "
    caption += _GEOMETRIC + _from_sample(shown) + _num_problems(shown) + " "
    caption += _DASHES + _left_out(shown, points)
    chart = Scatter(
        points,
        "speed-up over the target alone (×)",
        _Y_AXIS,
        "Distance from the target against speed-up, a mark for each method and number of samples in flight",
        has_root_axis=True,
        key=_key(numbers) if has_several else None,
    )
    title, name = f"Distance from the target against speed-up{of}", f"distance-speed-up{ending}"
    yield Figure(title, {name: chart}, caption, sql=queries.copyable(queries.DISTANCE_SPEED, runs))


def _against_accuracy(found: Sequence[Setting], of: str, ending: str) -> Iterator[Figure]:
    points = [_point(own, own.accuracy) for own in found if own.accuracy is not None]
    if len(points) < 2:
        return
    chart = Scatter(
        points,
        "pass@1 (%)",
        _Y_AXIS,
        "Distance from the target against accuracy, a mark for each method",
        has_root_axis=True,
    )
    statement = queries.copyable(queries.DISTANCE, [own.run.summary.run_id for own in found])
    title, name = f"Distance from the target against accuracy{of}", f"distance-accuracy{ending}"
    yield Figure(title, {name: chart}, f"{_READING} {_DASHES}{_left_out(found, points)}", sql=statement)


def _as_one(baselines: Sequence[Setting]) -> Setting:
    """Return runs of the target alone, which differ in their sampling, as one."""
    own = baselines[0]
    return own if len(baselines) == 1 else replace(own, label=labels([own.run.summary])[0])


def _key(numbers: Sequence[int]) -> tuple[str, str]:
    """Return what hollow marks are, those with fewest samples in flight, and what filled ones are."""
    return f"{numbers[0]} in flight", f"{' or '.join(map(str, numbers[1:]))} in flight"


def _regimes(numbers: Sequence[int]) -> str:
    if numbers[0] == 1:
        several = _key(numbers)[1]
        return f"Hollow marks: one sample in flight, the latency of the papers; filled ones: {several}, the throughput."
    return "Hollow marks: {}; filled ones: {}.".format(*_key(numbers))


def _from_sample(found: Sequence[Setting]) -> str:
    names = [own.label for own in found if own.is_from_sample]
    if not names:
        return ""
    return (
        f"With 1 in flight estimated from a sample of samples that were timed alone: {', '.join(names)}; these "
        "speed-ups are ratios of mean latencies. "
    )


def _num_problems(found: Sequence[Setting]) -> str:
    numbers = sorted({value.n for own in found if own.distance for value in own.speed_ups.values()})
    if not numbers:
        return ""
    return f"Speed-ups are over n = {numbers[0]}{f' to {numbers[-1]}' if len(numbers) > 1 else ''} problems."


def _at_each_number(own: Setting, numbers: Sequence[int]) -> Iterator[Point]:
    """Yield the marks of a setting, with fewest samples in flight first; the target alone has one, which is filled."""
    known = [number for number in numbers if number in own.speed_ups]
    for number in known if own.distance else known[-1:]:
        in_words = f"{number} in flight (n = {own.speed_ups[number].n})" if own.distance else ""
        is_hollow = len(numbers) > 1 and number == numbers[0] and bool(own.distance)
        yield _point(own, own.speed_ups[number], in_words, is_hollow=is_hollow)


def _point(own: Setting, x: Estimate, when: str = "", *, is_hollow: bool = False) -> Point:
    distance, low, high = ((own.distance or {}).get(f"distance{end}") for end in ("", "_low_95", "_high_95"))
    words = [fixed(distance, _NAT_DIGITS) if own.distance else "the target alone"]
    if when:
        words.append(f"{fixed(x.value, 2)}× with {when}")
    if own.accuracy:
        words.append(f"pass@1 {percent(own.accuracy.value / 100)}")
    place = own.run.place
    return Point(own.label, place, x.value, x.low, x.high, distance or 0.0, low, high, ", ".join(words), is_hollow)


def _left_out(found: Sequence[Setting], points: Sequence[Point]) -> str:
    missing = [own.label for own in found if own.run.place not in {point.index for point in points}]
    return f" Not drawn, for want of a value: {', '.join(missing)}." if missing else ""


def _speed_table(found: Sequence[Setting], of: str, ending: str) -> Table:
    numbers = in_flight(found)
    columns = ("run", "nats per token", "distance", "pass@1 %", *(f"speed-up, {n} in flight" for n in numbers))
    cells = [
        (
            limited_label(own.run).replace(own.run.label, own.label),
            fixed(own.nats["nats_per_token"], _NAT_DIGITS),
            _distance(own),
            _with_interval(own.accuracy, 1),
            *(_shown_speed_up(own, number) for number in numbers),
        )
        for own in found
    ]
    caption = (
        "A row for each method with its parameters, models and sampling. Nats per token, distance and pass@1 are of "
        "its run with most scored samples, the speed-ups are over the target alone with as many samples in flight; in "
        "brackets 95 % intervals over problems; n: the problems that a speed-up is over. "
    )
    caption = (caption + _GEOMETRIC + _from_sample(found)).strip()
    places = [own.run.place for own in found]
    return Table(f"distance-speed-up{ending}", f"Distance, accuracy and speed-up{of}", columns, cells, caption, places)


def _distance(own: Setting) -> str:
    if own.distance is None:
        return "baseline"
    row = own.distance
    return _with_interval(
        Estimate(row["distance"], row["n"], row["distance_low_95"], row["distance_high_95"]), _NAT_DIGITS
    )


def _shown_speed_up(own: Setting, number: int) -> str:
    if own.distance is None:
        return "baseline" if number in own.speed_ups else NOTHING
    value = own.speed_ups.get(number)
    return NOTHING if value is None else f"{_with_interval(value, 2, '×')}, n = {value.n}"


def _with_interval(value: Estimate | None, digits: int, unit: str = "") -> str:
    if value is None:
        return NOTHING
    interval = "" if value.low is None else f" ({span(value.low, value.high, digits)})"
    return f"{fixed(value.value, digits)}{unit}{interval}"


_NAT_DIGITS = 4
_THRESHOLD = "SELECT absurd_nats() AS nats"


def read_distances(connection: Connection, run_ids: Sequence[str], absurd_nats: float | None = None) -> Distances:
    """Read what is known of runs. absurd_nats: a threshold of absurd steps; None: as the database has it."""
    if absurd_nats is not None:
        connection.execute(f"SET VARIABLE absurd_nats = {absurd_nats!r}")
    [threshold] = (row["nats"] for row in rows(connection, _THRESHOLD))
    of_runs: dict[str, list[Record]] = {}
    for row in rows(connection, queries.DISTANCE, {"run_ids": list(run_ids)}):
        of_runs.setdefault(str(row["run_id"]), []).append(row)
    speed_ups: dict[str, list[Record]] = {}
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
    against, beside = drawn(settings(runs, distances, compared), [run.summary.run_id for run in runs])
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
