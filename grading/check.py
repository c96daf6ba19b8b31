r"""Check that every gold answer is graded correct against itself: `python -m grading.check --dataset D`.

Each gold is put in a box, as a model would do, and graded against itself in the same killable processes as samples. A
rejected gold would make every sample of its problem `bad_gold`, which is a fault of the grader or the benchmark, not of
the model. If the grader recognizes no equivalent form of a gold, answers are compared with this gold only as text.

A gold may be graded correct although no model would write it: a whole solution in GSM8K's form, a sentence, several
lines. Therefore, the gold's conclusion (after `####`, in the last `\boxed` or at the end) is also graded against the
gold. If an `answer_rule` can extract a conclusion that is graded wrong, the gold is rejected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from grading.extract import extract, find_boxes
from grading.grader_pool import GraderFailed, Item, grade_many, graded
from grading.reading.notation import depth_at_each
from grading.records import Gold, Grade, Submission
from harness.cli.command import OneLineErrors

_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_ENVIRONMENT = re.compile(r"\\begin\{(\w{1,20}\*?)\}.*?\\end\{\1\}", re.DOTALL)
_HASHES = "####"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The final answer in a gold that also contains other text, such as a whole solution."""

    answer: str
    rule: Literal["hashes", "boxed"] | None
    """The `answer_rule` with which a dataset would extract this conclusion, if there is one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for a gold that is rejected or contains more than an answer."""

    rejected: str
    """Why the gold is not graded correct against itself, so that no answer can match it; empty if it is correct."""
    conclusion: Conclusion | None = None
    """The conclusion, if the gold contains more than an answer."""
    is_met: bool = False
    """Whether the conclusion is graded correct, so models can match the gold although it is more than an answer."""


def to_grade(golds: Sequence[Gold]) -> list[int]:
    """Return the positions of golds that need grading: all but plain numbers and option letters."""
    return [
        index
        for index, gold in enumerate(golds)
        if gold.kind == "math" and (gold.answers or gold.alternatives or not _NUMBER.fullmatch(gold.answer))
    ]


def findings(golds: Sequence[Gold], positions: Sequence[int], workers: int | None = None) -> dict[int, Finding]:
    """Grade the golds at these positions as answers, and return the findings by position. Raises GraderFailed."""
    items: list[Item] = []
    ends: list[tuple[int, Conclusion | None]] = []
    for index in positions:
        gold = golds[index]
        for boxed in written(gold):
            items.append((boxed_answer(boxed), gold))
            ends.append((index, None))
        for part in gold.answers or gold.alternatives or (gold.answer,):
            if (end := conclusion(part)) is not None:
                items.append((boxed_answer(end.answer), replace(gold, answer=part, answers=(), alternatives=())))
                ends.append((index, end))
    found: dict[int, Finding] = {}
    for (index, end), grade in zip(ends, graded(grade_many(items, workers=workers)), strict=True):
        is_correct, earlier = grade.verdict == "correct", found.get(index)
        if end is None and not is_correct:
            found[index] = Finding(grade.detail)
        elif end is not None and (earlier is None or earlier.is_met):
            found[index] = Finding("", end, is_met=is_correct)
    return found


def written(gold: Gold) -> Sequence[str]:
    """Return the answers that a gold accepts, each as a model would write it in a box."""
    if gold.answers:
        return [", ".join(gold.answers)]
    return gold.alternatives or [gold.answer]


def boxed_answer(boxed: str) -> Submission:
    """Return a model's reply with this answer in a box."""
    return Submission(rf"So the answer is $\boxed{{{boxed}}}$.", "answered", thinks=False)


def conclusion(gold: str) -> Conclusion | None:
    """Return the final answer of a gold; None if the gold is only an answer."""
    text = gold.strip()
    _, hashes, behind = text.rpartition(_HASHES)
    if hashes and behind.strip():
        return Conclusion(behind.strip(), "hashes")
    boxes = [box.strip() for box in find_boxes(text)[0] if box.strip()]
    if boxes:
        return None if text.strip("$. ") == rf"\boxed{{{boxes[-1]}}}" else Conclusion(boxes[-1], "boxed")
    extraction = extract(text if _has_lines(text) else " ".join(text.split()), is_choice=False, is_finished=True)
    if extraction is not None and extraction.rule == "whole":
        return None
    return Conclusion(text if extraction is None else extraction.text, None)


