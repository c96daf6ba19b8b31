"""Golds of own datasets, graded as answers before a model runs: where no right answer meets one, every sample is wrong.

Refused is what would give silently wrong numbers: golds that are solutions where a rule reads the answer, and datasets
of which no gold can be met. Single golds of other kinds are named, and the run goes on: a dataset may have a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from shlex import join

from grading.check import Finding, conclusion, findings, to_grade
from grading.grade import Gold
from harness.cli.program import typed
from harness.problems.problem import Problem
from harness.settings.launch_settings import Launch
from jobs.finished.grading import gold_of

MOST_GRADED = 2_000
"""Golds that a launch grades, spread over the dataset: a second or two; sentences take longer than answers do."""
_NAMED = 3
_MOST_CHARACTERS = 60
_ALONE = r"give the answer alone, words that an answer must repeat in \text{…}"


def check(launch: Launch, problems: Sequence[Problem]) -> Iterator[str]:
    """Yield warnings that name the golds of an own dataset that no answer meets, or that are prose.

    Raises ValueError where a rule reads the answers of golds that are solutions, and where no gold can be met.
    """
    dataset = launch.dataset
    golds = tuple(gold_of(problem) for problem in problems)
    doubtful = to_grade(golds)
    chosen = tuple(doubtful[:: -(-len(doubtful) // MOST_GRADED) or 1])
    found = _findings(golds, chosen)
    some = "at least " if len(chosen) < len(doubtful) else ""

    def names(indexes: Sequence[int]) -> str:
        first, *others = indexes[:_NAMED]
        shown = [_shown(problems[first], found[first]), *(problems[index].id for index in others)]
        return f"{', '.join(shown)}{', …' if len(indexes) > _NAMED else ''}"

    def count(indexes: Sequence[int]) -> str:
        return f"{some}{len(indexes):,} of {len(problems):,} golds"

    unmet = [index for index, finding in found.items() if not finding.is_met]
    rules = Counter(end.rule for index in unmet if (end := found[index].conclusion) is not None and end.rule)
    if rules:
        [(rule, _)] = rules.most_common(1)
        solutions = [index for index in unmet if (end := found[index].conclusion) is not None and end.rule == rule]
        reads = sum((end := conclusion(problem.answer)) is not None and end.rule == rule for problem in problems)
        raise ValueError(
            f"--dataset {dataset}: the right answer would be graded wrong, because {count(solutions)} are solutions: "
            f"{names(solutions)}; {_remedy(rule, reads, len(problems))}"
        )
    if unmet and len(unmet) == len(chosen) and len(doubtful) == len(problems):
        raise ValueError(f"--dataset {dataset}: no answer would be graded correct: {names(unmet)}; {_ALONE}")
    rejected = [index for index in unmet if found[index].rejected]
    prose = sorted((index for index in found if not found[index].rejected), key=lambda index: found[index].is_met)
    columns, split = ",".join(launch.columns), launch.split or ""
    given = [word for flag in (("--columns", columns), ("--split", split)) if flag[1] for word in flag]
    more = f"all: {typed('grading.check')} {join(['--dataset', dataset, *given])}"
    if rejected:
        yield f"GOLDS THAT NO ANSWER MEETS: {count(rejected)}: {names(rejected)}; {more}"
    if prose:
        yield f"PROSE AS GOLDS: {count(prose)} are sentences or several lines: {names(prose)}; {_ALONE}; {more}"


@lru_cache(maxsize=4)  # the runs of a suite have the same problems
def _findings(golds: tuple[Gold, ...], chosen: tuple[int, ...]) -> dict[int, Finding]:
    return findings(golds, chosen)


def _shown(problem: Problem, finding: Finding) -> str:
    text = problem.answer if len(problem.answer) <= _MOST_CHARACTERS else f"{problem.answer[: _MOST_CHARACTERS - 1]}…"
    end = finding.conclusion
    verdict = "graded correct" if finding.is_met else "graded wrong"
    reason = finding.rejected if end is None else f"{_printable(end.answer[:_MOST_CHARACTERS])} is {verdict}"
    return f'{problem.id} "{_printable(text)}" ({reason})'


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _remedy(rule: str, reads: int, num_golds: int) -> str:
    told = f'answer_rule = "{rule}" in a TOML file for the dataset'
    if reads < num_golds:
        return f"{told} reads {reads:,} of {num_golds:,}, so that rows have two forms: give the answer alone in all"
    return f"{told} reads all"
