"""What `--dataset` names: a known benchmark, or a dataset of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.plural import did_you_mean
from harness.problems import benchmarks, own_problems
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash


@dataclass(frozen=True, slots=True)
class Dataset:
    """The problems of a dataset, the name that runs have it under, and its source."""

    name: str
    problems: list[Problem]
    source: str
    origin: DatasetOrigin | None = None
    """Where an own dataset is from; None: one of the known names."""
    notices: tuple[str, ...] = ()
    """Warnings for the user, one line each."""
    is_training: bool = False
    """Whether it is training data, so that no number of a run on it is a result."""


def check(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> None:
    """Raise ValueError, with one line that says what is valid, where these flags cannot name a dataset."""
    if own_problems.is_own(dataset):
        own_problems.describe(dataset, split, columns)
    elif dataset not in benchmarks.DATASETS:
        hint = did_you_mean(dataset, benchmarks.DATASETS)
        valid = f"{', '.join(benchmarks.DATASETS)}, {own_problems.VALID}"
        raise ValueError(f"--dataset {dataset}: unknown; valid: {valid}{hint}")
    else:
        _refuse(dataset, split, columns)


def _refuse(dataset: str, split: str | None, columns: Sequence[str]) -> None:
    if given := [flag for flag, value in (("--split", split), ("--columns", columns)) if value]:
        raise ValueError(f"{' and '.join(given)}: {dataset} has its own; they are for {own_problems.VALID}")


def load(
    dataset: str,
    data_dir: Path | None = None,
    seed: int = 0,
    split: str | None = None,
    columns: Sequence[str] = (),
) -> Dataset:
    """Return the problems that these flags name; `seed` decides the order of options that are shuffled.

    Raises ValueError for flags that name no dataset, DatasetNotFound and BadDataset, each with one line.
    """
    if own_problems.is_own(dataset):
        own = own_problems.describe(dataset, split, columns)
        loaded = own_problems.load(own, seed)
        content = dataset_hash(loaded.problems)
        origin = DatasetOrigin(loaded.source, content, own.title, loaded.columns, own.answer_rule, own.shuffle)
        return Dataset(own.name, loaded.problems, loaded.source, origin, loaded.notices)
    known = benchmarks.load_recorded(dataset, data_dir, seed)
    return Dataset(dataset, known.problems, known.source, is_training=benchmarks.DATASETS[dataset].training)
