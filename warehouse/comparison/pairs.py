"""Times of settings, over all finished repeats of each setting, and their ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warehouse.database import Connection, columns, rows
from warehouse.sql.baselines import CONDITIONED, ratio_sql
from warehouse.statistics.intervals import Families, Floats
from warehouse.statistics.ratios import SettingRatio, ratio

_REPEATS = "SELECT run_id, repeats FROM run_repeats WHERE list_contains($run_ids::VARCHAR[], run_id)"
_PROBLEMS = """
SELECT run_id, list(problem_id || ' ' || content_hash ORDER BY problem_index) AS problems,
    list(family ORDER BY problem_index) AS families
FROM problem WHERE list_contains($run_ids::VARCHAR[], run_id) GROUP BY run_id
"""
_SAMPLES = """
SELECT sample.run_id, problem_index, sample_index, timed.latency_seconds AS seconds,
    timed.emitted_tokens::DOUBLE AS tokens, stop_reason IS NULL AS is_unfinished
FROM sample JOIN problem USING (run_id, problem_id) LEFT JOIN timed_sample AS timed USING (run_id, sample_id)
WHERE list_contains($run_ids::VARCHAR[], sample.run_id) ORDER BY sample.run_id, problem_index, sample_index
"""
_ARE_ALIKE = f"""
WITH conditioned AS ({CONDITIONED})
SELECT 1 FROM conditioned AS run, conditioned AS baseline
WHERE run.run_id = $run_id AND baseline.run_id = $baseline AND {ratio_sql()}
"""
_BY_STOPWATCH = """
SELECT run_id, problem_id || ' ' || content_hash AS problem, family, x / y AS seconds
FROM problem_stopwatch JOIN problem USING (run_id, problem_id)
WHERE list_contains($run_ids::VARCHAR[], run_id) AND stopwatch = $stopwatch AND x > 0 ORDER BY ALL
"""


@dataclass(frozen=True)
class Times:
    """Times of a run's samples; arrays (n, k), NaN for samples without a valid time."""

    problems: Sequence[str]
    """Problem id and content hash, (n,). Problems are the same if both match."""
    family: Families
    seconds: Floats
    tokens: Floats
    """Emitted tokens."""
    is_unfinished: NDArray[np.bool_]
    """Whether a sample is planned but not finished."""


@dataclass(frozen=True)
class TimedPair:
    """Times of two settings on the problems timed in all their runs; one array (n,) per run."""

    own: Sequence[Floats]
    base: Sequence[Floats]
    family: Families
    own_tokens: Sequence[Floats] = ()
    base_tokens: Sequence[Floats] = ()

    @property
    def n(self) -> int:
        """Number of problems."""
        return len(self.family)

    @property
    def num_runs(self) -> tuple[int, int]:
        """Numbers of runs of the setting and of its baseline."""
        return len(self.own), len(self.base)

    @cached_property
    def ratio(self) -> SettingRatio:
        """The baseline's times divided by the setting's; above 1 the setting is faster."""
        return ratio(self.base, self.own, self.family)

    @property
    def length_ratio(self) -> float:
        """The setting's emitted tokens per chain divided by the baseline's, geometric mean over problems."""
        own, base = (np.log(np.stack(repeats)).mean() for repeats in (self.own_tokens, self.base_tokens))
        return float(np.exp(own - base))


def repeats_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the finished runs of each run's setting, including the run itself; an unfinished run has no repeats."""
    return {row["run_id"]: row["repeats"] for row in rows(connection, _REPEATS, {"run_ids": list(run_ids)})}


def read_times(connection: Connection, run_ids: Sequence[str]) -> dict[str, Times]:
    asked = {"run_ids": list(run_ids)}
    problems = {row["run_id"]: row for row in rows(connection, _PROBLEMS, asked)}
    found = columns(connection, _SAMPLES, asked)
    names = found["run_id"]
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    times = {}
    for start, end in pairwise(bounds):
        part = {name: values[start:end] for name, values in found.items()}
        places = np.unique(part["problem_index"], return_inverse=True)[1], part["sample_index"]
        of = problems[names[start]]
        shape = len(of["problems"]), int(part["sample_index"].max()) + 1
        seconds, tokens, is_unfinished = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        seconds[places], tokens[places], is_unfinished[places] = (
            part[name] for name in ("seconds", "tokens", "is_unfinished")
        )
        times[str(names[start])] = Times(of["problems"], of["families"], seconds, tokens, is_unfinished)
    return times


