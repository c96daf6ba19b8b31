"""Compute the tables `estimate` and `interval`: all metrics of runs, and of runs paired with baselines.

Every load ends with `bring_up_to_date`. `of_problems` computes the measures whose x and y warehouse/measures.py defines
in SQL per problem; other functions here compute the rest. Modules that only a few runs need are imported when the first
such run is found. A sample has a result if it is finished and graded (`comparison.outcomes`). An ungraded error is also
a result, unless other finished samples of the run lack a grade from the same grader version. Speed-ups compare two
settings over all their finished repeats (pairs.py), so a pair's rows are recomputed if a run of either setting is
loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from warehouse.comparison.outcomes import families
from warehouse.database import Connection, Record, columns, rows, transaction
from warehouse.measures import MEASURES, SAMPLES_PER_SLOT, Measure, Source
from warehouse.sql.schema import sql_of
from warehouse.statistics.intervals import Counts, Floats, Interval, mean, mean_on_these, mean_t
from warehouse.statistics.samples import maj_at_k, pass_at_k
from warehouse.statistics.shares import auroc

if TYPE_CHECKING:
    from warehouse.comparison.latency_at_one import TimedRun
    from warehouse.statistics.probes import Flags, Oracle, Points, Rates

LIKE_THESE, THESE_PROBLEMS = "like these problems", "these problems"
"""Questions that intervals answer: results on similar problems, or on the same problems again."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an estimate is about: a run or a pair of runs, with a grader version, role or group if it has one."""

    run_id: str
    grader_version: str | None = None
    baseline_run_id: str | None = None
    role: str | None = None
    group_kind: str | None = None
    group_value: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its intervals; its fields are documented in sql/tables/estimate.sql."""

    subject: Subject
    measure: str
    n: int
    """Number of problems."""
    interval: Interval
    k: int | None = None
    num_samples: int | None = None
    missing: int | None = None
    sums: tuple[float, float] | None = None
    """Σx and Σy, if the metric is their ratio."""
    on_these: Interval | None = None
    """Interval of the metric if the same problems are rerun."""
    run_factor: float | None = None
    """Standard deviation of the logarithm of a run's times, if the interval covers differences between runs."""


_KEY = ("run_id", "baseline_run_id", "grader_version", "measure", "role", "k", "group_kind", "group_value")
_ENDS = ("low", "high", "standard_error", "p", "method")
_ENDS_ON_THESE = tuple(f"{name}_on_these" for name in _ENDS)
_TYPES = (
    {"k": pa.int32()}
    | {name: pa.int64() for name in ("n", "families", "num_samples", "missing")}
    | {name: pa.float64() for name in ("value", "num", "den", *_ENDS[:-1], *_ENDS_ON_THESE[:-1], "run_factor")}
)
_TEXTS = (*(name for name in _KEY if name != "k"), "unit", _ENDS[-1], _ENDS_ON_THESE[-1])
_INSERT = f"""
CREATE OR REPLACE TEMP TABLE new_estimate AS SELECT hash({", ".join(_KEY)}) AS id, * FROM new_rows;
INSERT INTO estimate BY NAME SELECT * EXCLUDE ({", ".join((*_ENDS, *_ENDS_ON_THESE))})
FROM new_estimate;
INSERT INTO interval BY NAME
SELECT id AS estimate, run_id, '{LIKE_THESE}' AS question, {", ".join(_ENDS)} FROM new_estimate
UNION ALL BY NAME
SELECT id AS estimate, run_id, '{THESE_PROBLEMS}' AS question,
    {", ".join(f"{name}_on_these AS {name}" for name in _ENDS)}
FROM new_estimate WHERE method_on_these IS NOT NULL
"""


def insert(connection: Connection, estimates: Sequence[Estimate]) -> None:
    if not estimates:
        return
    schema = pa.schema([*((name, pa.string()) for name in _TEXTS), *_TYPES.items()])
    connection.register("new_rows", pa.Table.from_pylist([_row(one) for one in estimates], schema))
    connection.execute(_INSERT)
    connection.unregister("new_rows")


