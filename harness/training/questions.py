"""Never on test questions: training takes problems of training data alone, and none that a benchmark asks too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import benchmarks
from harness.problem import Problem


class TestQuestions(ValueError):
    """Problems that may not be trained on; the message is one line."""

    __test__ = False  # pytest takes the name for a test's


@dataclass(frozen=True, slots=True)
class Checked:
    """Which benchmarks the problems were compared with."""

    compared: tuple[str, ...]
    not_found: tuple[str, ...]
    """Benchmarks that are neither in files here nor to be had from the hub."""


def training_data(dataset: str) -> None:
    """Raises TestQuestions where a dataset is a benchmark, or unknown."""
    known = benchmarks.DATASETS.get(dataset)
    if known is None or not known.training:
        valid = ", ".join(b.name for b in benchmarks.DATASETS.values() if b.training)
        raise TestQuestions(f"{dataset} is a benchmark: nothing is ever trained on test questions; valid: {valid}")


def check(problems: Sequence[Problem], data_dir: Path | None = None) -> Checked:
    """Compare problems with every benchmark that can be read. Raises TestQuestions where one holds any of them."""
    own = {text_hash(problem.text): problem.id for problem in problems}
    compared, not_found = [], []
    for benchmark in benchmarks.DATASETS.values():
        if benchmark.training:
            continue
        try:
            theirs = benchmarks.load(benchmark.name, data_dir)
        except (benchmarks.DatasetNotFound, benchmarks.BadDataset):
            not_found.append(benchmark.name)
            continue
        _refuse_shared(own, benchmark.name, theirs)
        compared.append(benchmark.name)
    return Checked(tuple(compared), tuple(not_found))


def text_hash(text: str) -> str:
    """16 hex digits over a question's words, whatever its blanks and capitals."""
    return hashlib.sha256(" ".join(text.split()).casefold().encode()).hexdigest()[:16]


def _refuse_shared(own: dict[str, str], name: str, theirs: Iterable[Problem]) -> None:
    shared = [(own[text_hash(p.text)], p.id) for p in theirs if text_hash(p.text) in own]
    if shared:
        raise TestQuestions(
            f"{len(shared)} training problems are test questions of {name} ({shared[0][0]} is {shared[0][1]}): "
            "leave them out with --skip and --problems"
        )
