"""Dataset descriptions, and the conversion of rows to problems: field limits, rules for gold answers and options.

Rows are untrusted: every string is bounded and checked, and error messages are one line.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.cli.messages import first_error
from harness.engine import Json
from harness.problems.hub import HubSource, Row
from harness.problems.problem import Kind, Problem, filled

LETTERS = "ABCDEFGHIJ"
MAX_ANSWER_CHARACTERS = 2_000
"""Maximum answer length that the grader accepts (grading.bounds)."""
AnswerRule = Literal["text", "integer", "boxed", "hashes", "letter", "index-from-0", "index-from-1"]
"""Format of the gold answer in its column. text: text, a number, or the letter or text of the correct option. integer:
027 and 27.0 mean 27. boxed: in the last `\\boxed` of a solution. hashes: after the last `####` of a solution. letter,
index-from-0, index-from-1: of the correct option."""
MAX_PROBLEM_CHARACTERS = 1_000_000


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("contains a control character")
    return text


def _clean(text: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise ValueError("contains a NUL character or an unpaired surrogate")
    return text


def _number_as_text(value: Json) -> Json:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return str(value) if is_number else value


def _as_list(value: Json) -> Json:
    """Return a list of strings from JSON (in CSV cells) or from ARC's {text: […], label: […]} on the Hub."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("is not a JSON list") from error
    return value["text"] if isinstance(value, dict) and "text" in value else value


_Text = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_clean)]
_Label = Annotated[_Text, Field(min_length=1, max_length=200), AfterValidator(printable)]
_Texts = Annotated[
    tuple[Annotated[_Text, AfterValidator(filled), AfterValidator(str.strip)], ...], BeforeValidator(_as_list)
]


class Fields(BaseModel):
    """The validated fields of a row; documented in `harness.problems.problem.Problem`."""

    problem: Annotated[str, Field(max_length=MAX_PROBLEM_CHARACTERS), AfterValidator(_clean), AfterValidator(filled)]
    answer: _Text
    id: _Label | None = None
    choices: _Texts = ()
    answers: _Texts = ()
    alternatives: _Texts = ()
    level: _Label | None = None
    subject: _Label | None = None
    family: _Label | None = None
    unit: _Label | None = None
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


REQUIRED = ("problem", "answer")
FIELDS = tuple(Fields.model_fields)
_Column = Annotated[str, Field(min_length=1, max_length=200)]