def _row(one: Estimate) -> dict[str, object]:
    found, (num, den) = one.interval, one.sums or (None, None)
    return {
        **{field.name: getattr(one.subject, field.name) for field in fields(Subject)},
        **{name: getattr(one, name) for name in ("measure", "n", "k", "num_samples", "missing", "run_factor")},
        "families": found.families,
        "unit": MEASURES[one.measure].unit,
        "value": found.estimate if np.isfinite(found.estimate) else None,
        "num": num,
        "den": den,
        **_ends(found, is_difference=one.subject.baseline_run_id is not None),
        **({} if one.on_these is None else {f"{name}_on_these": end for name, end in _ends(one.on_these).items()}),
    }


def _ends(found: Interval, *, is_difference: bool = False) -> dict[str, object]:
    p = found.p if is_difference else None
    return dict(zip(_ENDS, (found.low, found.high, found.standard_error, p, found.kind), strict=True))


def of_problems(connection: Connection, run_ids: Sequence[str], measures: Sequence[Measure]) -> Iterator[Estimate]:
    """Yield the runs' estimates of measures with x and y per problem, if the runs have the data."""
    family_of = families(connection, run_ids)
    in_families = {run_id for run_id, _ in family_of}
    by_source: dict[Source, list[Measure]] = defaultdict(list)
    for measure in measures:
        for source in (measure.source, *([measure.by_role] if measure.by_role else [])):
            by_source[source].append(measure)
    for source, members in by_source.items():
        keys = ["run_id", *source.keys]
        values = [
            f"({sql})::DOUBLE AS {name}{place}"
            for place, measure in enumerate(members)
            for name, sql in (("x", measure.x), ("y", measure.y), ("samples", measure.samples or "NULL"))
        ]
        # DuckDB applies this filter before the sources group their rows. IN (SELECT …) would be applied after grouping
        # all runs.
        sql = (
            f"SELECT {', '.join(['problem_id', *keys, *values])} FROM {source.sql} "
            f"WHERE list_contains($run_ids::VARCHAR[], run_id) ORDER BY {', '.join(keys)}, problem_id"
        )
        found = columns(connection, sql, {"run_ids": list(run_ids)})
        for start, end in _groups([found[key] for key in keys]):
            of: dict[str, Any] = {key: found[key][start] for key in keys}
            of = {key: None if value != value else value for key, value in of.items()}
            subject = Subject(**of, group_kind=source.group)
            family = None
            if subject.run_id in in_families:
                names_of = found["problem_id"][start:end].tolist()
                family = np.array([family_of.get((subject.run_id, name)) for name in names_of], dtype=object)
            for place, measure in enumerate(members):
                x, y, samples = (found[f"{name}{place}"][start:end] for name in ("x", "y", "samples"))
                is_kept = np.isfinite(x) & (y > 0)
                if is_kept.any():
                    x, y, samples = x[is_kept], y[is_kept], samples[is_kept]
                    num_samples = int(samples.sum()) if measure.samples else None
                    sums = (float(x.sum()), float(y.sum())) if measure.definition else None
                    interval = measure.method(x, y, None if family is None else family[is_kept].tolist())
                    yield Estimate(subject, measure.name, len(x), interval, num_samples=num_samples, sums=sums)


