"""The wording of a run as data: what `--prompts FILE.toml` may hold, the built-in file, and the wording of the papers.

A file gives the keys that it changes; the rest is the built-in wording, data/prompts.toml. A placeholder such as
`{problem}` is replaced by text; any other braces, such as those of `\\boxed{}`, are ordinary text. Files are data:
bounded in size, checked key by key, and never evaluated.

No text of a paper or of its program is shipped: of the wording that the papers' authors used there are the places where
it is published, and the hashes that tell a file that holds it. It is compared piece by piece, because a method uses
only some of its texts: the rest of a file may say anything.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.cli.toml_file import parse_toml, read_toml
from harness.problems.problem import Kind

MAX_TEXT_CHARACTERS = 8000
_LONE_WORD = re.compile(r"(?<![\\\w}])\{([a-z]+(?:_[a-z]+)*)\}")
"""A lower-case word in braces that is no argument of a LaTeX command, and so meant as a placeholder."""


def render(template: str, **values: str) -> str:
    """Return the template with its placeholders replaced, in one pass, so that inserted text is never read again."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda found: values[found[1]], template)


def printable(text: str) -> str:
    """Return the text. Raises ValueError where it holds a control character that no prompt needs."""
    if any(unicodedata.category(character) == "Cc" and character not in "\n\t\r" for character in text):
        raise ValueError("holds a control character")
    return text


def _needed(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; this text is needed")
    return text


def _reply(text: str) -> str:
    if text != text.rstrip():
        raise ValueError("ends with white space; a space follows by itself where the tokenizer has one there")
    return text


def placeholders(*required: str, optional: tuple[str, ...] = ()) -> AfterValidator:
    """Return the check of a template: it holds what is required and no unknown placeholder."""
    known = (*required, *optional)

    def check(template: str) -> str:
        for name in required:
            if f"{{{name}}}" not in template:
                raise ValueError(f"lacks {{{name}}}")
        for name in _LONE_WORD.findall(template):
            if name not in known:
                valid = ", ".join(f"{{{word}}}" for word in known) or "none"
                raise ValueError(f"unknown placeholder {{{name}}}; valid here: {valid}")
        return template

    return AfterValidator(check)


AnyText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS), AfterValidator(printable)]
"""A text that may be empty."""
NeededText = Annotated[AnyText, AfterValidator(_needed)]
"""A text that may not be empty."""
ReplyText = Annotated[NeededText, placeholders(), AfterValidator(_reply)]
"""The beginning of a reply, which the model goes on with."""
ItemText = Annotated[AnyText, placeholders("label", "text")]
"""How one of several candidates or options is shown."""


_MAX_SHOWN_CHARACTERS = 100


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Instruction(_Table):
    """What a model is told with a problem, by the problem's kind.

    It follows the problem after a blank line. With `{problem}` in it, it is the whole message; empty, the problem
    stands alone.
    """

    math: Annotated[AnyText, placeholders(optional=("problem",))]
    choice: Annotated[AnyText, placeholders(optional=("problem", "options"))]

    @model_validator(mode="before")
    @classmethod
    def _shortest_form(cls, values: Any) -> Any:
        """Give the same message the same text: a template that only appends becomes the instruction that it appends."""
        if not isinstance(values, Mapping):
            return values
        heads = {"math": "{problem}", "choice": "{problem}\n\n{options}"}
        return {name: _appended(text, heads[name]) if name in heads else text for name, text in values.items()}

    @model_validator(mode="after")
    def _shows_all_of_a_choice(self) -> Instruction:
        if ("{problem}" in self.choice) != ("{options}" in self.choice):
            raise ValueError("choice: {problem} and {options} go together")
        return self


def _appended(text: Any, head: str) -> Any:
    """Return what the text appends to `head` after a blank line, where it is of that form."""
    if not isinstance(text, str):
        return text
    rest = text.removeprefix(head + "\n\n") if text.startswith(head + "\n\n") else text
    return "" if text == head else text if any(name in rest for name in ("{problem}", "{options}")) else rest


class Instructions(_Table):
    """The instructions for reasoning models, whose replies open with `<think>`, and for plain ones."""

    thinking: Instruction
    plain: Instruction


class Options(_Table):
    """How the options of a multiple-choice problem are listed."""

    item: ItemText
    separator: AnyText


class Score(_Table):
    """SpecReason's question for a score of the last step."""

    question: Annotated[NeededText, placeholders()]
    thought: AnyText
    """What the reply of a reasoning model holds before `reply`."""
    reply: ReplyText


