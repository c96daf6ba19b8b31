"""Guards against training on test questions: only training datasets, and no problem that a benchmark has too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    accepted: Mapping[str, int] = field(default_factory=dict)
    """Test questions among the problems that were accepted, by benchmark."""


def training_data(dataset: str, *, accepts_test_questions: bool = False) -> None:
    """Raise TestQuestions if a dataset is a benchmark or unknown, or holds test questions that nobody accepted."""
    benchmark = benchmarks.DATASETS.get(dataset)
    if benchmark is None or not benchmark.training:
        valid = ", ".join(b.name for b in benchmarks.DATASETS.values() if b.training)
        raise TestQuestions(f"{dataset} is a benchmark: nothing is ever trained on test questions; valid: {valid}")
    if dataset == benchmarks.SCOT_PROGRAM and not accepts_test_questions:
        raise TestQuestions(
            f"{dataset} holds the test questions 500 to 999 of gsm8k, which SCoT's program trains on: "
            "--accept-test-questions takes them"
        )


def check(
    problems: Sequence[Problem], data_dir: Path | None = None, *, accepts_test_questions: bool = False
) -> Checked:
    """Compare problems with every available benchmark. Raises TestQuestions if one of them has any of the problems.

    `accepts_test_questions`: those that SCoT's program trains on are counted; any other one is refused all the same.
    """
    accepted: dict[str, int] = {}
    own = {_key(problem): problem.id for problem in problems}
    compared, missing_benchmarks = [], []
    spans = {name: (first, end) for name, first, end in benchmarks.DATASETS[benchmarks.SCOT_PROGRAM].spans}
    for benchmark in benchmarks.DATASETS.values():
        if benchmark.training or benchmark.part_of:
            continue
        try:
            theirs = benchmarks.load(benchmark.name, data_dir)
        except (benchmarks.DatasetNotFound, benchmarks.BadDataset):
            missing_benchmarks.append(benchmark.name)
            continue
        compared.append(benchmark.name)
        if accepts_test_questions and benchmark.name in spans:
            first, end = spans[benchmark.name]
            accepted[benchmark.name] = sum(_key(p) in own for p in theirs[first:end])
            theirs = [*theirs[:first], *theirs[end:]]
        if shared := [(own[_key(p)], p.id) for p in theirs if _key(p) in own]:
            raise TestQuestions(
                f"{len(shared)} training problems are test questions of {benchmark.name} ({shared[0][0]} is "
                f"{shared[0][1]}): leave them out with --skip and --problems"
            )
    return Checked(tuple(compared), tuple(missing_benchmarks), {name: n for name, n in accepted.items() if n})


def _key(problem: Problem) -> str:
    return benchmarks.text_hash(problem.text.casefold())