def _groups(keys: Sequence[NDArray[Any]]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each group of rows; keys (rows,) are sorted, and NaN is a value."""
    if len(keys[0]):
        changes = np.zeros(len(keys[0]) - 1, dtype=bool)
        for key in keys:
            is_missing = key != key
            changes |= (key[1:] != key[:-1]) & ~(is_missing[1:] & is_missing[:-1])
        yield from pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])])


_STORED = [measure for measure in MEASURES.values() if measure.x is not None and measure.source.is_stored]


def accuracies(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    connection.execute(sql_of("estimates/results"), {"run_ids": list(run_ids)})
    for row in rows(connection, sql_of("estimates/problems")):
        yield from _of_version(row)
    votes = rows(connection, sql_of("estimates/votes"))
    for subject, found in groupby(votes, key=lambda row: Subject(row["run_id"], row["grader_version"])):
        yield _majority(subject, list(found))


def _of_version(row: Record) -> Iterator[Estimate]:
    subject, spreads, levels = Subject(row["run_id"], row["grader_version"]), not row["is_greedy"], row["levels"]
    names = [field.name for field in fields(_Counts) if field.name != "family"]
    counts = _Counts(np.array(row["families"], dtype=object), *(np.array(row[name]) for name in names))
    yield from _both(subject, "pass_at_1", counts, spreads=spreads)
    for level in sorted(set(levels), key=lambda name: (name is not None, name)):
        group = replace(subject, group_kind="level", group_value=level)
        yield from _both(group, "accuracy", counts.at(np.array([name == level for name in levels])), spreads=spreads)
    for k in range(1, int(counts.first_results.max()) + 1):
        enough = counts.at(counts.first_results >= k)
        solved = pass_at_k(enough.first_right, enough.first_results, k)
        if k == 1:
            solved = np.asarray(enough.first_right / enough.first_results, dtype=float)
        num_samples = int(enough.first_results.sum())
        yield Estimate(subject, "pass_at_k", len(solved), mean(solved, enough.family.tolist()), k, num_samples)


@dataclass(frozen=True)
class _Counts:
    """Sample counts per problem, all (n,)."""

    family: NDArray[np.object_]
    samples: Counts
    correct: Counts
    results: Counts
    """Samples with a result."""
    right: Counts
    """Correct samples with a result."""
    first_results: Counts
    """Samples with a result that pass@k uses: all of them, or only one in a greedy run, which repeats its first sample.
    """
    first_right: Counts

    @property
    def scores(self) -> Floats:
        """Share of correct samples among those with a result."""
        return np.asarray(self.right / self.results, dtype=float)

    def at(self, is_kept: NDArray[np.bool_]) -> _Counts:
        return _Counts(*(getattr(self, field.name)[is_kept] for field in fields(self)))


def _both(subject: Subject, metric: str, counts: _Counts, *, spreads: bool) -> Iterator[Estimate]:
    """Yield two mean scores: with missing samples counted as incorrect, and over available samples only.

    If samples are missing, the first score is a lower bound without an interval. spreads: whether samples of a problem
    may differ, as in runs that are not greedy.
    """
    most, present = int(counts.samples.max()), counts.at(counts.results > 0)
    result = mean(present.scores, present.family.tolist()) if len(present.scores) else None
    on_these = mean_on_these(present.right, present.results) if result and spreads else None
    total, num_results = int(counts.samples.sum()), int(counts.results.sum())
    whole, of_whole = result, on_these
    if whole is None or num_results < total:
        whole = Interval(float(np.mean(counts.correct / counts.samples)), None, None, None, "none: samples are missing")
        of_whole = None
    yield Estimate(subject, metric, len(counts.samples), whole, most, total, total - num_results, on_these=of_whole)
    if result is not None:
        missing = total - num_results
        n = len(present.scores)
        yield Estimate(subject, f"graded_{metric}", n, result, most, num_results, missing, on_these=on_these)


def _majority(subject: Subject, ballots: Sequence[Record]) -> Estimate:
    k, family = ballots[0]["k"], [ballot["family"] for ballot in ballots]
    scores = [maj_at_k(ballot["votes"], ballot["is_right"], ballot["abstained"], k) for ballot in ballots]
    return Estimate(subject, "maj_at_k", len(scores), mean(np.array(scores), family), k, k * len(scores))


_TIMED = """
SELECT DISTINCT run_id FROM timing_sample WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) ORDER BY run_id
"""


def alone(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the mean latency with one sample in flight, for runs with timing samples."""
    for row in rows(connection, _TIMED, {"run_ids": list(run_ids)}):
        from warehouse.comparison import latency_at_one
        from warehouse.statistics.two_phase import mean_interval

        run = latency_at_one.read(connection, row["run_id"])
        if run is not None:
            found = run.mean()
            n, interval = len(run.families), mean_interval(found)
            yield Estimate(Subject(run.run_id), latency_at_one.MEAN, n, interval, num_samples=found.num_samples)


