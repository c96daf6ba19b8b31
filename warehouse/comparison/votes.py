"""Which samples of a problem gave the same answer, as the grader sees it: what a majority vote counts.

Two answers are the same where the grader, given one as the gold, calls the other one correct. Answers are a model's
output, so they are compared in the grader's own killable processes; what cannot be compared there is not the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grading.choice import chosen_letter
from grading.grade import Gold, Submission
from grading.pool import Item, grade_many
from warehouse.database import Connection, rows

_ANSWERS = """
SELECT problem_id, sample_index, verdict, extracted, problem.kind, problem.choices, problem.unit, problem.tolerance
FROM sample_grade JOIN problem USING (run_id, problem_id) WHERE run_id = $run_id AND graded ORDER BY sample_index
"""


@dataclass(frozen=True)
class Votes:
    """One problem's finished and graded samples by answer; a sample is given by its index within the problem."""

    groups: Sequence[Sequence[int]]
    """Samples by distinct answer; the right answer comes first where it was given."""
    is_right: Sequence[bool]
    """Whether that answer is right, one for each group."""
    silent: Sequence[int]
    """Samples without an answer."""

    @property
    def counts(self) -> list[int]:
        """Samples per distinct answer."""
        return [len(group) for group in self.groups]

    @property
    def abstained(self) -> int:
        """How many samples have no answer."""
        return len(self.silent)

    def among(self, kept: Container[int]) -> Votes:
        """The votes of these samples alone."""
        left = [[sample for sample in group if sample in kept] for group in self.groups]
        is_right = [right for group, right in zip(left, self.is_right, strict=True) if group]
        return Votes([group for group in left if group], is_right, [sample for sample in self.silent if sample in kept])


@dataclass
class _Open:
    """A problem whose wrong answers are still to be compared; samples are given by their indices."""

    gold: Gold
    correct: list[int] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    wrong: dict[str, list[int]] = field(default_factory=dict)
    groups: list[list[int]] = field(default_factory=list)


def read_votes(connection: Connection, run_id: str, workers: int | None = None) -> Mapping[str, Votes]:
    """Votes by problem id; a problem without a finished and graded sample has none."""
    problems: dict[str, _Open] = {}
    for row in rows(connection, _ANSWERS, {"run_id": run_id}):
        problem = problems.setdefault(str(row["problem_id"]), _Open(_empty_gold(row)))
        extracted, sample = row["extracted"], int(str(row["sample_index"]))
        if row["verdict"] == "correct":
            problem.correct.append(sample)
        elif extracted is None or not str(extracted).strip():
            problem.silent.append(sample)
        else:
            problem.wrong.setdefault(_key(str(extracted), problem.gold), []).append(sample)
    _group(problems.values(), workers)
    return {name: _votes(problem) for name, problem in problems.items()}


def _empty_gold(row: Mapping[str, object]) -> Gold:
    """The problem's own way of comparing, with no answer yet."""
    choices = row["choices"]
    return Gold(
        "",
        "choice" if row["kind"] == "choice" else "math",
        choices=tuple(choices) if isinstance(choices, list) else (),
        unit=None if row["unit"] is None else str(row["unit"]),
        tolerance=row["tolerance"] if isinstance(row["tolerance"], float) else None,
    )


def _key(extracted: str, gold: Gold) -> str:
    return (chosen_letter(extracted, gold.choices) or extracted) if gold.kind == "choice" else extracted.strip()


def _group(problems: Iterable[_Open], workers: int | None) -> None:
    """Let equal wrong answers share a group, round by round: the first answer left is compared with all the others.

    Where no sample is right, or at most one wrong answer was given, groups cannot change a vote and nothing is asked.
    """
    left: list[tuple[_Open, list[str]]] = []
    for problem in problems:
        if problem.correct and len(problem.wrong) > 1 and problem.gold.kind == "math":
            left.append((problem, list(problem.wrong)))
        else:
            problem.groups = list(problem.wrong.values())
    while left:
        items = (item for problem, answers in left for item in _items(problem.gold, answers))
        same = iter([grade.verdict == "correct" for grade in grade_many(items, workers)])
        left = [split for problem, answers in left if (split := _split(problem, answers, same))[1]]


def _split(problem: _Open, answers: list[str], same: Iterator[bool]) -> tuple[_Open, list[str]]:
    """Take the first answer's group out; returns what is left. same: whether each following answer belongs to it."""
    first, *others = answers
    alike = {other for other in others if next(same)}
    problem.groups.append([sample for answer in (first, *alike) for sample in problem.wrong[answer]])
    return problem, [other for other in others if other not in alike]


def _items(gold: Gold, answers: list[str]) -> list[Item]:
    wanted = Gold(answers[0], gold.kind, unit=gold.unit, tolerance=gold.tolerance)
    return [(Submission(rf"\boxed{{{other}}}", "answered", thinks=False), wanted) for other in answers[1:]]


def _votes(problem: _Open) -> Votes:
    right = [problem.correct] if problem.correct else []
    return Votes(right + problem.groups, [True] * len(right) + [False] * len(problem.groups), problem.silent)
