"""The verdict on a night.

A cell is a method with its parameters, models and sampling on a dataset. It runs every night with another seed. Every
measure of every cell is compared with the cell's earlier comparable nights by one rule (`statistics.night`): what looks
suspicious tonight is run again, and first run and re-run together decide; or the mean of the last three nights does.
Rates that hardly vary have gates, which need no re-run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from harness.cli import exit_codes
from harness.cli.messages import counted
from warehouse.measures import MEASURES, Measure
from warehouse.statistics.night import FEWEST, MOST, WINDOW, Look, Series, Spread, Value, looks

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
Said = tuple[Verdict, str]
DEVICES = "devices"
Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Conditions whose change is judged, and those without which nothing is comparable."""
EXIT_CODES: Mapping[Verdict, int] = {
    "FAIL": exit_codes.TROUBLE,
    "INCONCLUSIVE": exit_codes.INCONCLUSIVE,
    "WARN": exit_codes.WARN,
    "PASS": exit_codes.DONE,
}
"""The worst first. Exit code 2 is reserved for invalid input."""
REMEMBERED_DAYS = 7
"""A cell that ran within this many days and not tonight is reported as missing."""
GATES = {
    "samples without an answer that can be read": ("no_answer", "unparsable"),
    "samples that ended with an error": ("error",),
    "grader timeouts": ("grader_timeout",),
    "golds rejected": ("bad_gold",),
}
"""Rates that hardly vary, each with the verdicts that it counts: a rise shows a broken prompt or parser."""
SMALLEST_RISE = 0.01
NOISE_FACTOR = 5.0
"""Smallest rise that is a fault, in standard deviations of a count; chance reaches it once in millions of nights."""


JUDGED = tuple(measure for measure in MEASURES.values() if "night" in measure.shown)
"""What nights judge: pass@1 first."""
PASS_AT_1, SPEED_UP = MEASURES["pass_at_1"], MEASURES["speed_up"]


def scaled(measure: Measure, value: float) -> float:
    """Return a value as it is compared: shares as they are, whose changes are points; of all else the logarithm."""
    return value if measure.is_percent else math.log(value)


def natural(measure: Measure, value: float) -> float:
    """Return a compared value as it is shown."""
    return value if measure.is_percent else math.exp(value)


def least(measure: Measure) -> float:
    """Return the smallest change that is told, however certain: 2 points or 3 %; of pass@1 and of recorded ones any."""
    return 0.0 if measure is PASS_AT_1 or not measure.shown else 0.02 if measure.is_percent else 0.03


def shown(measure: Measure, value: float) -> str:
    """Return a compared value as text."""
    if measure.is_percent:
        return f"{100 * value:.1f} %"
    number, unit = natural(measure, value), {"s": " s", "ratio": "×"}.get(measure.unit, "")
    return (f"{number:,.0f}" if number >= 100 else f"{number:.3g}") + unit


@dataclass(frozen=True)
class Run:
    """What is judged of one run of a cell."""

    run_id: str
    values: Mapping[str, float]
    """By measure, as they are compared; one that does not apply has none."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """Sampling variances of values, where they are known: were the same problems run again."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by verdict; a verdict that is not listed has none."""
    num_problems: int = 1
    num_samples: int = 1
    """Of all problems, as planned."""
    lacking: str = ""
    """What is not run or not graded, with the command that adds it; empty where nothing is missing."""