def timed_pair(own: Sequence[Times], base: Sequence[Times]) -> TimedPair | None:
    """Pair the times of two settings, one `Times` per repeat; None if no problem was timed in all runs.

    A sample not finished in one run is left out of the other setting's runs, because long chains finish last. If runs
    have different numbers of samples per problem, only the first ones that all have count: the logarithm of a mean
    depends on the number of its terms, so the geometric mean would be biased.
    """
    shared = [name for name in own[0].problems if all(name in other.problems for other in (*own, *base))]
    places = [_places(one, shared) for one in (*own, *base)]
    sides = list(zip((*own, *base), places, strict=True))
    of_own, of_base = sides[: len(own)], sides[len(own) :]
    width = min(times.seconds.shape[1] for times, _ in sides)
    means = [_means(*one, of_base, width) for one in of_own] + [_means(*one, of_own, width) for one in of_base]
    is_timed = np.all([(seconds > 0) & (tokens > 0) for seconds, tokens in means], axis=0)
    if not is_timed.any():
        return None
    seconds, tokens = ([one[is_timed] for one in found] for found in zip(*means, strict=True))
    families = [own[0].family[place] for place, is_one in zip(places[0], is_timed, strict=True) if is_one]
    number = len(own)
    return TimedPair(seconds[:number], seconds[number:], families, tokens[:number], tokens[number:])


_Side = tuple[Times, NDArray[np.int64]]


def _places(times: Times, problems: Sequence[str]) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(times.problems)}
    return np.array([places[name] for name in problems], dtype=np.int64)


def _means(times: Times, places: NDArray[np.int64], others: Sequence[_Side], width: int) -> tuple[Floats, Floats]:
    """Return mean seconds and emitted tokens of the first `width` samples, both (n,); NaN for problems without any.

    Samples that are unfinished in a run of the other side are left out.
    """
    seconds, tokens = times.seconds[places, :width], times.tokens[places, :width]
    is_kept = np.isfinite(seconds)
    for other, of_other in others:
        is_kept &= ~other.is_unfinished[of_other, :width]
    count = is_kept.sum(axis=1)
    count = np.where(count > 0, count, np.nan)
    return np.where(is_kept, seconds, 0.0).sum(axis=1) / count, np.where(is_kept, tokens, 0.0).sum(axis=1) / count


def latencies(
    connection: Connection, run_id: str, baseline: str | None, stopwatch: str, of_baseline: str
) -> TimedPair | None:
    """Return latencies of a setting and its baseline, as defined by the view `stopwatch`, paired by problem.

    `of_baseline` is the definition for the baseline, because a paper may compare a total time with a reasoning time.
    None if no problem was timed in all runs, or if the runs differ in devices or other conditions that affect latency.
    """
    if not rows(connection, _ARE_ALIKE, {"run_id": run_id, "baseline": baseline}):
        return None
    sides: list[list[dict[str, float]]] = []
    families: dict[str, str | None] = {}
    for name, clock in ((run_id, stopwatch), (str(baseline), of_baseline)):
        repeats = repeats_of(connection, [name])[name]
        of_runs: dict[str, dict[str, float]] = {repeat: {} for repeat in repeats}
        for row in rows(connection, _BY_STOPWATCH, {"run_ids": repeats, "stopwatch": clock}):
            of_runs[row["run_id"]][row["problem"]] = float(row["seconds"])
            families.setdefault(row["problem"], row["family"])
        sides.append(list(of_runs.values()))
    shared = sorted(set.intersection(*(set(times) for side in sides for times in side)))
    if not shared:
        return None
    own, base = ([np.array([times[name] for name in shared]) for times in side] for side in sides)
    return TimedPair(own, base, [families[name] for name in shared])
