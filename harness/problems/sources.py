"""What `--dataset` names: a known benchmark, or a dataset of one's own."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.problems import benchmarks, of_run, own_dataset, own_problems, own_rows
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash


@dataclass(frozen=True, slots=True)
class Dataset:
    """The problems of a dataset, the name that runs have it under, and its source."""

    name: str
    problems: list[Problem]
    source: str
    size: int
    """The number of its problems; more than `problems` has where a run that left some out is read."""
    origin: DatasetOrigin | None = None
    """Where an own dataset is from; None: one of the known names."""
    notices: tuple[str, ...] = ()
    """Warnings for the user, one line each."""
    is_training: bool = False
    """Whether it is training data, so that no number of a run on it is a result."""


def check(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> None:
    """Raise ValueError, with one line that says what is valid, where these flags cannot name a dataset."""
    if is_run(dataset):
        own_rows.check_exists(Path(dataset))
        _refuse(dataset, split, columns)
    elif own_dataset.is_own(dataset):
        own_dataset.describe(dataset, split, columns)
    elif dataset not in benchmarks.DATASETS:
        close = difflib.get_close_matches(dataset, benchmarks.DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        valid = f"{', '.join(benchmarks.DATASETS)}, {own_dataset.VALID}"
        raise ValueError(f"--dataset {dataset}: unknown; valid: {valid}{hint}")
    else:
        _refuse(dataset, split, columns)


def _refuse(dataset: str, split: str | None, columns: Sequence[str]) -> None:
    if given := [flag for flag, value in (("--split", split), ("--columns", columns)) if value]:
        raise ValueError(f"{' and '.join(given)}: {dataset} has its own; they are for {own_dataset.VALID}")


def is_run(dataset: str) -> bool:
    """Return whether the text of `--dataset` names the specification of a run."""
    return Path(dataset).name == of_run.SPEC


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
    if is_run(dataset):
        of = of_run.load(Path(dataset))
        source = f"run {Path(dataset).resolve().parent}"
        return Dataset(of.dataset, of.problems, source, of.dataset_size, of.origin, is_training=_trains(of.dataset))
    if own_dataset.is_own(dataset):
        own = own_dataset.describe(dataset, split, columns)
        loaded = own_problems.load(own, seed)
        content = dataset_hash(loaded.problems)
        origin = DatasetOrigin(loaded.source, content, own.title, loaded.columns, own.answer_rule, own.shuffle)
        return Dataset(own.name, loaded.problems, loaded.source, len(loaded.problems), origin, loaded.notices)
    known = benchmarks.load_recorded(dataset, data_dir, seed)
    return Dataset(dataset, known.problems, known.source, len(known.problems), is_training=_trains(dataset))


def _trains(name: str) -> bool:
    return name in benchmarks.DATASETS and benchmarks.DATASETS[name].training
