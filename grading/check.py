"""`python -m grading.check --dataset D`: does every gold answer accept itself, and is it understood at all?

Each gold is put in a box, as a model would, and graded against itself through the same door as samples, in the same
killable processes. A gold that is rejected would make every sample of its problem `bad_gold`: our fault, never the
model's. A gold of which no other way of writing the same value is recognised is compared as text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from grading.grade import Gold, Grade, Submission
from grading.pool import grade_many
from harness.command import OneLineErrors

if TYPE_CHECKING:
    from rich.table import Table

    from harness.problem import Problem

Kind = Literal["understood", "words", "only a string", "rejected"]
_WHOLE_NUMBER = re.compile(r"(?<![\d.^_\\a-zA-Z])(?<!(?<!\\)\{)(?<!\d,)\d{1,6}(?![\d_]|\.\d|,\d{3}(?!\d)|\s*!)")
_OPENING = re.compile(r"(?:\\left)?\s*(?:\(|\[|\\\{)\s*(-?)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_TEXT_COMMAND = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{([^{}]*)\}")
_PHRASE = re.compile(r"[A-Za-z][A-Za-z' ,.-]*[A-Za-z]|[A-Z]")


@dataclass(frozen=True, slots=True)
class Checked:
    """One gold and what its own grader said of it."""

    problem_id: str
    gold: Gold
    boxed: str
    """What was put in the box."""
    grade: Grade
    kind: Kind


def check(golds: Sequence[tuple[str, Gold]], workers: int | None = None) -> list[Checked]:
    """Grade each gold against itself; of a gold with alternatives each one, the first rejected one decides."""
    submitted = [(name, gold, boxed) for name, gold in golds for boxed in _written(gold)]
    grades = list(grade_many(((_answer(boxed), gold) for _, gold, boxed in submitted), workers=workers))
    found: dict[str, Checked] = {}
    for (name, gold, boxed), grade in zip(submitted, grades, strict=True):
        kind: Kind = "understood" if grade.verdict == "correct" else "rejected"
        if name not in found or found[name].kind == "understood":
            found[name] = Checked(name, gold, boxed, grade, kind)
    understood = _understood(list(found.values()), workers)
    return [
        one if one.kind == "rejected" or one.problem_id in understood else replace(one, kind=_text_kind(one.boxed))
        for one in found.values()
    ]


def _written(gold: Gold) -> Sequence[str]:
    if gold.answers:
        return [", ".join(gold.answers)]
    return gold.alternatives or [gold.answer]


def _answer(boxed: str) -> Submission:
    return Submission(rf"So the answer is $\boxed{{{boxed}}}$.", "answered", thinks=False)


def _understood(checked: Sequence[Checked], workers: int | None) -> set[str]:
    """The golds that the grader recognises in another way of writing them; options of a choice are no formulas."""
    known = {one.problem_id for one in checked if one.gold.kind == "choice"}
    ways = {one.problem_id: rewritten(one.boxed) for one in checked if one.kind != "rejected"}
    golds = {one.problem_id: one.gold for one in checked}
    for turn in range(max(map(len, ways.values()), default=0)):
        asked = [name for name in ways if name not in known and turn < len(ways[name])]
        items = ((_answer(ways[name][turn]), golds[name]) for name in asked)
        for name, grade in zip(asked, grade_many(items, workers=workers), strict=True):
            if grade.verdict == "correct":
                known.add(name)
    return known


def rewritten(answer: str) -> list[str]:
    r"""Other ways of writing the same value: its first whole number as a quotient, a zero or a factor 1 in front of it
    or of its first element, thousands without their commas, the two sides of an equation changed over.

    Not every one means the same for every form (`0+(1,2)`): one that is recognised is enough.
    """
    plain = answer.strip().strip("$").strip().rstrip(".")
    ways = []
    if number := _WHOLE_NUMBER.search(plain):
        value = int(number.group())
        ways.append(rf"{plain[: number.start()]}\frac{{{2 * value}}}{{2}}{plain[number.end() :]}")
    ways += [f"0+{plain}", rf"1\cdot {plain}"]
    if opening := _OPENING.match(plain):
        before = plain[: opening.start(1)]
        ways.append(f"{before}0{opening.group(1) or '+'}{plain[opening.end() :]}")
    if _THOUSANDS.fullmatch(plain):
        ways.append(plain.replace(",", ""))
    left, equals, right = plain.partition("=")
    if equals and "=" not in right:
        ways.append(f"{right}={left}")
    return ways


def _text_kind(answer: str) -> Kind:
    plain = _TEXT_COMMAND.sub(r" \1 ", answer).strip(" $().")
    return "words" if _PHRASE.fullmatch(plain) else "only a string"


@click.command(cls=OneLineErrors)
@click.option("--dataset", "names", multiple=True, help="A dataset; may be repeated.  [default: all that can be read]")
@click.option(
    "--data-dir", type=click.Path(exists=True, path_type=Path), help="Folder of <dataset>.jsonl; also HARNESS_DATA_DIR."
)
@click.option("--workers", type=click.IntRange(1), help="Grader processes.  [default: one per processor, at most 16]")
def main(names: Sequence[str], data_dir: Path | None, workers: int | None) -> int:
    """List the gold answers that their own grader rejects, and those that it only compares as text.

    Exit code 0: every gold accepts itself; 1: some do not, and are listed; 2: a mistake, or no such dataset here.
    """
    from harness import benchmarks
    from jobs.after.grading import gold_of

    for name in names:
        if name not in benchmarks.DATASETS:
            raise click.UsageError(f"--dataset {name}: unknown; valid: {', '.join(benchmarks.DATASETS)}")
    golds: dict[str, list[tuple[str, Gold]]] = {}
    for name in dict.fromkeys(names or benchmarks.DATASETS):
        try:
            problems = benchmarks.load(name, data_dir)
        except (benchmarks.DatasetNotFound, benchmarks.BadDataset) as error:
            if names:
                raise click.UsageError(str(error)) from error
            click.echo(f"left out: {error}", err=True)
            continue
        golds[name] = [(p.id, gold_of(p)) for p in _distinct(problems)]
    if not golds:
        raise click.UsageError("no dataset can be read: give --data-dir")
    report = [(name, check(found, workers)) for name, found in golds.items()]
    _print(report)
    return int(any(one.kind == "rejected" for _, checked in report for one in checked))


def _distinct(problems: Sequence[Problem]) -> Iterator[Problem]:
    yield from {problem.id: problem for problem in problems}.values()


def _print(report: Sequence[tuple[str, list[Checked]]]) -> None:
    import sys

    from rich import box
    from rich.table import Table

    from warehouse.display import plain, print_table

    def table(*columns: str) -> Table:
        return Table(*columns, box=box.SIMPLE_HEAD)

    listed = table("dataset", "problem", "finding", "gold", "reason")
    for name, checked in report:
        for one in sorted(checked, key=lambda c: c.kind != "rejected"):
            if one.kind in ("rejected", "only a string"):
                finding = f"REJECTED: {one.grade.verdict}" if one.kind == "rejected" else one.kind
                reason = one.grade.detail if one.kind == "rejected" else "no other way of writing it is recognised"
                listed.add_row(*(plain(cell) for cell in (name, one.problem_id, finding, one.boxed[:80], reason[:120])))
    if listed.row_count:
        print_table(listed, sys.stdout)
    totals = table("dataset", "golds", "accepted", "REJECTED", "words", "only a string")
    for name, checked in report:
        numbers = {kind: sum(one.kind == kind for one in checked) for kind in ("rejected", "words", "only a string")}
        accepted = len(checked) - numbers["rejected"]
        totals.add_row(name, *(str(n) for n in (len(checked), accepted, *numbers.values())))
    print_table(totals, sys.stdout)


if __name__ == "__main__":
    main(prog_name="python -m grading.check")
