"""The verdict on a night.

A cell is a method with its parameters, models and sampling on a dataset. It runs every night with a new seed. Every
measure of every cell is compared with the cell's earlier comparable nights by one rule (`statistics.night`). A
suspicious cell is rerun tonight, and both runs together decide. A change also counts, without a rerun, if it shows in
the mean of the last three nights and tonight differs in the same direction. If a rate that hardly varies (`GATES`)
rises by more than noise, the verdict is FAIL without a rerun.
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
from scipy import special

from harness.cli import exit_codes
from harness.cli.messages import counted
from warehouse.measures import MEASURES, Measure
from warehouse.statistics.night import FEWEST, MOST, WINDOW, Look, Series, Spread, Value, looks

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
Said = tuple[Verdict, str]
DEVICES = "devices"
Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Conditions whose changes are judged, and conditions that must match for any comparison."""
EXIT_CODES: Mapping[Verdict, int] = {
    "FAIL": exit_codes.TROUBLE,
    "INCONCLUSIVE": exit_codes.INCONCLUSIVE,
    "WARN": exit_codes.WARN,
    "PASS": exit_codes.DONE,
}
"""The worst verdict first. Exit code 2 is reserved for invalid input."""
REMEMBERED_DAYS = 7
"""A cell that ran within this many days but not tonight is reported as missing."""
GATES = {
    "samples without a readable answer": ("no_answer", "unparsable"),
    "samples that ended with an error": ("error",),
    "grader timeouts": ("grader_timeout",),
    "golds rejected": ("bad_gold",),
}
"""Rates that hardly vary, each with the verdicts it counts. A rise indicates a broken prompt or parser."""
SMALLEST_RISE, LARGEST_CHANCE = 0.01, 1e-5
"""A rise is a FAIL if it exceeds SMALLEST_RISE and if, with an unchanged rate, the probability of at least tonight's
count is at most LARGEST_CHANCE.
"""


JUDGED = tuple(measure for measure in MEASURES.values() if "night" in measure.shown)
"""Measures judged each night, pass@1 first."""
PASS_AT_1, SPEED_UP = MEASURES["pass_at_1"], MEASURES["speed_up"]


def scaled(measure: Measure, value: float) -> float:
    """Return a value on the comparison scale: shares unchanged (changes are points), otherwise the logarithm."""
    return value if measure.is_percent else math.log(value)


def natural(measure: Measure, value: float) -> float:
    """Convert a value on the comparison scale back to a number for display."""
    return value if measure.is_percent else math.exp(value)


def least(measure: Measure) -> float:
    """Return the smallest reported change: 2 points or 3 %; 0 for pass@1 and for measures of a CSV file."""
    return 0.0 if measure is PASS_AT_1 or not measure.shown else 0.02 if measure.is_percent else 0.03


def shown(measure: Measure, value: float) -> str:
    """Return a value on the comparison scale as a string."""
    if measure.is_percent:
        return f"{100 * value:.1f} %"
    number, unit = natural(measure, value), {"s": " s", "ratio": "×"}.get(measure.unit, "")
    return (f"{number:,.0f}" if number >= 100 else f"{number:.3g}") + unit


@dataclass(frozen=True)
class Run:
    """Judged values of one run of a cell."""

    run_id: str
    values: Mapping[str, float]
    """Values by measure, on the comparison scale; measures that do not apply are left out."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """Sampling variances of values if known, for rerunning the same problems."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by verdict; unlisted verdicts have none."""
    num_problems: int = 1
    num_samples: int = 1
    """Planned samples over all problems."""
    lacking: str = ""
    """Missing samples or grades, with the command that adds them; empty if complete."""


