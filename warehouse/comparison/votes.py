"""Majority votes: a problem's samples grouped by equal answers.

Two answers are equal if the grader accepts one as correct with the other as the gold answer. Answers are model output,
so the grader compares them in processes that can be killed. Answers that it cannot compare count as unequal. A custom
grader compares only with the problem's gold answer, so answers that it rejects are equal if their strings are equal.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grading.extract import chosen_letter
from grading.grader_pool import Item, grade_many, graded
from grading.own_grader import VERSION
from grading.records import Gold, Submission
from warehouse.database import Connection, Record, rows
from warehouse.files import WarehouseError

_ANSWERS = """
SELECT problem_id, sample_index, verdict, extracted, grader_version, problem.kind, problem.choices, problem.unit,
    problem.tolerance
FROM sample_grade JOIN problem USING (run_id, problem_id) WHERE run_id = $run_id AND graded ORDER BY sample_index
"""


@dataclass(frozen=True)
class Votes:
    """A problem's finished and graded samples, grouped by answer and identified by their index in the problem."""

    groups: Sequence[Sequence[int]]
    """Samples by distinct answer; the correct answer comes first if any sample has it."""
    is_right: Sequence[bool]
    """Whether each group's answer is correct."""
    without_answer: Sequence[int]

    @property
    def counts(self) -> list[int]:
        return [len(group) for group in self.groups]

    @property
    def abstained(self) -> int:
        return len(self.without_answer)

    def among(self, samples: Container[int]) -> Votes:
        """Return the votes of only these samples."""
        groups = [[sample for sample in group if sample in samples] for group in self.groups]
        is_right = [right for group, right in zip(groups, self.is_right, strict=True) if group]
        without_answer = [sample for sample in self.without_answer if sample in samples]
        return Votes([group for group in groups if group], is_right, without_answer)


@dataclass
class _Ballot:
    """A problem whose wrong answers are being grouped; samples are identified by their index in the problem."""

    gold: Gold
    is_own: bool
    """Whether a custom grader was used."""
    correct: list[int] = field(default_factory=list)
    without_answer: list[int] = field(default_factory=list)
    wrong: dict[str, list[int]] = field(default_factory=dict)
    """Samples by wrong answer string."""
    groups: list[list[int]] = field(default_factory=list)
    """Samples by distinct wrong answer, for the answers compared so far."""


def read_votes(connection: Connection, run_id: str) -> Mapping[str, Votes]:
    """Return votes by problem id, without problems that have no finished and graded samples.

    Raises WarehouseError if a custom grader does not return the extracted answer of an incorrect sample.
    """
    ballots: dict[str, _Ballot] = {}
    for row in rows(connection, _ANSWERS, {"run_id": run_id}):
        is_own = str(row["grader_version"]).startswith(f"{VERSION} ")
        ballot = ballots.setdefault(str(row["problem_id"]), _Ballot(_empty_gold(row), is_own))
        if is_own and row["verdict"] == "wrong" and row["extracted"] is None:
            raise WarehouseError(
                f"{run_id}: no majority vote, because its grader ({row['grader_version']}) does not return the "
                "extracted answers of incorrect samples"
            )
        extracted, sample = row["extracted"], int(str(row["sample_index"]))
        if row["verdict"] == "correct":
            ballot.correct.append(sample)
        elif extracted is None or not str(extracted).strip():
            ballot.without_answer.append(sample)
        else:
            ballot.wrong.setdefault(_key(str(extracted), ballot), []).append(sample)
    _group(ballots.values())
    return {name: _votes(ballot) for name, ballot in ballots.items()}


def _empty_gold(row: Record) -> Gold:
    """Return how the problem's answers are compared: a `Gold` with an empty answer."""
    choices = row["choices"]
    return Gold(
        "",
        "choice" if row["kind"] == "choice" else "math",
        choices=tuple(choices) if isinstance(choices, list) else (),
        unit=None if row["unit"] is None else str(row["unit"]),
        tolerance=row["tolerance"] if isinstance(row["tolerance"], float) else None,
    )


def _key(extracted: str, ballot: _Ballot) -> str:
    if ballot.gold.kind == "choice" and not ballot.is_own:
        return chosen_letter(extracted, ballot.gold.choices) or extracted
    return extracted.strip()


def _group(ballots: Iterable[_Ballot]) -> None:
    """Group equal wrong answers in rounds: each round compares the first remaining answer with all others.

    Nothing is compared for choice problems, for custom graders, and if groups cannot change the vote, that is, if no
    sample is correct or there is at most one wrong answer.
    """
    remaining: list[tuple[_Ballot, list[str]]] = []
    for ballot in ballots:
        if ballot.correct and len(ballot.wrong) > 1 and ballot.gold.kind == "math" and not ballot.is_own:
            remaining.append((ballot, list(ballot.wrong)))
        else:
            ballot.groups = list(ballot.wrong.values())
    while remaining:
        items = (item for ballot, answers in remaining for item in _items(ballot.gold, answers))
        is_equal = iter([grade.verdict == "correct" for grade in graded(grade_many(items))])
        rest = [(ballot, _split_off_first_group(ballot, answers, is_equal)) for ballot, answers in remaining]
        remaining = [(ballot, answers) for ballot, answers in rest if answers]


def _split_off_first_group(ballot: _Ballot, answers: list[str], is_equal: Iterator[bool]) -> list[str]:
    """Add the first answer's group and return the other answers. is_equal: whether each later answer is in it."""
    first, *others = answers
    equal = {other for other in others if next(is_equal)}
    ballot.groups.append([sample for answer in (first, *equal) for sample in ballot.wrong[answer]])
    return [other for other in others if other not in equal]


def _items(gold: Gold, answers: list[str]) -> list[Item]:
    first_as_gold = Gold(answers[0], gold.kind, unit=gold.unit, tolerance=gold.tolerance)
    return [(Submission(rf"\boxed{{{other}}}", "answered", thinks=False), first_as_gold) for other in answers[1:]]


def _votes(ballot: _Ballot) -> Votes:
    right = [ballot.correct] if ballot.correct else []
    return Votes(right + ballot.groups, [True] * len(right) + [False] * len(ballot.groups), ballot.without_answer)
