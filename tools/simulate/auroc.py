"""Simulated coverage of the interval of an AUROC, on synthetic verdicts, by the warehouse's own SQL.

    python -m tools.simulate.auroc --repetitions 1000

Problems differ as in populations.py. A rating is higher by LIFT if the sample ends correct; problem, sample and
verdict each add noise, and part of the problem's is its difficulty, so that the verdicts of a problem are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import click
import duckdb
import numpy as np
import pyarrow as pa
from scipy import special, stats

from tools.simulate.populations import ABILITIES, SPREAD, Rng
from warehouse.estimates import judges
from warehouse.schema import tables_sql, views_sql
from warehouse.statistics.intervals import Floats

DESIGNS = ((30, 1), (40, 2), (40, 4), (100, 1), (100, 4))
"""Problems (n) and samples (k)."""
LIFT = 1.0
DIFFICULTY_WEIGHT = 0.7
"""How much of a problem's part of the rating is its difficulty, in standard deviations."""
VERDICTS = 4
"""Mean number of verdicts of a sample."""
RATINGS: dict[str, tuple[float, ...]] = {"any value": (), "three digits": (0.0, 0.8)}
"""Continuous ratings, and ratings of which only the interval between two bounds is seen."""


class Verdicts:
    """Verdicts of simulated runs: rating, is_correct, run and problem, each (number of verdicts,)."""

    def __init__(self, rng: Rng, num_runs: int, n: int, k: int, level: float, bounds: Sequence[float]) -> None:
        """Draw `num_runs` runs of n problems with k samples. level: in logits; bounds: of the digits, if any."""
        difficulty = rng.normal(0, 1, num_runs * n)
        of_problem = DIFFICULTY_WEIGHT * difficulty + rng.normal(0, 1, num_runs * n)
        problem = np.repeat(np.arange(num_runs * n), k)
        is_correct = rng.random(len(problem)) < special.expit(level + SPREAD * difficulty[problem])
        of_sample = of_problem[problem] + LIFT * is_correct + rng.normal(0, 1, len(problem))
        sample = np.repeat(np.arange(len(problem)), 1 + rng.poisson(VERDICTS - 1, len(problem)))
        rating = of_sample[sample] + rng.normal(0, 1, len(sample))
        self.rating: Floats = np.searchsorted(bounds, rating).astype(float) if len(bounds) else rating.round(2)
        self.is_correct = is_correct[sample]
        self.problem = problem[sample]
        self.run = self.problem // n

    def table(self) -> pa.Table:
        """Return the verdicts as the macro clustered_auroc takes them."""
        texts = {"grader_version": "1", "kind": "choice"}
        return pa.table(
            {
                "run_id": self.run.astype(str),
                "problem_id": self.problem.astype(str),
                "value": self.rating,
                "num_correct": self.is_correct.astype(int),
                "num_incorrect": 1 - self.is_correct,
            }
            | {name: pa.repeat(text, len(self.run)) for name, text in texts.items()}
        )


@lru_cache
def population_auroc(level: float, bounds: tuple[float, ...], num_problems: int = 200_000) -> float:
    """Return the AUROC over all problems, from one large draw: its standard error is below 0.002."""
    verdicts = Verdicts(np.random.default_rng(0), 1, num_problems, 1, level, bounds)
    return _area(verdicts.rating[verdicts.is_correct], verdicts.rating[~verdicts.is_correct])


def _area(correct: Floats, incorrect: Floats) -> float:
    return float(stats.mannwhitneyu(correct, incorrect).statistic) / (len(correct) * len(incorrect))


