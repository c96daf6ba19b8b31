"""Measure the balance of shards on recorded samples: `python -m tools.bench.warehouse.makespan DATABASE --shards 4`.

The odd sample indices of each run are assigned to shards; the even ones are the history that the assignment may use.
The same is repeated with lengths drawn from a log-normal distribution that is fitted to the recorded lengths, or that
has another spread between problems. Lengths are spent tokens. The relative makespan is the length of the longest shard
divided by the mean over shards; 1 is perfect balance.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.problems.problem import Problem
from warehouse.options import WarehouseCommand

if TYPE_CHECKING:
    from jobs.run.forecast import Recorded
    from jobs.run.spec import Unit

_SAMPLES = """
SELECT run_id, problem_id, text, level, sample_index, sum(spent_tokens)::DOUBLE AS tokens
FROM sample JOIN problem USING (run_id, problem_id) JOIN sample_tokens USING (run_id, sample_id)
WHERE stop_reason <> 'error' GROUP BY ALL ORDER BY ALL
"""
_DRAWN_PROBLEMS, _DRAWN_SAMPLES = 500, 16


@dataclass
class Lengths:
    """Spent tokens of the samples of a run."""

    problems: list[Problem]
    tokens: dict[tuple[str, int], float]
    """Spent tokens by problem id and sample index."""

    def history(self) -> dict[str, Recorded]:
        """Return the mean tokens of the even sample indices, by the problem's text."""
        from jobs.run.forecast import Recorded

        history: dict[str, Recorded] = {}
        for problem in self.problems:
            even = [t for (name, index), t in self.tokens.items() if name == problem.id and index % 2 == 0]
            if even:
                history[problem.text] = Recorded(statistics.fmean(even), len(even))
        return history

    def units(self) -> list[Unit]:
        """Return the units of the odd sample indices, in the order of a plan."""
        from jobs.run.spec import Unit

        odd = [(index, name) for name, index in self.tokens if index % 2]
        order = {problem.id: place for place, problem in enumerate(self.problems)}
        return [Unit(_hash(name, index), name, index) for index, name in sorted(odd, key=lambda u: (u[0], order[u[1]]))]


def makespans(lengths: Lengths, shards: int) -> dict[str, float]:
    """Return the relative makespan of each assignment policy."""
    from jobs.run.forecast import assign_to_shards, expected_tokens

    units, actual = lengths.units(), {}
    for name in {unit.problem_id for unit in units}:
        actual[name] = statistics.fmean(
            lengths.tokens[u.problem_id, u.sample_index] for u in units if u.problem_id == name
        )
    policies: dict[str, Callable[[], list[list[Unit]]]] = {
        "equal slices": lambda: _slices(units, shards),
        "equal lengths": lambda: assign_to_shards(units, shards),
        "level or text length": lambda: assign_to_shards(units, shards, expected_tokens(lengths.problems)),
        "history": lambda: assign_to_shards(units, shards, expected_tokens(lengths.problems, lengths.history())),
        "true means": lambda: assign_to_shards(units, shards, actual),
    }
    mean = sum(lengths.tokens[unit.problem_id, unit.sample_index] for unit in units) / shards
    return {name: _longest(policy(), lengths.tokens) / mean for name, policy in policies.items()}


def draw_lengths(recorded: Lengths, between: float | None, seed: int = 0) -> Lengths:
    """Draw log-normal lengths of 500 problems × 16 samples with the recorded spread within problems.

    between: standard deviation of the natural logarithm between problems; None: the recorded one.
    """
    mean, recorded_between, within = spread(recorded)
    generator = random.Random(seed)
    problems = [Problem(f"drawn/{i}", "drawn", f"{i:06}", "") for i in range(_DRAWN_PROBLEMS)]
    tokens = {}
    for problem in problems:
        problem_mean = generator.gauss(mean, recorded_between if between is None else between)
        for index in range(_DRAWN_SAMPLES):
            tokens[problem.id, index] = math.exp(generator.gauss(problem_mean, within))
    return Lengths(problems, tokens)


def spread(lengths: Lengths) -> tuple[float, float, float]:
    """Return the mean of the logarithm of the tokens and its standard deviations between and within problems."""
    logs: dict[str, list[float]] = {}
    for (name, _), tokens in lengths.tokens.items():
        logs.setdefault(name, []).append(math.log(max(1.0, tokens)))
    repeated = [values for values in logs.values() if len(values) > 1]
    within = statistics.fmean(statistics.variance(values) for values in repeated) if repeated else 0.0
    means = [statistics.fmean(values) for values in logs.values()]
    noise = within / statistics.fmean(len(values) for values in logs.values())
    between = max(0.0, statistics.variance(means) - noise) if len(means) > 1 else 0.0
    return statistics.fmean(means), math.sqrt(between), math.sqrt(within)


def read_lengths(database: Path) -> dict[str, Lengths]:
    """Read the lengths of runs with more than one sample per problem, by run id. Raises WarehouseError."""
    from warehouse.database import reader, rows

    lengths_by_run: dict[str, Lengths] = {}
    with reader(database) as connection:
        for row in rows(connection, _SAMPLES):
            lengths = lengths_by_run.setdefault(str(row["run_id"]), Lengths([], {}))
            problem, index = str(row["problem_id"]), int(str(row["sample_index"]))
            if index == 0:
                level = None if row["level"] is None else str(row["level"])
                lengths.problems.append(Problem(problem, "", str(row["text"]), "", level=level))
            lengths.tokens[problem, index] = float(str(row["tokens"]))
    return {run_id: lengths for run_id, lengths in lengths_by_run.items() if lengths.units()}


def _hash(problem: str, index: int) -> str:
    return hashlib.sha256(f"{problem}/{index}".encode()).hexdigest()[:16]


def _slices(units: Sequence[Unit], shards: int) -> list[list[Unit]]:
    ends = [len(units) * i // shards for i in range(shards + 1)]
    return [list(units[start:end]) for start, end in itertools.pairwise(ends)]


def _longest(shards: Sequence[Sequence[Unit]], tokens: Mapping[tuple[str, int], float]) -> float:
    return max(sum(tokens[unit.problem_id, unit.sample_index] for unit in shard) for shard in shards)


@click.command(cls=WarehouseCommand)
@click.argument("database", type=click.Path(path_type=Path))
@click.option(
    "--shards", type=click.IntRange(1), multiple=True, default=(4, 8), show_default=True, help="Numbers of shards."
)
@click.option(
    "--between",
    type=click.FloatRange(0),
    multiple=True,
    help="Additional spreads between problems for drawn lengths (standard deviation of the natural logarithm).",
)
def main(database: Path, shards: tuple[int, ...], between: tuple[float, ...]) -> None:
    """Measure how well samples are balanced over shards, for recorded and for drawn lengths.

    Prints the length of the longest shard divided by the mean over shards, for equal slices and for each way to
    estimate lengths.
    """
    for run_id, lengths in read_lengths(database).items():
        _, recorded_between, within = spread(lengths)
        click.echo(f"{run_id}: spread {recorded_between:.2f} between problems, {within:.2f} within problems")
        for num_shards in shards:
            _print(f"  recorded, {num_shards} shards", makespans(lengths, num_shards))
            for width in (None, *between):
                label = "fitted" if width is None else f"spread {width}"
                _print(f"  drawn ({label}), {num_shards} shards", makespans(draw_lengths(lengths, width), num_shards))


def _print(label: str, results: Mapping[str, float]) -> None:
    click.echo(f"{label:36}" + "  ".join(f"{policy} {value:.3f}" for policy, value in results.items()))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.warehouse.makespan")