@dataclass(frozen=True)
class CellNight:
    """One cell on one night: its first run, reruns and conditions."""

    cell: str
    night: date
    first: Run
    reruns: tuple[Run, ...] = ()
    """Complete reruns under the same conditions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Conditions that affect accuracy and may change: devices, inference packages, engine, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems. A change since the previous night is a FAIL."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Further conditions of times: processor, samples in flight, memory shares."""
    baseline: str | None = None
    """Cell whose runs of this night are the speed-up's baseline: the target alone under the same conditions."""
    cards: str = ""
    """Numbers of GPUs on both sides of the speed-up, if different."""
    uncounted: tuple[str, ...] = ()
    """Messages about runs of this night that do not count as reruns of the first run, with reasons."""
    warning: str = ""
    """Why the values are not valid results; empty if they are."""

    @cached_property
    def day(self) -> int:
        return self.night.toordinal()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The first run and its reruns."""
        return self.first, *self.reruns

    def num_runs(self, name: str) -> int:
        """Return the number of runs with this measure."""
        return sum(name in run.values for run in self.runs)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Measures by name, each averaged over the runs that have it."""
        return {
            name: sum(run.values.get(name, 0.0) for run in self.runs) / self.num_runs(name)
            for name in self.first.values
        }

    @cached_property
    def keys(self) -> tuple[Key, Key]:
        """The conditions of accuracy, and of times.

        Times on other devices or with other settings are not comparable. For times, only software changes are judged.
        """
        environment = tuple(sorted(self.environment.items()))
        devices = {name: value for name, value in self.environment.items() if name == DEVICES}
        of_accuracy, of_times = self.inputs, {**self.inputs, **self.times, **devices}
        return (environment, tuple(sorted(of_accuracy.items()))), (environment, tuple(sorted(of_times.items())))


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase per difference between two environments."""
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


class Reference(NamedTuple):
    """The nights with which tonight's measure is compared."""

    nights: Sequence[CellNight]
    """The newest comparable nights, at least FEWEST, ordered from oldest to newest."""
    window: Sequence[CellNight]
    """The last nights under tonight's conditions, tested together with tonight."""
    opened: date | None = None
    """First night under tonight's conditions, if `nights` are from similar earlier conditions; otherwise None."""


class Past:
    """Earlier nights of one cell, oldest first.

    Nights under equal conditions need not be contiguous. A cell that runs on two types of nodes has two kinds of
    nights, each compared with its own kind.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[CellNight, frozenset[str] | None]] = []

    @property
    def last(self) -> CellNight | None:
        return self._kept[-1][0] if self._kept else None

    def keep(self, night: CellNight, excluded: Collection[str], *, is_usable: bool) -> None:
        """Add a judged night. Later nights ignore the measures in `excluded`, or all measures if it is not usable."""
        self._kept.append((night, frozenset(night.values.keys() - excluded) if is_usable else None))

    def forbids(self, night: CellNight) -> list[Said]:
        """Return why a night cannot be compared: its inputs changed, or it lacks samples."""
        inputs = changes(self.last.inputs, night.inputs) if self.last else []
        lacking: list[Said] = [("INCONCLUSIVE", night.first.lacking)] if night.first.lacking else []
        return [("FAIL", f"inputs changed: {one}; ignore this if it was intended") for one in inputs] or lacking

    def alike(self, key: Key, place: int, name: str = "", most: int = MOST, before: date = date.max) -> list[CellNight]:
        """Return the newest usable nights under the conditions `key`, oldest first.

        place: position of the conditions in `CellNight.keys`. name: measure that the nights must have; empty: any.
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
        """Return the reference of a night's measure; None if there are too few comparable nights.

        If tonight's conditions are new, the reference has the most similar conditions with enough nights, the latest if
        several are equally similar.
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
    """The result of one measure of a cell tonight, on the comparison scale."""

    measure: Measure
    night: CellNight
    reference: Reference
    look: Look
    was_rerun: bool
    """Whether tonight's first run already has a rerun, or will not get one."""

    @property
    def num_baseline(self) -> int:
        """Number of nights in the reference."""
        return len(self.reference.nights)

    @property
    def tonight(self) -> float:
        """Tonight's value, including reruns."""
        return self.night.values[self.measure.name]

    @property
    def side(self) -> int:
        """1 for a rise, −1 for a fall, 0 for no change."""
        return self._told(self.look.side(is_confirmed=self.was_rerun), self.tonight)

    @property
    def is_suspicious(self) -> bool:
        """Whether the first run requires a rerun."""
        first = self.night.first.values[self.measure.name]
        return self.look.is_suspicious and self._told(int(np.sign(self.look.screened)), first) != 0

    def _told(self, side: int, value: float) -> int:
        better = self.measure.better
        is_told = self.measure.warns or not better or side == -better
        return side if is_told and abs(value - self.look.usual) >= least(self.measure) else 0

    @property
    def verdict(self) -> Verdict:
        """Verdict on this measure alone; INCONCLUSIVE while a suspicious value waits for a rerun."""
        if self.side:
            return "FAIL" if self.side == -self.measure.better else "WARN"
        return "INCONCLUSIVE" if self.is_suspicious and not self.was_rerun else "PASS"

    @property
    def detectable_change(self) -> float:
        """Size of the worsening detectable tonight with 80 % probability, as a share of the value or in points."""
        # With autocorrelated night effects, few nights count as independent. With one degree of freedom, the limit
        # exceeds 10,000 standard errors: nothing is detectable, and the exponential would overflow.
        change = min(max(least(self.measure), self.look.detectable), math.log(1000))
        return change if self.measure.is_percent else abs(math.expm1(-change * (self.measure.better or 1)))

    def __str__(self) -> str:
        measure, look = self.measure, self.look
        sides = f" ({self.night.cards})" if measure is SPEED_UP and self.night.cards else ""
        percent = f" ({100 * math.expm1(self.tonight - look.usual):+.0f} %)".replace("-", "−")
        change = f"{shown(measure, look.usual)} → {shown(measure, self.tonight)}{'' if measure.is_percent else percent}"
        window = f", {shown(measure, look.window_mean)} mean of the last nights" if look.is_by_window else ""
        return f"{measure.title}{sides}: {change}{window}"

    def said(self) -> list[Said]:
        """Return the messages about the measure; empty if it is unchanged."""
        verdict, opened = self.verdict, self.reference.opened
        if verdict == "PASS" and not self.is_suspicious:
            return []
        if verdict == "PASS":
            return [(verdict, f"{self} with the rerun, which does not confirm the change")]
        against = f"{self} vs. {counted(self.num_baseline, 'night')}" + " in the previous environment" * bool(opened)
        if verdict == "INCONCLUSIVE":
            return [(verdict, f"{against} is suspicious: rerun the cell with another seed")]
        confirmed = "" if self.look.is_by_window else ", confirmed by a rerun"
        if verdict == "FAIL":
            return [(verdict, against + confirmed + _accepting(opened))]
        too_good = ": unusually good; leaked answers or a lenient grader?" if self.measure is PASS_AT_1 else ""
        return [(verdict, against + confirmed + too_good)]