def _has_lines(text: str) -> bool:
    """Return whether a text has several lines, ignoring those inside brackets and LaTeX environments."""
    return any(character == "\n" and not depth for character, depth in depth_at_each(_ENVIRONMENT.sub("", text)))


Kind = Literal["understood", "words", "only a string", "prose", "rejected"]
_WHOLE_NUMBER = re.compile(r"(?<![\d.^_\\a-zA-Z])(?<!(?<!\\)\{)(?<!\d,)\d{1,6}(?![\d_]|\.\d|,\d{3}(?!\d)|\s*!)")
_OPENING = re.compile(r"(?:\\left)?\s*(?:\(|\[|\\\{)\s*(-?)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_TEXT_COMMAND = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{([^{}]*)\}")
_PHRASE = re.compile(r"[A-Za-z][A-Za-z' ,.-]*[A-Za-z]|[A-Z]")


@dataclass(frozen=True, slots=True)
class Checked:
    """A gold and the grade of its own answer."""

    problem_id: str
    gold: Gold
    boxed: str
    """The answer in the box."""
    grade: Grade
    kind: Kind


def check(golds: Sequence[tuple[str, Gold]], workers: int | None = None) -> list[Checked]:
    """Grade each gold against itself. A gold is rejected if any alternative is rejected. Raises GraderFailed."""
    submitted = [(name, gold, boxed) for name, gold in golds for boxed in written(gold)]
    grades = graded(grade_many(((boxed_answer(boxed), gold) for _, gold, boxed in submitted), workers=workers))
    checked: dict[str, Checked] = {}
    for (name, gold, boxed), grade in zip(submitted, grades, strict=True):
        kind: Kind = "understood" if grade.verdict == "correct" else "rejected"
        if name not in checked or checked[name].kind == "understood":
            checked[name] = Checked(name, gold, boxed, grade, kind)
    understood = _understood(list(checked.values()), workers)
    of_text = {
        name: replace(item, kind=_text_kind(item.boxed))
        for name, item in checked.items()
        if item.kind != "rejected" and name not in understood
    }
    return list((checked | of_text | _prose(checked, workers)).values())


def _prose(checked: Mapping[str, Checked], workers: int | None) -> dict[str, Checked]:
    """Return the golds that contain more than an answer, by problem; their details give the conclusion's grade."""
    items = [item for item in checked.values() if item.kind != "rejected" and item.gold.kind == "math"]
    golds = [item.gold for item in items]
    prose: dict[str, Checked] = {}
    doubtful = [index for index, item in enumerate(items) if conclusion(item.boxed) is not None]
    for index, finding in findings(golds, doubtful, workers).items():
        item, end = items[index], finding.conclusion
        if end is not None:
            graded = f"{end.answer} is graded {'correct' if finding.is_met else 'wrong'}"
            reason = graded if end.rule is None else f'{graded}; answer_rule = "{end.rule}" extracts it'
            kind: Kind = "rejected" if end.rule and not finding.is_met else "prose"
            prose[item.problem_id] = replace(item, kind=kind, grade=replace(item.grade, detail=reason))
    return prose


def _understood(checked: Sequence[Checked], workers: int | None) -> set[str]:
    """Return the problems whose gold has a recognized equivalent form, and all multiple-choice problems."""
    understood = {item.problem_id for item in checked if item.gold.kind == "choice"}
    forms = {item: rewritten(item.boxed) for item in checked if item.kind != "rejected"}
    for index in range(max(map(len, forms.values()), default=0)):
        left = [item for item in forms if item.problem_id not in understood and index < len(forms[item])]
        grades = graded(grade_many(((boxed_answer(forms[item][index]), item.gold) for item in left), workers=workers))
        understood |= {item.problem_id for item, g in zip(left, grades, strict=True) if g.verdict == "correct"}
    return understood