class Reward(_Table):
    """What a reward model is asked about the last step, and the two answers whose probabilities are compared."""

    question: Annotated[AnyText, placeholders()]
    """Empty: no turn is opened, and `reply` follows the step."""
    thought: AnyText
    reply: ReplyText
    good: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(printable)]
    bad: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(printable)]


class Equivalence(_Table):
    """What a judge is asked about two versions of a step, and the two answers whose probabilities are compared."""

    question: Annotated[NeededText, placeholders("first", "second")]
    blank: NeededText
    """Stands for a version without text."""
    closing: AnyText
    """Follows a version that ends the thought."""
    reply: ReplyText
    same: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(printable)]
    different: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(printable)]


class SeparateScore(_Table):
    """The rubric in the target's prompt and the short question after each candidate (speccot --verdict separate)."""

    rubric: Annotated[NeededText, placeholders()]
    reply: ReplyText


class StepChoice(_Table):
    """SpecCoT's choice among proposals for the next step."""

    question: Annotated[AnyText, placeholders("candidates", "reject", optional=("label",))]
    item: ItemText
    separator: AnyText
    blank: AnyText
    """Shown for a candidate without text."""
    closing: Annotated[NeededText, placeholders()] | None = None
    """Follows every candidate that holds `</think>`. None: `blank` follows it, only where another says the same."""
    thought: AnyText
    reply: ReplyText


class ChainChoice(_Table):
    """SCoT's choice among whole chains."""

    question: Annotated[AnyText, placeholders("problem", "candidates", optional=("label",))]
    rejection: Annotated[AnyText, placeholders("reject")]
    """Appended to the question where all chains may be refused."""
    item: ItemText
    separator: AnyText
    blank: AnyText
    reply: ReplyText
    before: AnyText | None = None
    """With `after`: text with control tokens around the question, in place of the chat template."""
    after: AnyText | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> ChainChoice:
        if (self.before is None) != (self.after is None):
            raise ValueError("before and after go together: they replace the chat template around the question")
        return self


class Prompts(_Table):
    """Every text of the harness that a model reads, beside the problem and what models wrote."""

    system: AnyText
    """The message of a system role; empty: none."""
    step_separator: Annotated[str, Field(min_length=1, max_length=50), AfterValidator(printable)]
    answer_bridge: Annotated[NeededText, placeholders()]
    """Opens the target's final answer after a chosen chain where no `</think>` does so (plain models under SCoT)."""
    instruction: Instructions
    options: Options
    score: Score
    separate_score: SeparateScore
    step_choice: StepChoice
    chain_choice: ChainChoice
    reward: Reward
    equivalence: Equivalence

    @property
    def changes(self) -> dict[str, str]:
        """The texts that differ from the built-in ones, by the path of their key, sorted."""
        own, built_in = _flat(self.model_dump(exclude_none=True)), _flat(BUILT_IN.model_dump(exclude_none=True))
        return {path: own[path] for path in sorted(own) if own[path] != built_in.get(path)}

    @property
    def stored(self) -> str | None:
        """The whole wording as JSON, as the warehouse has it; None for the built-in one."""
        return self.model_dump_json(exclude_none=True) if self.changes else None

    @property
    def num_bytes(self) -> int:
        """The length of all texts in UTF-8."""
        return sum(len(text.encode()) for text in _flat(self.model_dump(exclude_none=True)).values())


def _flat(table: Mapping[str, Any], at: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, Mapping) else {f"{at}{name}": value}
    return flat


def load(path: Path) -> Prompts:
    """Return the wording of a TOML file on top of the built-in one, or that of a run by its `spec.json`.

    Raises ValueError with one line: what is wrong in the file, and what is valid.
    """
    label = f"--prompts {path}"
    if not path.exists():
        raise ValueError(f"{label}: no such file; a run begun with it keeps its prompts in its spec.json")
    if path.suffix != ".json":
        return _merged_over_built_in(read_toml(path, label), label)
    try:
        spec = json.loads(path.read_bytes())
        _ = spec["prompt_hash"]  # every run's has one
        own = dict(spec.get("prompts") or {})  # none: the built-in wording
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{label}: not the spec.json of a run") from error
    return _merged_over_built_in(own, label)


def parse(text: str, label: str) -> Prompts:
    """Return the wording of a TOML document on top of the built-in one. Raises ValueError with one line."""
    return _merged_over_built_in(parse_toml(text, label), label)


