"""Fit a small router to labels from `python -m jobs probe RUN -o LABELS.parquet`: python router.py LABELS.parquet…

It predicts the benefit of the target's step from information available before the target writes: the end of the
context, the draft's step, and the judge's score. It is tested on held-out problems, against the judge's score alone.
The model is ridge regression on hashed words; replace `features` and the fit with your own. Both AUROCs are for the
sampled points, half of them rejections; `weight` is the number of decisions that each point represents.
"""

from __future__ import annotations

import re
import sys
import zlib
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from warehouse.statistics.shares import FEWEST_PROBLEMS, FEWEST_WRONG, auroc

WORDS, PENALTY = 256, 10.0
UNKNOWN = f"no interval: fewer than {FEWEST_WRONG} points or {FEWEST_PROBLEMS} problems in either class, or no spread"


def judged(point: dict[str, Any]) -> float:
    """Return the judge's score, higher if it favors the target's step; 0 if there is none."""
    return float(point["value"] or 0.0) * (1 if point["accepts_below"] else -1)


def features(point: dict[str, Any]) -> list[float]:
    """Return features: hashed words from the end of the context and from the draft's step, and the judge's score."""
    found = np.zeros((2, WORDS))
    for place, text in enumerate((point["context"][-300:], point["draft_step"])):
        for word in re.findall(r"\w+|[^\w\s]", text):
            found[place, zlib.crc32(word.encode()) % WORDS] = 1.0
    return [*found.ravel(), judged(point)]


def main(paths: list[str]) -> None:
    """Print how well the router, and the judge's score alone, predict where the target's step is better."""
    points = [point for path in paths for point in pq.read_table(path).to_pylist()]
    gain = np.array([point["target_worth"] - point["draft_worth"] for point in points])
    train, test = (np.array([point["split"] == name for point in points]) for name in ("train", "test"))
    x = np.array([features(point) for point in points])
    x -= x[train].mean(axis=0)
    square = x[train].T @ x[train] + PENALTY * np.eye(x.shape[1])
    router = x @ np.linalg.solve(square, x[train].T @ (gain[train] - gain[train].mean()))
    better = gain[test] > 0
    _, group = np.unique([point["family"] or point["problem"] for point in points], return_inverse=True)
    print(f"{train.sum()} training points; {test.sum()} test points from {len(set(group[test]))} problem families.")
    print(f"The target's step is better at {better.sum()} test points. AUROC for predicting these points:")
    for name, rating in (("router", router), ("judge", np.array([judged(point) for point in points]))):
        area = auroc(rating[test], better, np.arange(test.sum()), group[test])
        span = f"{area.low:.2f} to {area.high:.2f}" if area.low is not None else UNKNOWN
        print(f"  {name}: {area.estimate:.2f} ({span})")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit("usage: python router.py LABELS.parquet…"))