def rewritten(answer: str) -> list[str]:
    r"""Return equivalent forms of an answer; the grader should recognize at least one.

    The forms are: the first integer as a quotient; a zero or a factor 1 before the answer; a zero before the first
    element in brackets; thousands without commas; an equation with swapped sides. Some forms change the meaning of some
    answers, for example `0+(1,2)`.
    """
    plain = answer.strip().strip("$").strip().rstrip(".")
    forms = []
    if number := _WHOLE_NUMBER.search(plain):
        value = int(number.group())
        forms.append(rf"{plain[: number.start()]}\frac{{{2 * value}}}{{2}}{plain[number.end() :]}")
    forms += [f"0+{plain}", rf"1\cdot {plain}"]
    if opening := _OPENING.match(plain):
        before = plain[: opening.start(1)]
        forms.append(f"{before}0{opening.group(1) or '+'}{plain[opening.end() :]}")
    if _THOUSANDS.fullmatch(plain):
        forms.append(plain.replace(",", ""))
    left, equals, right = plain.partition("=")
    if equals and "=" not in right:
        forms.append(f"{right}={left}")
    return forms


def _text_kind(answer: str) -> Kind:
    plain = _TEXT_COMMAND.sub(r" \1 ", answer).strip(" $().")
    return "words" if _PHRASE.fullmatch(plain) else "only a string"


@click.command(cls=OneLineErrors)
@click.option(
    "--dataset", "names", multiple=True, help="Dataset or file to check; can be repeated.  [default: all available]"
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of <dataset>.jsonl files.  [default: $HARNESS_DATA_DIR]",
)
@click.option("--split", help="Split of a Hugging Face Hub dataset (hf:).  [default: test]")
@click.option(
    "--columns", multiple=True, metavar="FIELD=COLUMN", help="Column for a field of a custom dataset; can be repeated."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of grader processes.  [default: one per processor, at most 16]"
)
def main(
    names: Sequence[str], data_dir: Path | None, split: str | None, columns: Sequence[str], workers: int | None
) -> int:
    """List gold answers that the grader rejects or compares only as text.

    Exit code 0: no gold is rejected. 1: a gold is rejected, or the machine failed. 2: an option is wrong or no dataset
    can be read.
    """
    from jobs.finished.grading import golds_of

    if not names and (split or columns):
        raise click.UsageError("--split and --columns require --dataset with a file or a Hub dataset")
    golds = golds_of(names, data_dir, split, columns)
    if not golds:
        raise click.UsageError("no dataset can be read; set --data-dir")
    try:
        report = [(name, check([*of_problems.items()], workers)) for name, of_problems in golds.items()]
    except GraderFailed as error:
        raise click.ClickException(str(error)) from error
    _print(report)
    return int(any(item.kind == "rejected" for _, checked in report for item in checked))


def _print(report: Sequence[tuple[str, list[Checked]]]) -> None:
    from jobs.finished.regrading import print_rows

    listed, totals = [], []
    for name, checked in report:
        for item in sorted(checked, key=lambda item: item.kind != "rejected"):
            if item.kind in ("rejected", "prose", "only a string"):
                is_solution = item.kind == "rejected" and item.grade.verdict == "correct"
                verdict = "a solution" if is_solution else item.grade.verdict
                finding = f"REJECTED: {verdict}" if item.kind == "rejected" else item.kind
                reason = "no equivalent form recognized" if item.kind == "only a string" else item.grade.detail
                listed.append((name, item.problem_id, finding, item.boxed[:80], reason[:120]))
        numbers = Counter("only a string" if item.kind == "prose" else item.kind for item in checked)
        counts = [numbers[kind] for kind in ("rejected", "words", "only a string")]
        totals.append((name, *(str(n) for n in (len(checked), len(checked) - numbers["rejected"], *counts))))
    if listed:
        print_rows(("dataset", "problem", "finding", "gold", "reason"), listed)
    print_rows(("dataset", "golds", "accepted", "REJECTED", "words", "only a string"), totals)


if __name__ == "__main__":
    main(prog_name="python -m grading.check")
