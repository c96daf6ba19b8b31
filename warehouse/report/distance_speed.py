"""Distance from the target against speed-up, with one sample in flight and with several, and against accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from warehouse.formatting import NOTHING, fixed, percent, span
from warehouse.labels import labels
from warehouse.report import queries
from warehouse.report.charts.points import Point, Scatter
from warehouse.report.distance_settings import Setting, in_flight
from warehouse.report.facts import Estimate
from warehouse.report.problem_sets import over_the_same_problems
from warehouse.report.section import Figure
from warehouse.report.tables import Table, limited_label

_NAT_DIGITS = 4
_READING = (
    "Nats per token of the accepted text under the target, minus those of its own chains on the same problems: 0 is "
    "what the target alone has, and token-level speculation by construction."
)
_Y_AXIS = "distance (nats per token)"
_GEOMETRIC = "Speed-ups are geometric means over problems of paired ratios. "
_LINES = (
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
        tables.append(_table(same, of, ending))
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
    caption += _LINES + _left_out(shown, points)
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
    yield Figure(title, {name: chart}, f"{_READING} {_LINES}{_left_out(found, points)}", sql=statement)


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


def _table(found: Sequence[Setting], of: str, ending: str) -> Table:
    numbers = in_flight(found)
    columns = ("run", "nats per token", "distance", "pass@1 %", *(f"speed-up, {n} in flight" for n in numbers))
    cells = [
        (
            limited_label(own.run).replace(own.run.label, own.label),
            fixed(own.nats["nats_per_token"], _NAT_DIGITS),
            _distance(own),
            _with_interval(own.accuracy, 1),
            *(_speed_up(own, number) for number in numbers),
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


def _speed_up(own: Setting, number: int) -> str:
    if own.distance is None:
        return "baseline" if number in own.speed_ups else NOTHING
    value = own.speed_ups.get(number)
    return NOTHING if value is None else f"{_with_interval(value, 2, '×')}, n = {value.n}"


def _with_interval(value: Estimate | None, digits: int, unit: str = "") -> str:
    if value is None:
        return NOTHING
    interval = "" if value.low is None else f" ({span(value.low, value.high, digits)})"
    return f"{fixed(value.value, digits)}{unit}{interval}"