@dataclass(frozen=True)
class CellNight:
    """One cell in one night."""

    cell: str
    night: date
    first: Run
    reruns: tuple[Run, ...] = ()
    """Complete ones under the same conditions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Conditions of accuracy that may change from outside: devices, packages, engine settings, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems, which must not change unless intended."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Further conditions of times: processor, samples in flight, memory shares."""
    baseline: str | None = None
    """The cell whose runs of this night the speed-up refers to: the target alone under the same conditions."""
    cards: str = ""
    """With how many cards both sides of the speed-up were timed, where they differ."""
    uncounted: tuple[str, ...] = ()
    """Phrases that say which runs of this night are no re-runs of the first, and why."""
    warning: str = ""
    """Why its numbers are no result; empty where they are."""

    @cached_property
    def day(self) -> int:
        """Number of the night's date."""
        return self.night.toordinal()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that count."""
        return self.first, *self.reruns

    def num_runs(self, name: str) -> int:
        """Return how many runs have a measure."""
        return sum(name in run.values for run in self.runs)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Measures by name, each the mean over the runs that have it."""
        return {
            name: sum(run.values.get(name, 0.0) for run in self.runs) / self.num_runs(name)
            for name in self.first.values
        }

    @cached_property
    def keys(self) -> tuple[Key, Key]:
        """The conditions of accuracy, and of times.

        Times on other devices, or with other settings, are other times: only a change of software is judged.
        """
        environment = tuple(sorted(self.environment.items()))
        devices = {name: value for name, value in self.environment.items() if name == DEVICES}
        of_accuracy, of_times = self.inputs, {**self.inputs, **self.times, **devices}
        return (environment, tuple(sorted(of_accuracy.items()))), (environment, tuple(sorted(of_times.items())))


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase for each difference between two environments."""
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


class Reference(NamedTuple):
    """What a measure of tonight is compared with."""

    nights: Sequence[CellNight]
    """At least FEWEST comparable nights, the newest, oldest first."""
    window: Sequence[CellNight]
    """The last nights under tonight's conditions, which are looked at together with tonight."""
    opened: date | None = None
    """The first night under tonight's conditions, where these have too few, so that the nearest ones' before count."""


class Past:
    """The earlier nights of one cell, oldest first.

    Nights under equal conditions need not be contiguous: a cell that runs on one of two types of nodes has two kinds of
    nights, and each finds its own.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[CellNight, frozenset[str] | None]] = []

    @property
    def last(self) -> CellNight | None:
        """The newest night."""
        return self._kept[-1][0] if self._kept else None

    def keep(self, night: CellNight, excluded: Collection[str], *, is_usable: bool) -> None:
        """Add a judged night. excluded: the measures that no later night is compared with; is_usable: False: none."""
        self._kept.append((night, frozenset(night.values.keys() - excluded) if is_usable else None))

    def forbids(self, night: CellNight) -> list[Said]:
        """Return why a night cannot be compared with any: its inputs are others, or it lacks samples."""
        inputs = changes(self.last.inputs, night.inputs) if self.last else []
        lacking: list[Said] = [("INCONCLUSIVE", night.first.lacking)] if night.first.lacking else []
        return [("FAIL", f"inputs changed: {one}; ignore this if it was intended") for one in inputs] or lacking

    def alike(self, key: Key, place: int, name: str = "", most: int = MOST, before: date = date.max) -> list[CellNight]:
        """Return the newest nights under conditions with which a measure is compared, or any, the oldest first.

        place: that of the conditions in `CellNight.keys`.
        """
        found = (
            night
            for night, counted in reversed(self._kept)
            if counted is not None
            and (not name or name in counted)
            and night.night < before
            and night.keys[place] == key
        )
        return list(islice(found, most))[::-1]

    def reference(self, night: CellNight, name: str, place: int) -> Reference | None:
        """Return what a measure of a night is compared with; None where there are too few comparable nights.

        Where tonight's conditions are new, it is compared with the nights under those that differ least, the last of
        these, of those that had enough nights before.
        """
        own = night.keys[place]
        nights, window = self.alike(own, place, name), self.alike(own, place, most=WINDOW - 1)
        if len(nights) >= FEWEST:
            return Reference(nights, window)
        opened = next((kept.night for kept, _ in self._kept if kept.keys[place] == own), night.night)
        others = dict.fromkeys(kept.keys[place] for kept, _ in self._kept)
        found = [self.alike(key, place, name, before=opened) for key in others if key != own and key[1] == own[1]]

        def nearness(nights: Sequence[CellNight]) -> tuple[int, date]:
            return -len(changes(nights[-1].environment, night.environment)), nights[-1].night

        nearest = max((nights for nights in found if len(nights) >= FEWEST), key=nearness, default=None)
        return Reference(nearest, window, opened) if nearest else None


@dataclass(frozen=True)
class MetricVerdict:
    """What is said of one measure of a cell tonight; values are scaled."""

    measure: Measure
    night: CellNight
    reference: Reference
    look: Look
    was_rerun: bool
    """Whether tonight's first run is not the only one that there will be."""

    @property
    def num_baseline(self) -> int:
        """Number of nights that it was compared with."""
        return len(self.reference.nights)

    @property
    def tonight(self) -> float:
        """The value, re-runs included."""
        return self.night.values[self.measure.name]

    @property
    def side(self) -> int:
        """1 for a rise that was found, −1 for a fall, 0 for neither."""
        return self._told(self.look.side(is_confirmed=self.was_rerun), self.tonight)

    @property
    def is_suspicious(self) -> bool:
        """Whether the first run asks for another one."""
        first = self.night.first.values[self.measure.name]
        return self.look.is_suspicious and self._told(int(np.sign(self.look.screened)), first) != 0

    def _told(self, side: int, value: float) -> int:
        better = self.measure.better
        is_told = self.measure.warns or not better or side == -better
        return side if is_told and abs(value - self.look.usual) >= least(self.measure) else 0

    @property
    def verdict(self) -> Verdict:
        """The verdict on this measure alone; INCONCLUSIVE where a suspicion waits for a re-run."""
        if self.side:
            return "FAIL" if self.side == -self.measure.better else "WARN"
        return "INCONCLUSIVE" if self.is_suspicious and not self.was_rerun else "PASS"

    @property
    def detectable_change(self) -> float:
        """Size of the change for the worse that is found tonight with 80 % chance, a share of the value or points."""
        # Of nights that wander, few count as independent. With one degree of freedom the limit is above 10,000 standard
        # errors: nothing is found, and the exponential of such a change has no number.
        change = min(max(least(self.measure), self.look.detectable), math.log(1000))
        return change if self.measure.is_percent else abs(math.expm1(-change * (self.measure.better or 1)))

    def __str__(self) -> str:
        """Return a phrase such as `fallback rate: 21.3 % → 31.5 %`."""
        measure, look = self.measure, self.look
        sides = f" ({self.night.cards})" if measure is SPEED_UP and self.night.cards else ""
        percent = f" ({100 * math.expm1(self.tonight - look.usual):+.0f} %)".replace("-", "−")
        change = f"{shown(measure, look.usual)} → {shown(measure, self.tonight)}{'' if measure.is_percent else percent}"
        window = f", {shown(measure, look.window_mean)} over the last nights together" if look.is_by_window else ""
        return f"{measure.title}{sides}: {change}{window}"

    def said(self) -> list[Said]:
        """Return what is said of it; nothing where it is as usual."""
        verdict, opened = self.verdict, self.reference.opened
        if verdict == "PASS" and not self.is_suspicious:
            return []
        if verdict == "PASS":
            return [(verdict, f"{self} with the re-run, which does not confirm the suspicion")]
        against = f"{self} against {counted(self.num_baseline, 'night')}" + " of the environment before" * bool(opened)
        if verdict == "INCONCLUSIVE":
            return [(verdict, f"{against} is suspicious: run the cell again with another seed")]
        confirmed = "" if self.look.is_by_window else ", confirmed by a re-run"
        if verdict == "FAIL":
            return [(verdict, against + confirmed + _accepting(opened))]
        too_good = ": too good; leaked answers or a lenient grader?" if self.measure is PASS_AT_1 else ""
        return [(verdict, against + confirmed + too_good)]