def throughputs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the throughput of runs whose workers had enough samples."""
    parameters = {"run_ids": list(run_ids), "samples_per_slot": SAMPLES_PER_SLOT}
    for row in rows(connection, sql_of("estimates/full_slots"), parameters):
        for name, count in (("samples_per_second", row["samples"]), ("emitted_tokens_per_second", row["tokens"])):
            if count is None or row["seconds"] is None:  # too large for exact_sum
                continue
            rate = Interval(count / row["seconds"], None, None, None, "none: one number of a run")
            yield Estimate(Subject(row["run_id"]), name, row["n"], rate, num_samples=row["num_samples"])


_RATED = """
SELECT DISTINCT run_id, grader_version, kind FROM rating_total
WHERE list_contains($run_ids::VARCHAR[], run_id) ORDER BY ALL
"""


def judges(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the AUROC of the runs' judges for every grader version and kind of decision.

    Scores of decisions that accept low scores are negated, so higher values always favor the draft.
    """
    for row in rows(connection, _RATED, {"run_ids": list(run_ids)}):
        found = columns(connection, sql_of("estimates/ratings"), row)
        problem, sample = found["problem_index"].astype(np.int64), found["sample_index"]
        sample = problem * (int(sample.max()) + 1) + sample
        area = auroc(found["rating"], found["is_right"], sample, problem, found["family"])
        subject = Subject(row["run_id"], row["grader_version"], group_kind="kind", group_value=row["kind"])
        yield Estimate(subject, "judge_auroc", len(np.unique(problem)), area)


_SCORES = tuple(range(1, 10))
"""Thresholds at which decisions by score are replayed."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of the points' scores, which serve as thresholds for other kinds of scores."""