def _merged_over_built_in(own: Mapping[str, Any], label: str) -> Prompts:
    try:
        return Prompts.model_validate(_merged(BUILT_IN.model_dump(), own, label))
    except ValidationError as error:
        raise ValueError(f"{label}: {_one_line(error)}") from error


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], label: str, at: str = "") -> dict[str, Any]:
    """Return `above` on top of `below`, table by table. Raises ValueError for an unknown key or a misplaced value."""
    merged = dict(below)
    for name, value in above.items():
        if name not in below:
            unknown = (at + name)[:_MAX_SHOWN_CHARACTERS]
            raise ValueError(f"{label}: unknown key {unknown!r}; valid: {', '.join(at + key for key in below)}")
        if isinstance(below[name], Mapping):
            if not isinstance(value, Mapping):
                raise ValueError(f"{label}: {at + name} is a table of {', '.join(below[name])}")
            merged[name] = _merged(below[name], value, label, f"{at}{name}.")
        else:
            merged[name] = value
    return merged


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {str(first['msg']).removeprefix('Value error, ')}"


def of_stored(stored: str | None) -> Prompts:
    """Return the wording that `Prompts.stored` wrote. Raises ValueError with one line."""
    return _merged_over_built_in(json.loads(stored), "prompts") if stored else BUILT_IN


def built_in_text() -> str:
    """Return the built-in file as it is shipped."""
    return (resources.files("harness") / "data" / "prompts.toml").read_text(encoding="utf-8")


@cache
def demo_prompts() -> Prompts:
    """Return the wording that the demo asks with; the bundled pair is trained on it and on the built-in one."""
    name = "demo_prompts.toml"
    return parse((resources.files("harness") / "data" / name).read_text(encoding="utf-8"), name)


BUILT_IN = Prompts.model_validate(parse_toml(built_in_text(), "data/prompts.toml"))


Piece = Literal[
    "opening.math",
    "opening.choice",
    "steps",
    "score",
    "separate_score",
    "step_choice",
    "chain_choice",
    "reward",
    "equivalence",
]
"""Texts that a method uses together."""
_BY_METHOD: Mapping[str, tuple[Piece, ...]] = {
    "scot": ("chain_choice",),
    "speccot": ("steps", "step_choice", "separate_score"),
    "specreason": ("steps", "score"),
}
"""What a method uses beside the opening."""


class Published(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Figure, or program with commit and lines."""
    pieces: Mapping[Piece, Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]
    """The hash of each piece that is published."""
    how: tuple[str, ...] = Field(min_length=1)
    """Which lines of the source belong to which key of a prompt file."""


@cache
def published() -> Mapping[str, Published]:
    """Return the published wordings by paper; a paper that is not among them published none."""
    text = (resources.files("harness.papers") / "prompts.toml").read_text(encoding="utf-8")
    return {paper: Published.model_validate(values) for paper, values in tomllib.loads(text).items()}


def piece_hashes(wording: Prompts) -> dict[Piece, str]:
    """Return the hash of every piece of a wording: 16 hex digits over its texts, whatever the file looks like.

    An opening's is over the instruction for reasoning models, which all models of the papers are, and over what stands
    around it.
    """
    instruction = wording.instruction.thinking
    texts: dict[Piece, Any] = {
        "opening.math": [wording.system, instruction.math],
        "opening.choice": [wording.system, instruction.choice, wording.options.model_dump()],
        "steps": [wording.step_separator],
        "score": wording.score.model_dump(),
        "separate_score": wording.separate_score.model_dump(),
        "step_choice": wording.step_choice.model_dump(exclude_none=True),
        "chain_choice": wording.chain_choice.model_dump(),
        "reward": wording.reward.model_dump(),
        "equivalence": wording.equivalence.model_dump(),
    }
    written = {piece: json.dumps([piece, value], sort_keys=True).encode() for piece, value in texts.items()}
    return {piece: hashlib.sha256(text).hexdigest()[:16] for piece, text in written.items()}


def unlike(wording: Prompts, paper: str, method: str, kind: Kind) -> list[Piece]:
    """Return the pieces that a method uses on problems of a kind and that are not worded as the paper's are.

    Raises KeyError for a paper that published none.
    """
    expected, found = published()[paper].pieces, piece_hashes(wording)
    opening: Piece = "opening.math" if kind == "math" else "opening.choice"
    used = (opening, *_BY_METHOD.get(method, ()))
    return [piece for piece in used if piece in expected and expected[piece] != found[piece]]