def _accepting(opened: date | None) -> str:
    if not opened:
        return ""
    return f"; if the change is intended, accept it with --since {opened} (in a suite: since under [nightly])"


@dataclass(frozen=True)
class CellVerdict:
    cell: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    num_baseline: int = 0
    """Number of earlier nights with which pass@1 was or could be compared."""
    score: float | None = None
    """pass@1 tonight, including reruns."""
    needs_rerun: bool = False
    is_usable: bool = True
    """Whether later nights may be compared with this one."""
    metrics: tuple[MetricVerdict, ...] = ()
    """pass@1 first; empty if nothing was compared."""

    @property
    def accuracy(self) -> MetricVerdict | None:
        """The result of pass@1."""
        return next((metric for metric in self.metrics if metric.measure is PASS_AT_1), None)

    @property
    def is_judged(self) -> bool:
        """False if no verdict is possible even with a rerun; such cells do not affect the night's verdict."""
        return self.verdict != "INCONCLUSIVE" or self.needs_rerun


@dataclass(frozen=True)
class NightVerdict:
    night: date
    verdict: Verdict
    cells: Sequence[CellVerdict]
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    """Night-to-night variation of each metric, over all cells."""
    warnings: Sequence[str] = ()
    """Why some values are not valid results."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command that reports this verdict."""
        return EXIT_CODES[self.verdict]

    @property
    def to_confirm(self) -> list[CellVerdict]:
        """Suspicious cells without a rerun."""
        return [cell for cell in self.cells if cell.needs_rerun]


