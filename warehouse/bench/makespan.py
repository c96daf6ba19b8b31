"""What balancing shards is worth on recorded samples: `python -m warehouse.bench.makespan DATABASE --shards 4`.

The odd sample indexes of each run are what is to be scheduled; the even ones are all that is known beforehand. Then
the same with lengths drawn from a log-normal distribution that is fitted to the recorded ones (or as wide as asked).
Lengths are spent tokens; the makespan is that of the longest shard, over the mean of all: 1 is perfect.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness.command import OneLineErrors
from harness.problem import Problem
from jobs.run.expected import Recorded, expected_tokens
from jobs.run.shards import assign_to_shards
from jobs.run.spec import Unit
from warehouse.database import WarehouseError, reader, rows

_SAMPLES = """
SELECT run_id, problem_id, text, level, sample_index, sum(spent_tokens)::DOUBLE AS tokens
FROM sample JOIN problem USING (run_id, problem_id) JOIN sample_tokens USING (run_id, sample_id)
WHERE stop_reason <> 'error' GROUP BY ALL ORDER BY ALL
"""
_DRAWN_PROBLEMS, _DRAWN_SAMPLES = 500, 16


@dataclass
class Lengths:
    """Spent tokens of the samples of one run."""

    problems: list[Problem]
    tokens: dict[tuple[str, int], float]
    """By problem id and sample index."""

    def history(self) -> dict[str, Recorded]:
        """Of the even sample indexes, by the problem's text."""
        found: dict[str, Recorded] = {}
        for problem in self.problems:
            known = [t for (name, index), t in self.tokens.items() if name == problem.id and index % 2 == 0]
            if known:
                found[problem.text] = Recorded(statistics.fmean(known), len(known))
        return found

    def todo(self) -> list[Unit]:
        """Units of the odd sample indexes, in the order of a plan."""
        odd = [(index, name) for name, index in self.tokens if index % 2]
        order = {problem.id: place for place, problem in enumerate(self.problems)}
        return [Unit(_hash(name, index), name, index) for index, name in sorted(odd, key=lambda u: (u[0], order[u[1]]))]


def makespans(lengths: Lengths, shards: int) -> dict[str, float]:
    """Longest shard over the mean one, by way of dealing."""
    units, actual = lengths.todo(), {}
    for name in {unit.problem_id for unit in units}:
        actual[name] = statistics.fmean(
            lengths.tokens[u.problem_id, u.sample_index] for u in units if u.problem_id == name
        )
    ways: dict[str, Callable[[], list[list[Unit]]]] = {
        "equal slices": lambda: _slices(units, shards),
        "all alike": lambda: assign_to_shards(units, shards),
        "by level or length": lambda: assign_to_shards(units, shards, expected_tokens(lengths.problems)),
        "by history": lambda: assign_to_shards(units, shards, expected_tokens(lengths.problems, lengths.history())),
        "by the truth": lambda: assign_to_shards(units, shards, actual),
    }
    mean = sum(lengths.tokens[unit.problem_id, unit.sample_index] for unit in units) / shards
    return {name: _longest(way(), lengths.tokens) / mean for name, way in ways.items()}


def drawn(like: Lengths, between: float | None, seed: int = 0) -> Lengths:
    """Log-normal lengths of 500 problems × 16 samples with the recorded spread within a problem, and between problems
    the recorded one too or `between` (standard deviation of the natural logarithm)."""
    mean, fitted, within = spread(like)
    draw = random.Random(seed)
    problems = [Problem(f"drawn/{i}", "drawn", f"{i:06}", "") for i in range(_DRAWN_PROBLEMS)]
    tokens = {}
    for problem in problems:
        centre = draw.gauss(mean, fitted if between is None else between)
        for index in range(_DRAWN_SAMPLES):
            tokens[problem.id, index] = math.exp(draw.gauss(centre, within))
    return Lengths(problems, tokens)


def spread(lengths: Lengths) -> tuple[float, float, float]:
    """Mean of the logarithm of the tokens, its standard deviation between problems, and within one."""
    logs: dict[str, list[float]] = {}
    for (name, _), tokens in lengths.tokens.items():
        logs.setdefault(name, []).append(math.log(max(1.0, tokens)))
    repeated = [values for values in logs.values() if len(values) > 1]
    within = statistics.fmean(statistics.variance(values) for values in repeated) if repeated else 0.0
    means = [statistics.fmean(values) for values in logs.values()]
    noise = within / statistics.fmean(len(values) for values in logs.values())
    between = max(0.0, statistics.variance(means) - noise) if len(means) > 1 else 0.0
    return statistics.fmean(means), math.sqrt(between), math.sqrt(within)


def recorded(database: Path) -> dict[str, Lengths]:
    """Runs with more than one sample per problem. Raises WarehouseError."""
    found: dict[str, Lengths] = {}
    with reader(database) as connection:
        for row in rows(connection, _SAMPLES):
            lengths = found.setdefault(str(row["run_id"]), Lengths([], {}))
            problem, index = str(row["problem_id"]), int(str(row["sample_index"]))
            if index == 0:
                level = None if row["level"] is None else str(row["level"])
                lengths.problems.append(Problem(problem, "", str(row["text"]), "", level=level))
            lengths.tokens[problem, index] = float(str(row["tokens"]))
    return {run_id: lengths for run_id, lengths in found.items() if lengths.todo()}


def _hash(problem: str, index: int) -> str:
    return hashlib.sha256(f"{problem}/{index}".encode()).hexdigest()[:16]


def _slices(units: Sequence[Unit], shards: int) -> list[list[Unit]]:
    ends = [len(units) * i // shards for i in range(shards + 1)]
    return [list(units[start:end]) for start, end in itertools.pairwise(ends)]


def _longest(shards: Sequence[Sequence[Unit]], tokens: Mapping[tuple[str, int], float]) -> float:
    return max(sum(tokens[unit.problem_id, unit.sample_index] for unit in shard) for shard in shards)


@click.command(cls=OneLineErrors)
@click.argument("database", type=click.Path(path_type=Path))
@click.option("--shards", type=click.IntRange(1), multiple=True, default=(4, 8), show_default=True)
@click.option("--between", type=click.FloatRange(0), multiple=True, help="Further spreads between drawn problems.")
def main(database: Path, shards: tuple[int, ...], between: tuple[float, ...]) -> None:
    """Longest shard over the mean one, for equal slices and for balanced ones, on recorded and on drawn lengths."""
    try:
        runs = recorded(database)
    except WarehouseError as wrong:
        click.echo(f"error: {wrong}", err=True)
        sys.exit(2)
    for run_id, lengths in runs.items():
        _, fitted, within = spread(lengths)
        click.echo(f"{run_id}: spread {fitted:.2f} between problems, {within:.2f} within")
        for number in shards:
            _print(f"  recorded, {number} shards", makespans(lengths, number))
            for wide in (None, *between):
                named = "fitted" if wide is None else f"spread {wide}"
                _print(f"  drawn ({named}), {number} shards", makespans(drawn(lengths, wide), number))


def _print(name: str, results: Mapping[str, float]) -> None:
    click.echo(f"{name:36}" + "  ".join(f"{way} {value:.3f}" for way, value in results.items()))


if __name__ == "__main__":
    main(prog_name="python -m warehouse.bench.makespan")