def _accepting(opened: date | None) -> str:
    return f"; if the change is intended, accept it: --since {opened} (a suite: since in [nightly])" if opened else ""


@dataclass(frozen=True)
class CellVerdict:
    """The verdict on one cell in one night."""

    cell: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    num_baseline: int = 0
    """Number of nights that its pass@1 was compared with, or could be."""
    score: float | None = None
    """pass@1 tonight, re-runs included."""
    needs_rerun: bool = False
    is_usable: bool = True
    """Whether later nights may be compared with this one."""
    metrics: tuple[MetricVerdict, ...] = ()
    """pass@1 first; none where nothing was compared."""

    @property
    def accuracy(self) -> MetricVerdict | None:
        """What is said of pass@1."""
        return next((metric for metric in self.metrics if metric.measure is PASS_AT_1), None)

    @property
    def is_judged(self) -> bool:
        """False where nothing can be said, and a re-run would not change that: such a cell decides no night."""
        return self.verdict != "INCONCLUSIVE" or self.needs_rerun


@dataclass(frozen=True)
class NightVerdict:
    """The verdict on one night."""

    night: date
    verdict: Verdict
    cells: Sequence[CellVerdict]
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    """How much each metric wanders from night to night, over all cells."""
    warnings: Sequence[str] = ()
    """Why numbers are no result."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command that reports this verdict."""
        return EXIT_CODES[self.verdict]

    @property
    def to_confirm(self) -> list[CellVerdict]:
        """Suspicious cells that have not been run again."""
        return [cell for cell in self.cells if cell.needs_rerun]


