"""Which problems further samples go to: those whose samples differ most (Neyman, JRSS 97, 1934).

The mean over problems of the means over their samples has the variance Σ p(1 − p)/k / n², with k samples of a problem
that is solved with chance p. For a given total the best whole numbers follow from adding one sample at a time where it
lowers this sum most, by p(1 − p)/(k(k + 1)) (Wright, The equivalence of Neyman optimum allocation for sampling and
equal proportions for apportioning the U.S. House of Representatives, Am. Stat. 66, 2012).

What is known of p must not come from the samples that are averaged afterwards. A problem that was solved four times in
four would keep its lucky beginning, because it gets few further samples, while one that was solved twice would not, and
the pass@1 of an easy set would be too high. README.md has the derivation and a simulation.
"""

from __future__ import annotations

import numpy as np

from warehouse.statistics.intervals import Counts, Floats


def variances(correct: Counts, samples: Counts) -> Floats:
    """Return p(1 − p) (n,) of problems of which so many samples are correct; with one of each added, it is never 0."""
    share = (correct + 1) / (samples + 2)
    return np.asarray(share * (1 - share), dtype=np.float64)


def allocated(variance: Floats, least: Counts, total: int, most: int) -> Counts:
    """Return the samples (n,) of each problem, from `least` to `most`, that sum to `total` if these bounds allow it.

    variance (n,): of a single sample of each problem. Equal arguments give equal numbers.
    """
    held = np.arange(1, most)
    gains = np.where(held >= least[:, None], variance[:, None] / (held * (held + 1)), -1.0)
    num_further = min(total - int(least.sum()), int((gains >= 0).sum()))
    if num_further <= 0:
        return least
    chosen = np.argsort(-gains.T, axis=None, kind="stable")[:num_further] % len(variance)
    return np.asarray(least + np.bincount(chosen, minlength=len(variance)), dtype=np.int64)
