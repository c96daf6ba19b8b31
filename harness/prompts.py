"""Every prompt: its wording as data, how it is put together, and how the options of a verdict are read.

The wording is what `--prompts FILE.toml` may hold on top of the built-in file, data/prompts.toml, which is this
project's own; it is hashed into every run. A placeholder such as `{problem}` is replaced by text; other braces, such
as those of `\\boxed{}`, are ordinary text. Files are data: bounded in size, checked key by key, and never evaluated.

No text of a paper or of its program is shipped: of the wording that the papers' authors used there are the places where
it is published, and the hashes that tell a file that holds it. It is compared piece by piece, because a method uses
only some of its texts: the rest of a file may say anything. SCoT's template is its Figure 3, and the programs of SCoT
and SpecReason are public; SpecCoT published neither.

Prompts are pure functions over a tokenizer and a wording. The question of a verdict follows the target's own chain: the
ids of the chain do not change, so the prefix cache holds them, and only the candidate (or candidates) and a short
question are new (SpecReason, section 4.1: "templated to reuse most of the CoT prefix"). Text by a model or a benchmark
goes through `Tokenizer.encode`, where control tokens are plain text; only the chat template's own text is encoded with
control tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.cli.messages import first_error
from harness.cli.toml_file import parse_toml, read_toml
from harness.engine import Json, Tokenizer
from harness.problems.problem import Kind, Problem, filled
from harness.weights.templates import CLOSE, EMPTY_THOUGHT
from harness.weights.tokenizer import verdict_options

MAX_TEXT_CHARACTERS = 8000
_LONE_WORD = re.compile(r"(?<![\\\w}])\{([a-z]+(?:_[a-z]+)*)\}")
"""A lower-case word in braces that is no argument of a LaTeX command, and so meant as a placeholder."""


def render(template: str, **values: str) -> str:
    """Return the template with its placeholders replaced, in one pass, so that inserted text is never read again."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda found: values[found[1]], template)


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


