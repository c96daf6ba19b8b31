"""Comparisons of made-up outcomes: how often a test rejects, and numbers of samples that no run of a test has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import Generator

from tests.warehouse import cells
from tests.warehouse.test_compare import load
from warehouse.comparison.compared_runs import Run, read_runs
from warehouse.comparison.contrasts import Settings, compare
from warehouse.comparison.outcomes import Outcomes
from warehouse.database import reader
from warehouse.statistics.intervals import Floats

REPETITIONS = 100
NUM_PROBLEMS = 40


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The target alone, speculation, and the target alone again; only their manifests matter."""
    where = tmp_path_factory.mktemp("both")
    specs = (cells.VANILLA, cells.SPEC, replace(cells.VANILLA, seed=1))
    names = load(where, *(cells.finished(where, spec, (1, 0)) for spec in specs))
    with reader(where / "w.duckdb") as connection:
        return read_runs(connection, names, votes=False)


def drawn(rng: Generator, chances: Floats, samples: int, share_missing: float = 0.0) -> Outcomes:
    """Samples of problems that are right by chances (n,), of which a share is missing at random."""
    shape = len(chances), samples
    is_missing = rng.random(shape) < share_missing
    names = [f"sums/{i}" for i in range(len(chances))]
    return Outcomes(
        names,
        names,
        [None] * len(chances),
        np.ones(shape, dtype=bool),
        is_missing,
        (rng.random(shape) < chances[:, None]) & ~is_missing,
    )


@pytest.mark.parametrize(("other", "k", "kind"), [(1, 3, "t"), (2, 24, "on these problems")])
def test_a_third_missing_at_random_does_not_make_a_test_reject_more_often(
    both: list[Run], other: int, k: int, kind: str
) -> None:
    """The rejection rate is at most 5 % plus four standard errors of the repetitions."""
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(REPETITIONS):
        chances = rng.beta(0.6, 0.6, NUM_PROBLEMS)
        base = replace(both[0], outcomes=drawn(rng, chances, k))
        run = replace(both[other], outcomes=drawn(rng, chances, k, 1 / 3))
        contrast = compare([base, run], Settings()).rows[1].contrast
        assert contrast is not None
        assert (contrast.difference.kind, contrast.is_non_inferior) == (kind, None)
        assert contrast.difference.p is not None
        rejected += contrast.difference.p < 0.05
    assert rejected / REPETITIONS <= 0.05 + 4 * (0.05 * 0.95 / REPETITIONS) ** 0.5


def test_a_few_broken_problems_are_not_hidden_by_small_gains_elsewhere(both: list[Run]) -> None:
    """One problem of 30 is lost and the others gain 7 points."""
    gained, size = np.ones((30, 16), dtype=bool), (30, 16)
    gained[0] = False
    base = replace(drawn(np.random.default_rng(4), np.ones(30), 16), is_correct=np.tile(np.arange(16) > 0, (30, 1)))
    run = replace(base, is_correct=gained)
    assert base.samples.shape == (size[0],)
    contrast = compare([replace(both[0], outcomes=base), replace(both[1], outcomes=run)], Settings()).rows[1].contrast
    assert contrast is not None
    assert contrast.difference.estimate == pytest.approx((29 / 16 - 15 / 16) / 30)
    assert contrast.worst is not None
    assert contrast.worst.low is not None
    assert contrast.worst.low < -0.06
    assert contrast.is_non_inferior is False
