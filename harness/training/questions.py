"""Guards against training on test questions: only training datasets, and no problem that a benchmark has too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.problems import benchmarks
from harness.problems.problem import Problem


class TestQuestions(ValueError):
    """Problems must not be trained on; the message is one line."""

    __test__ = False  # otherwise pytest would collect the class


@dataclass(frozen=True, slots=True)
class Checked:
    """The benchmarks that the problems were compared with."""

    compared: tuple[str, ...]
    missing_benchmarks: tuple[str, ...]
    """Benchmarks that are neither in local files nor available from the hub."""


def training_data(dataset: str) -> None:
    """Raise TestQuestions if a dataset is a benchmark, or unknown."""
    benchmark = benchmarks.DATASETS.get(dataset)
    if benchmark is None or not benchmark.training:
        valid = ", ".join(b.name for b in benchmarks.DATASETS.values() if b.training)
        raise TestQuestions(f"{dataset} is a benchmark: nothing is ever trained on test questions; valid: {valid}")


def check(problems: Sequence[Problem], data_dir: Path | None = None) -> Checked:
    """Compare problems with every available benchmark. Raises TestQuestions if one of them has any of the problems."""
    own = {text_hash(problem.text): problem.id for problem in problems}
    compared, missing_benchmarks = [], []
    for benchmark in benchmarks.DATASETS.values():
        if benchmark.training or benchmark.part_of:
            continue
        try:
            theirs = benchmarks.load(benchmark.name, data_dir)
        except (benchmarks.DatasetNotFound, benchmarks.BadDataset):
            missing_benchmarks.append(benchmark.name)
            continue
        _refuse_shared(own, benchmark.name, theirs)
        compared.append(benchmark.name)
    return Checked(tuple(compared), tuple(missing_benchmarks))


def text_hash(text: str) -> str:
    """Return 16 hex digits over a question's words, ignoring whitespace and case."""
    return hashlib.sha256(" ".join(text.split()).casefold().encode()).hexdigest()[:16]


def _refuse_shared(own: dict[str, str], name: str, theirs: Iterable[Problem]) -> None:
    shared = [(own[text_hash(p.text)], p.id) for p in theirs if text_hash(p.text) in own]
    if shared:
        raise TestQuestions(
            f"{len(shared)} training problems are test questions of {name} ({shared[0][0]} is {shared[0][1]}): "
            "leave them out with --skip and --problems"
        )