AnyText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
"""A text that may be empty."""
NeededText = Annotated[AnyText, AfterValidator(filled)]
"""A text that may not be empty."""
ReplyText = Annotated[NeededText, placeholders(), AfterValidator(_reply)]
"""The beginning of a reply, which the model goes on with."""
Word = Annotated[str, Field(min_length=1, max_length=50)]
ItemText = Annotated[AnyText, placeholders("label", "text")]
"""How one of several candidates or options is shown."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Instruction(_Table):
    """What a model is told with a problem, by the problem's kind.

    It follows the problem after a blank line. With `{problem}` in it, it is the whole message; empty, the problem
    stands alone.
    """

    math: Annotated[AnyText, placeholders(optional=("problem",))]
    choice: Annotated[AnyText, placeholders(optional=("problem", "options"))]

    @model_validator(mode="after")
    def _shows_all_of_a_choice(self) -> Instruction:
        if ("{problem}" in self.choice) != ("{options}" in self.choice):
            raise ValueError("choice: {problem} and {options} go together")
        return self


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
    good: Word
    bad: Word
    mark: NeededText | None = None
    """What follows a step for a model with a head of its own, with control tokens; None: the head reads at its end."""


class Equivalence(_Table):
    """What a judge is asked about two versions of a step, and the two answers whose probabilities are compared."""

    question: Annotated[NeededText, placeholders("first", "second")]
    blank: NeededText
    """Stands for a version without text."""
    closing: AnyText
    """Follows a version that ends the thought."""
    reply: ReplyText
    same: Word
    different: Word


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
    step_separator: Word
    answer_bridge: Annotated[NeededText, placeholders()]
    """Opens the final answer where no `</think>` does so (plain models under SCoT), and trial answers (early exit)."""
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


def _flat(table: Mapping[str, Json], at: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, Mapping) else {f"{at}{name}": str(value)}
    return flat


def load(path: Path) -> Prompts:
    """Return the wording of a TOML file on top of the built-in one. Raises ValueError with one line."""
    return _merged_over_built_in(read_toml(path, f"--prompts {path}"), f"--prompts {path}")


def parse(text: str, label: str) -> Prompts:
    """Return the wording of a TOML document on top of the built-in one. Raises ValueError with one line."""
    return _merged_over_built_in(parse_toml(text, label), label)


def _merged_over_built_in(own: Mapping[str, Json], label: str) -> Prompts:
    try:
        return Prompts.model_validate(_merged(BUILT_IN.model_dump(), own))
    except ValidationError as error:
        raise ValueError(f"{label}: {first_error(error, Prompts)}") from error


def _merged(below: Mapping[str, Json], above: Mapping[str, Json]) -> dict[str, Json]:
    """Return `above` on top of `below`, table by table."""
    merged = dict(below)
    for name, value in above.items():
        inner = below.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


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
        "reward": wording.reward.model_dump(exclude_none=True),
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


STEP_END = BUILT_IN.step_separator
"""Steps of a chain end at a blank line (SpecReason's code; the other papers do not say)."""
THINK_END = CLOSE
SCORE_LABELS = tuple("0123456789")

THINK_BRIDGE = "\n" + THINK_END + "\n\n"
"""Closes a chain that its author ended without `</think>`."""


@dataclass(frozen=True)
class Question:
    """A verdict's question in token ids, to be appended to a context."""

    text: str
    """The question without the chat template."""
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    option_ids: tuple[int, ...]
    """One token id per label."""


def prompt_hash(wording: Prompts = BUILT_IN) -> str:
    """Return 16 hex digits over a wording: results under different ones are not comparable.

    Wordings of the same texts have the same hash, whatever their files look like.
    """
    at_default = {"reward": {"mark"}} if wording.reward.mark is None else None
    return hashlib.sha256(wording.model_dump_json(exclude=at_default).encode()).hexdigest()[:16]


def problem_text(problem: Problem, wording: Prompts = BUILT_IN) -> str:
    """Return the problem as shown to a model; a multiple-choice problem with its options."""
    return f"{problem.text}\n\n{_options_text(problem, wording)}" if problem.choices else problem.text


def opening(
    tokenizer: Tokenizer, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> tuple[list[int], str]:
    """Return ids and text of the prompt that a chain continues; it ends where the model's first step starts.

    With `rubric` it also explains what a score is, so that each verdict's question is short (`short_score_question`).
    Raises ValueError where the wording has a system prompt and the chat template has no place for it.
    """
    instructions = wording.instruction.thinking if tokenizer.thinks else wording.instruction.plain
    instruction = instructions.math if problem.kind == "math" else instructions.choice
    if "{problem}" in instruction and problem.choices and "{options}" in instruction:
        text = render(instruction, problem=problem.text, options=_options_text(problem, wording))
    elif "{problem}" in instruction:
        text = render(instruction, problem=problem_text(problem, wording), options="")
    else:
        text = "\n\n".join(part for part in (problem_text(problem, wording), instruction) if part)
    return _opened(tokenizer, f"{text}\n\n{wording.separate_score.rubric}" if rubric else text, wording.system)


@lru_cache(maxsize=8)
def score_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question of SpecReason's verdict on the last step of the chain: one digit, 0 to 9 (section 4.1)."""
    score = wording.score
    return _question(tokenizer, _followup(tokenizer, score.question, score.thought), score.question, score.reply)


@lru_cache(maxsize=8)
def short_score_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question for a score of the step right before it, inside the target's own reply.

    Its meaning is explained by the rubric in the target's prompt.
    """
    return _question(tokenizer, [], wording.separate_score.reply, wording.separate_score.reply)


@lru_cache(maxsize=8)
def reward_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question of a reward model about the step right before it: the good answer, then the bad one.

    Raises ValueError where the two answers are not one token each.
    """
    reward = wording.reward
    ids = _followup(tokenizer, reward.question, reward.thought) if reward.question else []
    return _question(tokenizer, ids, reward.question, reward.reply, (reward.good, reward.bad))


def step_choice_question(tokenizer: Tokenizer, candidates: Sequence[str], wording: Prompts = BUILT_IN) -> Question:
    """Return the question of SpecCoT's verdict: one of the candidates, or the last label to reject all (equation 4).

    A candidate that closes the thought is marked where another says the same and does not, so that no two options look
    equal; a mark on every last step would make judges reject it that do not expect one. A wording with
    `step_choice.closing` marks every candidate that holds `</think>`. Raises ValueError for more than 25 candidates.
    """
    choice, labels = wording.step_choice, option_labels(len(candidates) + 1)
    visible = [text.replace(THINK_END, "").strip() for text in candidates]
    if choice.closing is None:
        marked = [
            f"{shown}\n{choice.blank}" if THINK_END in text and visible.count(shown) > 1 else text
            for text, shown in zip(candidates, visible, strict=True)
        ]
    else:
        marked = [marked_candidate(text, choice.closing) for text in candidates]
    listed = _listed(marked, labels, choice)
    text = render(choice.question, candidates=listed, label=_label_noun(labels), reject=labels[-1])
    return _question(tokenizer, _followup(tokenizer, text, choice.thought), text, choice.reply, labels)


def marked_candidate(text: str, closing: str) -> str:
    """Return a candidate, if it holds `</think>` and other text with `closing` in place of the former."""
    shown = text.replace(THINK_END, "").strip()
    return f"{shown}\n{closing}" if THINK_END in text and shown else text


def chain_choice_question(
    tokenizer: Tokenizer, problem: Problem, chains: Sequence[str], wording: Prompts = BUILT_IN, *, may_reject: bool
) -> Question:
    """Return the question of SCoT's verdict: one of the whole chains, or the last label if all are wrong (section 3.4).

    It is a prompt of its own and does not follow a chain. Raises ValueError for more than 25 chains, and where the
    wording has a system prompt and the chat template has no place for it.
    """
    choice, labels = wording.chain_choice, option_labels(len(chains) + may_reject)
    shown, listed = problem_text(problem, wording), _listed(chains, labels, choice)
    text = render(choice.question, problem=shown, candidates=listed, label=_label_noun(labels))
    if may_reject:
        text += render(choice.rejection, reject=labels[-1])
    if choice.before is not None and choice.after is not None:
        framed = tokenizer.encode_template(choice.before) + tokenizer.encode(text)
        ids = [*tokenizer.opening, *framed, *tokenizer.encode_template(choice.after)]
    else:
        ids = _opened_plainly(tokenizer, text, wording.system)
    return _question(tokenizer, ids, text, choice.reply, labels)


def equivalence_question(tokenizer: Tokenizer, first: str, second: str, wording: Prompts = BUILT_IN) -> Question:
    """Return the question whether two versions of a step mean the same: the answer that they do, then the other one.

    It is a prompt of its own and does not follow a chain. Raises ValueError where the two answers are not one token
    each, and where the wording has a system prompt and the chat template has no place for it.
    """
    asked = wording.equivalence
    shown = [
        (text.replace(THINK_END, "").strip() or asked.blank) + (f"\n{asked.closing}" if THINK_END in text else "")
        for text in (first, second)
    ]
    text = render(asked.question, first=shown[0], second=shown[1])
    ids = _opened_plainly(tokenizer, text, wording.system)
    return _question(tokenizer, ids, text, asked.reply, (asked.same, asked.different))


def option_labels(n: int) -> tuple[str, ...]:
    """Return `n` labels that are single tokens: the digits from 1, or letters where `n` is above 9."""
    if n > 26:
        raise ValueError(f"at most 26 options can be distinguished by one token, not {n}")
    return tuple(str(i + 1) for i in range(n)) if n <= 9 else tuple(chr(65 + i) for i in range(n))


def _label_noun(labels: Sequence[str]) -> str:
    return "number" if labels[0].isdigit() else "letter"


def _options_text(problem: Problem, wording: Prompts) -> str:
    items = (render(wording.options.item, label=chr(65 + i), text=text) for i, text in enumerate(problem.choices))
    return wording.options.separator.join(items)


def _listed(candidates: Sequence[str], labels: Sequence[str], choice: StepChoice | ChainChoice) -> str:
    shown = (text.replace(THINK_END, "").strip() or choice.blank for text in candidates)
    items = (render(choice.item, label=label, text=text) for label, text in zip(labels, shown, strict=False))
    return choice.separator.join(items)


def _question(
    tokenizer: Tokenizer, ids: list[int], text: str, reply: str, labels: Sequence[str] = SCORE_LABELS
) -> Question:
    reply_ids, option_ids = _options(tokenizer, reply, tuple(labels))
    return Question(text, (*ids, *reply_ids), tuple(labels), option_ids)


@lru_cache(maxsize=64)
def _options(tokenizer: Tokenizer, reply: str, labels: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    reply_ids, option_ids = verdict_options(tokenizer, reply, labels)
    return tuple(reply_ids), tuple(option_ids)


_PLACEHOLDER, _SYSTEM = "QUESTION-GOES-HERE", "SYSTEM-PROMPT-GOES-HERE"


@lru_cache(maxsize=16)
def _opening_frame(tokenizer: Tokenizer, system: str) -> tuple[str, str, str]:
    """Return the chat template of an opening: before the system prompt, between that and the question, and after.

    Raises ValueError where the chat template does more with the system prompt than to insert it.
    """
    whole = tokenizer.open_reply(_PLACEHOLDER, _SYSTEM if system else "")
    if system and tokenizer.open_reply(_PLACEHOLDER, system) not in {
        whole.replace(_SYSTEM, text) for text in (system, system.strip())
    }:
        raise ValueError("its chat template does not send the system prompt of the wording as it is")
    before, _, after = whole.partition(_PLACEHOLDER)
    begun, _, between = before.partition(_SYSTEM) if system else ("", "", before)
    return begun, between, after


@lru_cache(maxsize=8)
def _followup_frame(tokenizer: Tokenizer) -> tuple[str, str]:
    """Return the chat template around a question that follows a reply."""
    before, _, after = tokenizer.ask_again(_PLACEHOLDER).partition(_PLACEHOLDER)
    return before, after


@lru_cache(maxsize=16)
def _trims(tokenizer: Tokenizer) -> bool:
    """Return whether the chat template sends a question without the white space around it."""
    return tokenizer.open_reply(f" \n{_PLACEHOLDER}\n ") == tokenizer.open_reply(_PLACEHOLDER)


def _opened(tokenizer: Tokenizer, question: str, system: str) -> tuple[list[int], str]:
    before, between, after = _opening_frame(tokenizer, system)
    question = question.strip() if _trims(tokenizer) else question
    ids = [*tokenizer.encode_template(before), *tokenizer.encode(system)] if system else []
    ids += tokenizer.encode_template(between) + tokenizer.encode(question) + tokenizer.encode_template(after)
    return ids, before + system + between + question + after


def _opened_plainly(tokenizer: Tokenizer, question: str, system: str) -> list[int]:
    """Return the ids of a prompt of its own up to a reply that holds no thought."""
    ids, _ = _opened(tokenizer, question, system)
    thought = tokenizer.thought
    if not tokenizer.thinks:
        return ids
    if thought.empty.startswith(thought.opening):
        return ids + tokenizer.encode(thought.closing)
    after = _opening_frame(tokenizer, system)[2]
    header = after.removesuffix(thought.opening)
    return ids[: len(ids) - len(tokenizer.encode_template(after))] + tokenizer.encode_template(header + thought.empty)


def _followup(tokenizer: Tokenizer, question: str, thought: str) -> list[int]:
    """Return the ids of a question that follows a reply, up to the next one.

    `thought` opens a reasoning model's: the wording's, or the chat template's own where that is the built-in one.
    """
    before, after = _followup_frame(tokenizer)
    if tokenizer.thinks and thought != EMPTY_THOUGHT:
        after = after.removesuffix(tokenizer.thought.empty) + thought
    return tokenizer.encode_template(before) + tokenizer.encode(question) + tokenizer.encode_template(after)