class Ledger:
    """The nights judged so far, with which the next one is compared."""

    def __init__(self, measures: Sequence[Measure] = JUDGED, *, may_rerun: bool = True) -> None:
        """Judge by these measures. may_rerun: False where nights are long ago and decide by the runs that they had."""
        self._measures, self._may_rerun = measures, may_rerun
        self._past: dict[str, Past] = {}

    def judge(self, tonight: Sequence[CellNight]) -> NightVerdict:
        """Judge the night that follows. Cells that cannot be judged are INCONCLUSIVE, and the others decide."""
        pasts = {night.cell: self._past.get(night.cell, Past()) for night in tonight}
        judged = [night for night in tonight if not pasts[night.cell].forbids(night)]
        cases = [
            (measure, night, reference)
            for measure in self._measures
            for night in judged
            if measure.name in night.values
            if (reference := pasts[night.cell].reference(night, measure.name, measure.is_of_times))
        ]
        spreads, seen = looks([_series(*case) for case in cases])
        found: dict[str, list[MetricVerdict]] = {night.cell: [] for night in tonight}
        for (measure, night, reference), look in zip(cases, seen, strict=True):
            was_rerun = not self._may_rerun or night.num_runs(measure.name) > 1
            found[night.cell].append(MetricVerdict(measure, night, reference, look, was_rerun))
        cells = [_judged(night, pasts[night.cell], found[night.cell]) for night in tonight]
        cells = _with_baselines(cells, tonight) + self._missing(tonight)
        worst = _worst([cell.verdict for cell in cells if cell.is_judged] or ["INCONCLUSIVE"])
        warnings = dict.fromkeys(night.warning for night in tonight if night.warning)
        return NightVerdict(tonight[0].night, worst, cells, spreads, list(warnings))

    def keep(self, tonight: Sequence[CellNight], verdict: NightVerdict) -> None:
        """Add a judged night to the history."""
        for night, cell in zip(tonight, verdict.cells, strict=False):
            # What was found, and what waits for a re-run, must not become usual.
            excluded = {m.measure.name for m in cell.metrics if m.side or m.verdict == "INCONCLUSIVE"}
            self._past.setdefault(night.cell, Past()).keep(night, excluded, is_usable=cell.is_usable)

    def _missing(self, tonight: Sequence[CellNight]) -> list[CellVerdict]:
        now, ran = tonight[0].night, {night.cell for night in tonight}
        last = {cell: past.last.night for cell, past in self._past.items() if past.last and cell not in ran}
        command = f"python -m jobs nightly --suite FILE --date {now} launches what is missing"
        return [
            CellVerdict(cell, "INCONCLUSIVE", (f"did not run; it last ran on {night}: {command}",))
            for cell, night in last.items()
            if (now - night).days <= REMEMBERED_DAYS
        ]


def replay(nights: Sequence[Sequence[CellNight]], ledger: Ledger | None = None) -> list[NightVerdict]:
    """Judge all nights, oldest first, and return their verdicts."""
    ledger, verdicts = ledger or Ledger(), []
    for tonight in nights:
        verdicts.append(ledger.judge(tonight))
        ledger.keep(tonight, verdicts[-1])
    return verdicts


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=list(EXIT_CODES).index, default="PASS")


def _judged(night: CellNight, past: Past, found: Sequence[MetricVerdict]) -> CellVerdict:
    """Return the verdict on a cell; found: the measures that were compared with earlier nights."""
    usual = found[0].reference.nights if found else past.alike(night.keys[0], 0)
    if forbidden := past.forbids(night):
        said, is_usable = forbidden, not night.first.lacking
    else:
        said = [*_new_conditions(night, past, found), *_raised(night, usual, found)]
        said += [] if found else [("INCONCLUSIVE", f"{len(usual)} of {FEWEST} nights of baseline")]
        said += [one for metric in found for one in metric.said()]
        said += [("PASS", phrase) for phrase in night.uncounted]
        said += _not_compared(night, past.last, found) if past.last and found else []
        is_usable = all(kind != "FAIL" for kind, _ in said)
    return CellVerdict(
        night.cell,
        _worst(kind for kind, _ in said),
        tuple(phrase for _, phrase in said),
        night.first.run_id,
        len(usual),
        night.values.get(PASS_AT_1.name),
        any(metric.verdict == "INCONCLUSIVE" for metric in found),
        is_usable,
        tuple(found),
    )