class Ledger:
    """The nights judged so far, as the reference for the next one."""

    def __init__(self, measures: Sequence[Measure] = JUDGED, *, may_rerun: bool = True) -> None:
        """Judge by these measures. may_rerun: False for past nights, judged only by their recorded runs."""
        self._measures, self._may_rerun = measures, may_rerun
        self._past: dict[str, Past] = {}

    def judge(self, tonight: Sequence[CellNight]) -> NightVerdict:
        """Judge the next night. Cells that cannot be judged are INCONCLUSIVE; the other cells decide."""
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
            # Detected changes and suspicious values must not enter the reference.
            excluded = {m.measure.name for m in cell.metrics if m.side or m.verdict == "INCONCLUSIVE"}
            self._past.setdefault(night.cell, Past()).keep(night, excluded, is_usable=cell.is_usable)

    def _missing(self, tonight: Sequence[CellNight]) -> list[CellVerdict]:
        now, ran = tonight[0].night, {night.cell for night in tonight}
        last = {cell: past.last.night for cell, past in self._past.items() if past.last and cell not in ran}
        command = f"to launch missing runs:  python -m jobs nightly --suite FILE --date {now}"
        return [
            CellVerdict(cell, "INCONCLUSIVE", (f"did not run; last run on {night}; {command}",))
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
    """Return the verdict on a cell. found: the measures compared with earlier nights."""
    usual = found[0].reference.nights if found else past.alike(night.keys[0], 0)
    if forbidden := past.forbids(night):
        said, is_usable = forbidden, not night.first.lacking
    else:
        said = [*_new_conditions(night, past, found), *_raised(night, usual, found)]
        said += [] if found else [("INCONCLUSIVE", f"only {len(usual)} of {FEWEST} baseline nights")]
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
    """Return how tonight's environment differs from that of its reference nights, or of the last night."""
    if found and not found[0].reference.opened:
        return []
    before, compared = past.last or night, ""
    if found:
        before = found[0].reference.nights[-1]
        compared = f"; compared with {counted(found[0].num_baseline, 'earlier night')} up to {before.night}"
    return [("PASS", f"environment changed: {one}{compared}") for one in changes(before.environment, night.environment)]


def _title(name: str) -> str:
    """Return the title of a measure, or its name if it is not in the registry (CSV files, other versions)."""
    return MEASURES[name].title if name in MEASURES else name


def _not_compared(night: CellNight, last: CellNight, found: Sequence[MetricVerdict]) -> list[Said]:
    """Return messages about measures that are missing since the previous night or not compared, with reasons."""
    changed = changes({**last.environment, **last.times}, {**night.environment, **night.times})
    absent = [_title(name) for name in last.values if name not in night.values]
    compared = {metric.measure.name for metric in found}
    later = [_title(name) for name in night.values if name not in compared]
    if absent and not changed:
        return [
            (
                "WARN",
                f"{', '.join(absent)} missing tonight but present on the previous night: check {night.first.run_id}",
            )
        ]
    return (
        [("PASS", f"not compared yet: {', '.join(later)} (because of {', '.join(changed)})")]
        if changed and later
        else []
    )


def _raised(night: CellNight, usual: Sequence[CellNight], found: Sequence[MetricVerdict]) -> Iterator[Said]:
    """Yield a FAIL for each rate whose rise exceeds both SMALLEST_RISE and counting noise."""
    tonight, runs = night.first, [run for earlier in usual for run in earlier.runs]
    num_usual = sum(run.num_samples for run in runs)
    for what, names in GATES.items() if runs else ():
        number = sum(run.verdicts.get(name, 0) for run in runs for name in names)
        count = sum(tonight.verdicts.get(name, 0) for name in names)
        usually, now = number / num_usual, count / tonight.num_samples
        # Of all events, tonight's are binomial if the rate is unchanged. A normal would be far off for a few events.
        share = tonight.num_samples / (tonight.num_samples + num_usual)
        is_chance = count == 0 or special.bdtrc(count - 1, count + number, share) > LARGEST_CHANCE
        if now - usually > SMALLEST_RISE and not is_chance:
            accepting = _accepting(found[0].reference.opened if found else None)
            yield "FAIL", f"{what}: {100 * usually:.1f} % → {100 * now:.1f} %{accepting}"


def _with_baselines(cells: Sequence[CellVerdict], tonight: Sequence[CellNight]) -> list[CellVerdict]:
    """Return the verdicts, and request reruns of the baselines of suspicious speed-ups."""
    waiting = [m for cell in cells for m in cell.metrics if m.measure is SPEED_UP and m.verdict == "INCONCLUSIVE"]
    wanted = {metric.night.baseline for metric in waiting} - {night.cell for night in tonight if night.reruns}
    reason = "the speed-up of another cell is suspicious: also rerun this cell, the baseline of that speed-up"
    return [
        replace(cell, needs_rerun=True, reasons=(*cell.reasons, reason), verdict=_worst([cell.verdict, "INCONCLUSIVE"]))
        if cell.cell in wanted and not cell.needs_rerun
        else cell
        for cell in cells
    ]


def _series(measure: Measure, night: CellNight, reference: Reference) -> Series:
    """Return tonight's and earlier values of a measure.

    Sampling variances are averaged over the earlier nights. If they are known, night effects are assumed equal across
    cells in logits. Otherwise, night effects are assumed to scale with the sampling noise for rates, and with the noise
    of means over problems for tokens.
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