def probed(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the estimates of probes.

    A point counts only if it has graded continuations both with and without the draft's step.
    """
    found = columns(connection, sql_of("estimates/points"), {"run_ids": list(run_ids)})
    for start, end in _groups([found["run_id"]]):
        from warehouse.statistics import probes

        version = found["grader_version"][start]
        subject = Subject(found["run_id"][start], version if version == version else None)
        points = probes.Points(**{field.name: found[field.name][start:end] for field in fields(probes.Points)})
        yield from _rates(subject, points)
        n = len(np.unique(points.problem))
        yield Estimate(subject, "probe_auroc", n, probes.area(points), num_samples=len(points))
        yield from _found(subject, points.halved, probes.oracle(points), "probe_oracle_")
        for third in np.unique(points.third).tolist():
            of_third = replace(subject, group_kind="third", group_value=str(third))
            yield from _rates(of_third, points.where(points.third == third))
        sign = -1.0 if found["accepts_below"][start] else 1.0
        for threshold in _thresholds(found["kind"][start], points):
            at = replace(subject, group_kind="threshold", group_value=f"{sign * threshold:g}")
            yield from _rates(at, points, points.rating >= threshold)


def _rates(subject: Subject, points: Points, accepted: Flags | None = None) -> Iterator[Estimate]:
    from warehouse.statistics import probes

    yield from _found(subject, points, probes.rates(points, accepted), "probe_")


def _found(subject: Subject, points: Points, found: Rates | Oracle, prefix: str) -> Iterator[Estimate]:
    n = len(np.unique(points.problem))
    for field in fields(found):
        yield Estimate(subject, f"{prefix}{field.name}", n, getattr(found, field.name), num_samples=len(points))


def _thresholds(kind: str, points: Points) -> Sequence[float]:
    """Return the thresholds at which decisions are replayed; none for choices, which have no threshold."""
    known = points.rating[~np.isnan(points.rating)]
    if kind == "choice" or not len(known):
        return ()
    return _SCORES if kind == "score" else of_numbers(known)


def of_numbers(ratings: Floats) -> list[float]:
    """Return the distinct quantiles of ratings, rounded down to the six digits that group_value has."""
    found = np.quantile(ratings, _QUANTILES)
    scale = 10.0 ** (5 - np.floor(np.log10(np.maximum(np.abs(found), 1e-12))))
    return sorted({float(f"{threshold:g}") for threshold in np.floor(found * scale + 1e-6) / scale})


_AT_BUDGET = "accuracy_at_budget"
_CHANGED_SWEEPS = """
SELECT DISTINCT run_id FROM budget_cut
WHERE list_contains($loaded::VARCHAR[], run_id) OR list_contains($loaded::VARCHAR[], source_run_id) ORDER BY run_id
"""
_FORGET_SWEEPS = f"""
DELETE FROM estimate WHERE ends_with(measure, '{_AT_BUDGET}') AND list_contains($run_ids::VARCHAR[], run_id);
DELETE FROM interval WHERE list_contains($run_ids::VARCHAR[], run_id) AND estimate NOT IN (SELECT id FROM estimate)
"""


def bring_sweeps_up_to_date(connection: Connection, loaded: Sequence[str]) -> None:
    """Recompute a budget sweep's rows if the sweep's run, or the run whose chains it truncates, was just loaded."""
    run_ids = [str(row["run_id"]) for row in rows(connection, _CHANGED_SWEEPS, {"loaded": list(loaded)})]
    if not run_ids:  # otherwise every load would scan all intervals
        return
    for statement in _FORGET_SWEEPS.split(";"):
        connection.execute(statement, {"run_ids": run_ids})
    names = [field.name for field in fields(_Counts) if field.name != "family"]
    for row in rows(connection, sql_of("estimates/budgets"), {"run_ids": run_ids}):
        counts = _Counts(np.array(row["families"], dtype=object), *(np.array(row[name]) for name in names))
        subject = Subject(row["run_id"], row["grader_version"], group_kind="budget", group_value=str(row["budget"]))
        insert(connection, [*_both(subject, _AT_BUDGET, counts, spreads=not row["is_greedy"])])


DISTANCE = "distance_from_target"
_NEW_PAIRS = f"""
CREATE OR REPLACE TEMP TABLE pair AS SELECT DISTINCT run_id, baseline_run_id FROM distance_baseline;
DELETE FROM estimate WHERE measure = '{DISTANCE}' AND (run_id, baseline_run_id) NOT IN (FROM pair);
DELETE FROM interval WHERE estimate NOT IN (SELECT id FROM estimate);
CREATE OR REPLACE TEMP TABLE new_pair AS
FROM pair ANTI JOIN (SELECT run_id, baseline_run_id FROM estimate WHERE measure = '{DISTANCE}') AS known
    USING (run_id, baseline_run_id)
"""


def bring_distances_up_to_date(connection: Connection) -> None:
    """Update the distances of run pairs to match the current database."""
    connection.execute(_NEW_PAIRS)
    if connection.execute("SELECT 1 FROM new_pair LIMIT 1").fetchall():
        insert(connection, [_of_pair(row) for row in rows(connection, sql_of("estimates/distances"))])


def _of_pair(row: Record) -> Estimate:
    differences = np.array(row["differences"], dtype=np.float64)
    subject = Subject(str(row["run_id"]), baseline_run_id=str(row["baseline_run_id"]))
    return Estimate(subject, DISTANCE, len(differences), mean_t(differences, row["family"]))


_NEW_PAIRS_OF_TIMES = "FROM new_pair ORDER BY repeats_of_baseline, repeats, run_id, baseline_run_id"


def bring_speed_ups_up_to_date(connection: Connection, loaded: Sequence[str]) -> None:
    """Update the speed-ups of run pairs to match the current database. `loaded`: the runs just loaded."""
    for statement in sql_of("estimates/pairs").split(";"):
        connection.execute(statement, {"loaded": list(loaded)} if "$loaded" in statement else None)
    pairs = rows(connection, _NEW_PAIRS_OF_TIMES)
    for start in range(0, len(pairs), _RUNS_AT_ONCE):
        some = pairs[start : start + _RUNS_AT_ONCE]
        insert(connection, [*_of_times(connection, some), *_at_one(connection, some)])


def _of_times(connection: Connection, pairs: Sequence[Record]) -> Iterator[Estimate]:
    from warehouse.comparison.pairs import read_times, timed_pair

    times = read_times(
        connection, sorted({name for pair in pairs for name in (*pair["repeats"], *pair["repeats_of_baseline"])})
    )
    for _, alike in groupby(pairs, key=lambda pair: (pair["repeats"], pair["repeats_of_baseline"])):
        members = list(alike)
        own, base = ([times[name] for name in members[0][side]] for side in ("repeats", "repeats_of_baseline"))
        found = timed_pair(own, base)
        if found is None:
            continue
        factor = found.ratio.factor.standard_deviation if found.ratio.factor else None
        speed, length = found.ratio.geometric_mean, found.length_ratio
        for pair in members:
            subject = Subject(pair["run_id"], baseline_run_id=pair["baseline_run_id"])
            yield Estimate(subject, "speed_up", found.n, speed, run_factor=factor)
            yield Estimate(subject, "ratio_of_means", found.n, found.ratio.of_means, run_factor=factor)
            for name, value in (("rate_ratio", speed.estimate * length), ("chain_length_ratio", length)):
                yield Estimate(subject, name, found.n, Interval(value, None, None, None, "none"))


def _at_one(connection: Connection, pairs: Sequence[Record]) -> Iterator[Estimate]:
    """Yield the rows of pairs in which both runs have timing samples."""
    from warehouse.comparison import latency_at_one

    runs: dict[str, TimedRun | None] = {}
    for pair in pairs:
        names = str(pair["run_id"]), str(pair["baseline_run_id"])
        for name in names:
            runs[name] = runs[name] if name in runs else latency_at_one.read(connection, name)
        own, base = (runs[name] for name in names)
        found = latency_at_one.speed_up(own, base) if own and base else None
        if found is not None:
            subject = Subject(names[0], baseline_run_id=names[1])
            yield Estimate(subject, latency_at_one.SPEED_UP, found.n, found.ratio)


_RUNS_AT_ONCE = 50
"""Maximum number of runs whose problems are in memory together."""
_WITHOUT = """
SELECT run_id FROM run ANTI JOIN (FROM estimate WHERE measure = 'pass_at_1') AS known USING (run_id) ORDER BY run_id
"""


_OF_RUNS = (accuracies, judges, partial(of_problems, measures=_STORED), alone, throughputs, probed)
"""Estimates of single runs."""


def bring_up_to_date(connection: Connection) -> None:
    """Compute the rows of runs that have none, and update the rows of run pairs affected by other runs.

    Replacing a run deletes its rows, so the runs without rows are those loaded since the last call.
    """
    with transaction(connection):
        run_ids = [str(row["run_id"]) for row in rows(connection, _WITHOUT)]
        for start in range(0, len(run_ids), _RUNS_AT_ONCE):
            some = run_ids[start : start + _RUNS_AT_ONCE]
            insert(connection, [one for estimated in _OF_RUNS for one in estimated(connection, some)])
        bring_sweeps_up_to_date(connection, run_ids)
        bring_speed_ups_up_to_date(connection, run_ids)
        bring_distances_up_to_date(connection)