def _new_conditions(night: CellNight, past: Past, found: Sequence[MetricVerdict]) -> list[Said]:
    """Return how tonight's environment differs from that of the nights that it is compared with, or of the last."""
    if found and not found[0].reference.opened:
        return []
    before, compared = past.last or night, ""
    if found:
        before = found[0].reference.nights[-1]
        compared = f"; compared with {counted(found[0].num_baseline, 'night')} before, until {before.night}"
    return [("PASS", f"environment changed: {one}{compared}") for one in changes(before.environment, night.environment)]


def _title(name: str) -> str:
    """Return the heading of a measure; a recorded past has names of its own, and so may nights of another version."""
    return MEASURES[name].title if name in MEASURES else name


def _not_compared(night: CellNight, last: CellNight, found: Sequence[MetricVerdict]) -> list[Said]:
    """Return which measures the night before had and tonight lacks, or which are not compared, and why."""
    changed = changes({**last.environment, **last.times}, {**night.environment, **night.times})
    absent = [_title(name) for name in last.values if name not in night.values]
    compared = {metric.measure.name for metric in found}
    later = [_title(name) for name in night.values if name not in compared]
    if absent and not changed:
        return [("WARN", f"no {', '.join(absent)} tonight, which the night before had: look at {night.first.run_id}")]
    return (
        [("PASS", f"not compared yet, because of {', '.join(changed)}: {', '.join(later)}")]
        if changed and later
        else []
    )


def _raised(night: CellNight, usual: Sequence[CellNight], found: Sequence[MetricVerdict]) -> Iterator[Said]:
    """Yield each rate that rose by more than counting noise explains."""
    tonight, runs = night.first, [run for earlier in usual for run in earlier.runs]
    num_usual = sum(run.num_samples for run in runs)
    for what, names in GATES.items() if runs else ():
        now = sum(tonight.verdicts.get(name, 0) for name in names) / tonight.num_samples
        number = sum(run.verdicts.get(name, 0) for run in runs for name in names)
        smooth = (number + 0.5) / (num_usual + 1)
        noise = (smooth * (1 - smooth) * (1 / tonight.num_samples + 1 / num_usual)) ** 0.5
        if now - number / num_usual > max(SMALLEST_RISE, NOISE_FACTOR * noise):
            accepting = _accepting(found[0].reference.opened if found else None)
            yield "FAIL", f"{what}: {100 * number / num_usual:.1f} % → {100 * now:.1f} %{accepting}"


def _with_baselines(cells: Sequence[CellVerdict], tonight: Sequence[CellNight]) -> list[CellVerdict]:
    """Return the verdicts, with a re-run asked for also of the cells that suspicious speed-ups refer to."""
    waiting = [m for cell in cells for m in cell.metrics if m.measure is SPEED_UP and m.verdict == "INCONCLUSIVE"]
    wanted = {metric.night.baseline for metric in waiting} - {night.cell for night in tonight if night.reruns}
    reason = "the speed-up of another cell is suspicious: run this one, its baseline, again too"
    return [
        replace(cell, needs_rerun=True, reasons=(*cell.reasons, reason), verdict=_worst([cell.verdict, "INCONCLUSIVE"]))
        if cell.cell in wanted and not cell.needs_rerun
        else cell
        for cell in cells
    ]


def _series(measure: Measure, night: CellNight, reference: Reference) -> Series:
    """Return tonight's values of a measure and those before.

    Sampling variances are means over the earlier nights. Where they are known, night effects are alike in logits; in
    other rates they are as sampling is, in tokens as means over problems are.
    """
    name, first = measure.name, night.first
    runs = [run for one in reference.nights for run in one.runs] if name in first.variances else []
    known = [run.variances[name] for run in runs if name in run.variances]
    variance = sum(known) / len(known) if known else 0.0
    if known:
        unit = variance * first.num_samples
    elif measure.is_percent:
        usual = sum(one.values[name] for one in reference.nights) / len(reference.nights)
        unit = max(usual * (1 - usual), 1e-4) ** 0.5
    else:
        unit = 1.0
    if not known and not measure.is_of_times:
        unit /= first.num_problems**0.5

    def value(one: CellNight) -> Value:
        return Value(one.day, one.values[name], variance and variance / one.num_runs(name))

    together = value(night)
    alone = Value(night.day, first.values[name], variance) if night.reruns else together
    window = [value(one) for one in reference.window if name in one.values]
    earlier = [value(one) for one in reference.nights]
    return Series(earlier, alone, together, window, unit, name, least(measure) / 10)