def known_fields(columns: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
    """Check a column mapping. Raises ValueError for unknown fields, or several columns for a single-column field."""
    for name, column in columns.items():
        if name not in FIELDS:
            raise ValueError(f"unknown field {name!r}; valid: {', '.join(FIELDS)}")
        if not isinstance(column, str) and name != "choices":
            raise ValueError(f"{name} takes one column; only 'choices' can take several")
    return columns


class Description(BaseModel):
    """Description of a dataset: the keys of its TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str | None = None
    hub: str | None = None
    """ORG/NAME[:CONFIG][@REVISION]"""
    split: str | None = None
    name: str = ""
    """Short name, also used in run ids."""
    title: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)] | None = None
    kind: Kind | None = None
    """None: `choice` for rows with choices, otherwise `math`."""
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    """Whether to shuffle options by the seed, as in GPQA."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Required number of problems; None: any."""
    columns: Annotated[dict[str, _Column | list[_Column]], AfterValidator(known_fields)] = {}
    """Column of each field, if its name differs from the field's; `choices` can have one column per option."""

    @property
    def source(self) -> Path | HubSource:
        """The file or Hub dataset. Raises ValueError if `hub` is malformed."""
        return (
            Path(str(self.file))
            if self.hub is None
            else HubSource.parsed(self.hub.removeprefix("hf:"), self.split or "test")
        )

    def problem(self, record: Row, prefix: str, index: int, seed: int, *, may_lack_gold: bool = False) -> Problem:
        """Convert a record to a problem; the default id is `<prefix>/<index>`.

        `seed` sets the order of shuffled options. Empty optional fields are ignored. `may_lack_gold`: whether
        the answer may be empty. Raises ValueError with a one-line message.
        """
        try:
            said = Fields.model_validate({n: v for n, v in record.items() if n in REQUIRED or v not in (None, "")})
        except ValidationError as error:
            raise ValueError(first_error(error, Fields)) from error
        is_choice = self.kind == "choice" or (self.kind is None and bool(said.choices))
        identity, choices = said.id or f"{prefix}/{index}", said.choices if is_choice else ()
        answer = said.answer.strip()
        if answer or not may_lack_gold:
            answer = gold(self.answer_rule, answer)
        if is_choice:
            answer = letter(self.answer_rule, answer, choices)
            if self.shuffle:
                choices, answer = shuffled_choices(choices, answer, f"{seed}/{identity}")
        elif self.answer_rule.startswith("index"):
            raise ValueError(f"answer_rule {self.answer_rule}, but the row has no choices")
        read = {"id": identity, "text": said.problem, "answer": answer, "choices": choices}
        fields = said.model_dump(exclude={"problem"}) | read
        return Problem(dataset=self.name, kind="choice" if is_choice else "math", **fields)


def gold(rule: AnswerRule, answer: str) -> str:
    """Return the gold answer from the text in its column. Raises ValueError."""
    if not answer:
        raise ValueError("the answer is empty")
    if rule == "hashes":
        answer = behind_hashes(answer)
    elif rule == "boxed":
        answer = next((box for box in reversed(boxes(answer)) if box), "")
        if not answer:
            raise ValueError("no \\boxed in the solution")
    elif rule == "integer":
        answer = as_integer(answer)
    if len(answer) > MAX_ANSWER_CHARACTERS:
        rules = "; for solutions, set answer_rule = hashes or boxed in a TOML file" if rule == "text" else ""
        raise ValueError(f"the answer has {len(answer):,} characters; maximum: {MAX_ANSWER_CHARACTERS:,}{rules}")
    return answer


def behind_hashes(solution: str) -> str:
    """Return the answer that follows `####`, without thousands separators. Raises ValueError."""
    _, mark, answer = solution.rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("no answer after #### in the solution")
    return answer.strip().replace(",", "")


def as_integer(text: str) -> str:
    """Normalize an integer such as 027, 27.0 or $27$. Raises ValueError."""
    try:
        number = float(text.strip("$ ").removesuffix("^\\circ").replace(",", ""))
    except ValueError:
        number = math.nan
    if not number.is_integer() or abs(number) > 1e15:
        raise ValueError(f"the answer {text[:60]!r} is not an integer")
    return str(int(number))


def boxes(text: str) -> list[str]:
    """Return the contents of all `\\boxed{…}` and `\\fbox{…}`; `\\boxed 2` extends to the next `$`."""
    contents = []
    for match in re.finditer(r"\\(?:boxed|fbox)\s*(\{)?", text):
        rest = text[match.end() :]
        if not match[1]:
            contents.append(re.split(r"[$\n]", rest, maxsplit=1)[0].strip())
            continue
        depth = 1
        for place, character in enumerate(rest):
            depth += (character == "{") - (character == "}")
            if depth == 0:
                contents.append(rest[:place].strip())
                break
    return contents


def answer_parts(answer: str) -> list[str]:
    """Split answers at commas outside brackets, and remove dollar signs."""
    parts, depth = [""], 0
    for character in answer:
        depth = max(0, depth + (character in "([{") - (character in ")]}"))
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.replace("$", "").strip() for part in parts]


def letter(rule: AnswerRule, answer: str, choices: Sequence[str]) -> str:
    """Return the letter of the correct option from its letter, index or text. Raises ValueError."""
    letters = LETTERS[: len(choices)]
    are_different = rule == "letter" or len(set(choices)) == len(choices)
    if not 2 <= len(choices) <= len(LETTERS) or not are_different:
        raise ValueError(f"{len(choices)} choices; expected 2 to {len(LETTERS)}, all distinct")
    if rule.startswith("index"):
        named = {index for index in range(len(choices)) if str(index + int(rule[-1])) == answer}
    else:
        by_text = rule != "letter"
        named = {i for i, choice in enumerate(choices) if answer == letters[i] or (by_text and answer == choice)}
    if len(named) != 1:
        problem = "matches several options" if named else "is not an option"
        rules = "; for indices, set answer_rule = index-from-0 or index-from-1 in a TOML file"
        hint = f"use the letter ({letters}) or the text{rules if answer.isdigit() else ''}"
        if rule.startswith("index"):
            hint = f"use an index from {rule[-1]} to {len(choices) - 1 + int(rule[-1])}"
        raise ValueError(f"the answer {answer[:60]!r} {problem}: {hint}")
    return letters[named.pop()]


def shuffled_choices(choices: Sequence[str], answer: str, key: str) -> tuple[tuple[str, ...], str]:
    """Return the shuffled options and the letter of the correct one; the order depends only on `key` and the texts.

    Options are sorted first, so their order in the source does not matter (on the Hub, the correct one is first).
    """
    order = sorted(range(len(choices)), key=lambda i: choices[i])
    random.Random(key).shuffle(order)
    return tuple(choices[i] for i in order), LETTERS[order.index(LETTERS.index(answer))]