def intervals(verdicts: Verdicts) -> list[dict[str, float | None]]:
    """Return the areas of simulated runs with their intervals, as the view judge_auroc has them."""
    with duckdb.connect() as connection:
        connection.execute(tables_sql() + views_sql())
        connection.register("verdicts", verdicts.table())
        connection.execute("INSERT INTO auroc_total BY NAME SELECT * FROM clustered_auroc('verdicts')")
        names = ("run_id", "auroc", "standard_error")
        totals = connection.execute(f"SELECT {', '.join(names)} FROM auroc_total").fetchall()
        found = {one.subject.run_id: one.interval for one in judges(connection, [run_id for run_id, _, _ in totals])}
    rows = [dict(zip(names, total, strict=True)) for total in totals]
    ends = [
        (found[row["run_id"]].low, found[row["run_id"]].high) if row["run_id"] in found else (None, None)
        for row in rows
    ]
    return [{**row, "low_95": low, "high_95": high} for row, (low, high) in zip(rows, ends, strict=True)]


def coverage(
    design: tuple[int, int], level: float, bounds: tuple[float, ...], repetitions: int, seed: int = 0
) -> tuple[float, float]:
    """Return the share of intervals that contain the truth, and the share of runs that have an interval."""
    rng = np.random.default_rng([seed, *design, int(10 * level) + 100, len(bounds)])
    rows = intervals(Verdicts(rng, repetitions, *design, level, bounds))
    truth = population_auroc(level, bounds)
    bounded = [(row["low_95"], row["high_95"]) for row in rows if row["low_95"] is not None]
    hits = [low is not None and high is not None and low <= truth <= high for low, high in bounded]
    return sum(hits) / len(hits), len(hits) / repetitions


def independent_coverage(
    design: tuple[int, int], level: float, bounds: tuple[float, ...], repetitions: int, seed: int = 0
) -> float:
    """Return the coverage of DeLong's interval, which takes all verdicts for independent (not used)."""
    rng = np.random.default_rng([seed, *design, int(10 * level) + 100, len(bounds)])
    truth, hits = population_auroc(level, bounds), []
    for _ in range(repetitions):
        verdicts = Verdicts(rng, 1, *design, level, bounds)
        right, wrong = verdicts.rating[verdicts.is_correct], verdicts.rating[~verdicts.is_correct]
        if len(right) < 2 or len(wrong) < 2:
            continue
        below = (stats.rankdata(np.concatenate([right, wrong]))[: len(right)] - stats.rankdata(right)) / len(wrong)
        above = 1 - (stats.rankdata(np.concatenate([wrong, right]))[: len(wrong)] - stats.rankdata(wrong)) / len(right)
        error = (below.var(ddof=1) / len(right) + above.var(ddof=1) / len(wrong)) ** 0.5
        hits.append(abs(below.mean() - truth) <= 1.96 * error)
    return float(np.mean(hits))


def table(repetitions: int, designs: Sequence[tuple[int, int]] = DESIGNS) -> Iterator[str]:
    """Yield the lines of a Markdown table: percentages, one column per design, cells hard / medium / easy."""
    yield "| ratings: nominal 95 % | " + " | ".join(f"n {n}, k {k}" for n, k in designs) + " |"
    yield "|---" * (len(designs) + 1) + "|"
    levels = ABILITIES.values()
    for what, bounds in RATINGS.items():
        both = [[coverage(design, level, bounds, repetitions) for level in levels] for design in designs]
        cells = [" / ".join(f"{100 * covered:.1f}" for covered, _ in column) for column in both]
        yield f"| {what}: coverage of the interval | " + " | ".join(cells) + " |"
        shares = [" / ".join(f"{100 * share:.1f}" for _, share in column) for column in both]
        yield f"| {what}: runs that have an interval | " + " | ".join(shares) + " |"
        few = max(1, repetitions // 4)
        plain = [[independent_coverage(design, level, bounds, few) for level in levels] for design in designs]
        cells = [" / ".join(f"{100 * covered:.1f}" for covered in column) for column in plain]
        yield f"| {what}: coverage if verdicts were independent (not used) | " + " | ".join(cells) + " |"


@click.command()
@click.option("--repetitions", default=1000, show_default=True)
@click.option("--design", "designs", multiple=True, type=(int, int), default=DESIGNS, help="Problems and samples.")
def main(repetitions: int, designs: tuple[tuple[int, int], ...]) -> None:
    """Simulate and print a Markdown table."""
    for line in table(repetitions, designs):
        click.echo(line)


if __name__ == "__main__":
    main()
