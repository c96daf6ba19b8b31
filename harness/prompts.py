"""Every prompt: its wording as data, its construction, and the options of verdicts.

The built-in wording, data/prompts.toml, was written for this project; `--prompts FILE.toml` changes parts of it. The
wording is hashed into every run. Placeholders such as `{problem}` are replaced by text; other braces, such as those of
`\\boxed{}`, are ordinary text. Files are data: limited in size, checked key by key, and never evaluated.

The texts of papers and of their code are not included, only references to their publication, and hashes that recognize
a file with the authors' wording. Wordings are compared piece by piece, because a method uses only some of the texts in
a file. SCoT's template is Figure 3 of its paper. The code of SCoT and SpecReason is public, but not that of SpecCoT.

Prompts are pure functions of a tokenizer and a wording. A verdict's question follows the target's own chain. The
chain's ids do not change and are in the prefix cache; only the candidates and a short question are new (SpecReason,
section 4.1: "templated to reuse most of the CoT prefix"). Texts of models and benchmarks are encoded with
`Tokenizer.encode`, which treats control tokens as plain text. Only the chat template's own text is encoded with control
tokens.
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
"""A lower-case word in braces that is not a LaTeX argument, so probably intended as a placeholder."""


def render(template: str, **values: str) -> str:
    """Return the template with its placeholders replaced in one pass; inserted text is not processed again."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda found: values[found[1]], template)


def _reply(text: str) -> str:
    if text != text.rstrip():
        raise ValueError("must not end with white space; a space before the answer is added if the tokenizer allows it")
    return text


def placeholders(*required: str, optional: tuple[str, ...] = ()) -> AfterValidator:
    """Return a validator of templates that rejects missing and unknown placeholders."""
    known = (*required, *optional)

    def check(template: str) -> str:
        for name in required:
            if f"{{{name}}}" not in template:
                raise ValueError(f"the placeholder {{{name}}} is missing")
        for name in _LONE_WORD.findall(template):
            if name not in known:
                valid = ", ".join(f"{{{word}}}" for word in known) or "none"
                raise ValueError(f"unknown placeholder {{{name}}}; valid: {valid}")
        return template

    return AfterValidator(check)


AnyText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
"""A text that may be empty."""
NeededText = Annotated[AnyText, AfterValidator(filled)]
"""A text that must not be empty."""
ReplyText = Annotated[NeededText, placeholders(), AfterValidator(_reply)]
"""The beginning of a reply, continued by the model."""
Word = Annotated[str, Field(min_length=1, max_length=50)]
ItemText = Annotated[AnyText, placeholders("label", "text")]
"""Format of one candidate or option in a list."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Instruction(_Table):
    """Instructions for a problem, by the problem's kind.

    An instruction follows the problem after a blank line; an empty one adds nothing. An instruction that contains
    `{problem}` is the whole message instead.
    """

    math: Annotated[AnyText, placeholders(optional=("problem",))]
    choice: Annotated[AnyText, placeholders(optional=("problem", "options"))]

    @model_validator(mode="after")
    def _shows_all_of_a_choice(self) -> Instruction:
        if ("{problem}" in self.choice) != ("{options}" in self.choice):
            raise ValueError("choice: {problem} and {options} must be used together")
        return self


class Instructions(_Table):
    """The instructions for reasoning models, whose replies open with `<think>`, and for plain ones."""

    thinking: Instruction
    plain: Instruction


class Options(_Table):
    """Format of a multiple-choice problem's options."""

    item: ItemText
    separator: AnyText


class Score(_Table):
    """SpecReason's question for a score of the last step."""

    question: Annotated[NeededText, placeholders()]
    thought: AnyText
    """Start of a reasoning model's reply, followed by `reply`."""
    reply: ReplyText


class Reward(_Table):
    """The question to a reward model about the last step, and the two answers whose probabilities are compared."""

    question: Annotated[AnyText, placeholders()]
    """If empty, no new turn is opened, and `reply` follows the step."""
    thought: AnyText
    reply: ReplyText
    good: Word
    bad: Word
    mark: NeededText | None = None
    """Text appended to a step for a model with a rating head; its control tokens keep their meaning. None: no text."""


class Equivalence(_Table):
    """The question to a judge about two versions of a step, and the two answers whose probabilities are compared."""

    question: Annotated[NeededText, placeholders("first", "second")]
    blank: NeededText
    """Replaces a version without text."""
    closing: AnyText
    """Suffix for a version that ends the thought."""
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
    """Replaces a candidate without text."""
    closing: Annotated[NeededText, placeholders()] | None = None
    """Suffix of candidates that contain `</think>`. None: those with the same text as another candidate get `blank`."""
    thought: AnyText
    reply: ReplyText


class ChainChoice(_Table):
    """SCoT's choice among whole chains."""

    question: Annotated[AnyText, placeholders("problem", "candidates", optional=("label",))]
    rejection: Annotated[AnyText, placeholders("reject")]
    """Appended to the question if all chains may be rejected."""
    item: ItemText
    separator: AnyText
    blank: AnyText
    reply: ReplyText
    before: AnyText | None = None
    """Text before the question; with `after`, it replaces the chat template. Control tokens keep their meaning."""
    after: AnyText | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> ChainChoice:
        if (self.before is None) != (self.after is None):
            raise ValueError("`before` and `after` must be set together: they replace the chat template")
        return self


class Prompts(_Table):
    """All texts shown to a model besides the problem and generated text."""

    system: AnyText
    """System prompt; empty: none."""
    step_separator: Word
    answer_bridge: Annotated[NeededText, placeholders()]
    """Starts the final answer if there is no `</think>` (plain models under SCoT), and trial answers (early exit)."""
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
        """The texts that differ from the built-in ones, by key path such as `score.question`, sorted."""
        own, built_in = _flat(self.model_dump(exclude_none=True)), _flat(BUILT_IN.model_dump(exclude_none=True))
        return {path: own[path] for path in sorted(own) if own[path] != built_in.get(path)}

    @property
    def stored(self) -> str | None:
        """The whole wording as JSON, as stored in the warehouse; None for the built-in one."""
        return self.model_dump_json(exclude_none=True) if self.changes else None

    @property
    def num_bytes(self) -> int:
        """The total length of all texts in UTF-8."""
        return sum(len(text.encode()) for text in _flat(self.model_dump(exclude_none=True)).values())


def _flat(table: Mapping[str, Json], at: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{at}{name}.") if isinstance(value, Mapping) else {f"{at}{name}": str(value)}
    return flat


def load(path: Path) -> Prompts:
    """Return the built-in wording with the changes in a TOML file. Raises ValueError with a one-line message."""
    return _merged_over_built_in(read_toml(path, f"--prompts {path}"), f"--prompts {path}")


def parse(text: str, label: str) -> Prompts:
    """Return the built-in wording with the changes in a TOML text. Raises ValueError with a one-line message."""
    return _merged_over_built_in(parse_toml(text, label), label)


def _merged_over_built_in(own: Mapping[str, Json], label: str) -> Prompts:
    try:
        return Prompts.model_validate(_merged(BUILT_IN.model_dump(), own))
    except ValidationError as error:
        raise ValueError(f"{label}: {first_error(error, Prompts)}") from error


def _merged(below: Mapping[str, Json], above: Mapping[str, Json]) -> dict[str, Json]:
    merged = dict(below)
    for name, value in above.items():
        inner = below.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def of_stored(stored: str | None) -> Prompts:
    """Return the wording from `Prompts.stored`. Raises ValueError with a one-line message."""
    return _merged_over_built_in(json.loads(stored), "prompts") if stored else BUILT_IN


def built_in_text() -> str:
    """Return the content of the built-in file."""
    return (resources.files("harness") / "data" / "prompts.toml").read_text(encoding="utf-8")


@cache
def demo_prompts() -> Prompts:
    """Return the demo's wording; the bundled pair is trained on it and on the built-in one."""
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
"""Groups of texts used together by a method."""
_BY_METHOD: Mapping[str, tuple[Piece, ...]] = {
    "scot": ("chain_choice",),
    "speccot": ("steps", "step_choice", "separate_score"),
    "specreason": ("steps", "score"),
}
"""Pieces used by a method besides the opening."""


class Published(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Figure, or code with commit and lines."""
    pieces: Mapping[Piece, Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]
    """Hashes of the published pieces."""
    how: tuple[str, ...] = Field(min_length=1)
    """Lines that map parts of the source to keys of a prompt file."""


@cache
def published() -> Mapping[str, Published]:
    """Return the published wordings by paper; a paper that is missing here did not publish its wording."""
    text = (resources.files("harness.papers") / "prompts.toml").read_text(encoding="utf-8")
    return {paper: Published.model_validate(values) for paper, values in tomllib.loads(text).items()}


def piece_hashes(wording: Prompts) -> dict[Piece, str]:
    """Return the hash of every piece of a wording: 16 hex digits over its texts, independent of the file's layout.

    The hash of an opening covers the system prompt, the instruction for reasoning models (all papers use such models),
    and for multiple choice the format of the options.
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
    """Return the pieces that a method uses for a kind of problem and that are not worded as in the paper.

    Raises KeyError for a paper without published wording.
    """
    expected, found = published()[paper].pieces, piece_hashes(wording)
    opening: Piece = "opening.math" if kind == "math" else "opening.choice"
    used = (opening, *_BY_METHOD.get(method, ()))
    return [piece for piece in used if piece in expected and expected[piece] != found[piece]]


STEP_END = BUILT_IN.step_separator
"""Steps of a chain end at a blank line (SpecReason's code; not specified in the other papers)."""
THINK_END = CLOSE
SCORE_LABELS = tuple("0123456789")

THINK_BRIDGE = "\n" + THINK_END + "\n\n"
"""Closes a chain that the model ended without `</think>`."""


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
    """Return the hash of a wording (16 hex digits). Results with different wordings are not comparable.

    Wordings with the same texts have the same hash, independent of the file's layout.
    """
    at_default = {"reward": {"mark"}} if wording.reward.mark is None else None
    return hashlib.sha256(wording.model_dump_json(exclude=at_default).encode()).hexdigest()[:16]


def problem_text(problem: Problem, wording: Prompts = BUILT_IN) -> str:
    """Return the problem as shown to a model; a multiple-choice problem with its options."""
    return f"{problem.text}\n\n{_options_text(problem, wording)}" if problem.choices else problem.text


def opening(
    tokenizer: Tokenizer, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> tuple[list[int], str]:
    """Return ids and text of the prompt before a chain; it ends where the model's first step starts.

    With `rubric`, the prompt also explains the score, so each verdict's question can be short
    (`short_score_question`). Raises ValueError if the wording has a system prompt and the chat template does not
    support one.
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
    """Return the question for SpecReason's verdict on the chain's last step, answered by a digit (section 4.1)."""
    score = wording.score
    return _question(tokenizer, _followup(tokenizer, score.question, score.thought), score.question, score.reply)


@lru_cache(maxsize=8)
def short_score_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return the question for a score of the previous step, inside the target's own reply.

    The rubric in the target's prompt explains the score.
    """
    return _question(tokenizer, [], wording.separate_score.reply, wording.separate_score.reply)


@lru_cache(maxsize=8)
def reward_question(tokenizer: Tokenizer, wording: Prompts = BUILT_IN) -> Question:
    """Return a reward model's question about the previous step, with the good answer first.

    Raises ValueError if an answer is not one token.
    """
    reward = wording.reward
    ids = _followup(tokenizer, reward.question, reward.thought) if reward.question else []
    return _question(tokenizer, ids, reward.question, reward.reply, (reward.good, reward.bad))


def step_choice_question(tokenizer: Tokenizer, candidates: Sequence[str], wording: Prompts = BUILT_IN) -> Question:
    """Return the question for SpecCoT's verdict: choose one candidate, or the last label to reject all (equation 4).

    To keep options distinct, a candidate that closes the thought is marked, but only if another candidate has the same
    text: marks on all last steps would confuse judges that do not expect any. A wording with `step_choice.closing`
    marks every candidate that contains `</think>`. Raises ValueError for more than 25 candidates.
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
    """Return a candidate with `closing` in place of `</think>`; unchanged without `</think>` or without other text."""
    shown = text.replace(THINK_END, "").strip()
    return f"{shown}\n{closing}" if THINK_END in text and shown else text


def chain_choice_question(
    tokenizer: Tokenizer, problem: Problem, chains: Sequence[str], wording: Prompts = BUILT_IN, *, may_reject: bool
) -> Question:
    """Return the question for SCoT's verdict: choose a whole chain, or the last label if all are wrong (section 3.4).

    `may_reject`: whether the last label means a rejection. The question is a separate prompt and does not follow a
    chain. Raises ValueError for more than 26 labels, and if the wording has a system prompt and the chat template does
    not support one.
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
    """Return the question of whether two versions of a step mean the same thing, with the positive answer first.

    The question is a separate prompt and does not follow a chain. Raises ValueError if an answer is not one token,
    and if the wording has a system prompt and the chat template does not support one.
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
    """Return `n` single-token labels: the digits from 1, or letters if `n` is above 9."""
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
    """Return the chat template's text before the system prompt, between it and the question, and after the question.

    Raises ValueError if the chat template changes the system prompt.
    """
    whole = tokenizer.open_reply(_PLACEHOLDER, _SYSTEM if system else "")
    if system and tokenizer.open_reply(_PLACEHOLDER, system) not in {
        whole.replace(_SYSTEM, text) for text in (system, system.strip())
    }:
        raise ValueError("the chat template does not insert the system prompt (key `system` of --prompts) unchanged")
    before, _, after = whole.partition(_PLACEHOLDER)
    begun, _, between = before.partition(_SYSTEM) if system else ("", "", before)
    return begun, between, after


@lru_cache(maxsize=8)
def _followup_frame(tokenizer: Tokenizer) -> tuple[str, str]:
    before, _, after = tokenizer.ask_again(_PLACEHOLDER).partition(_PLACEHOLDER)
    return before, after


@lru_cache(maxsize=16)
def _trims(tokenizer: Tokenizer) -> bool:
    return tokenizer.open_reply(f" \n{_PLACEHOLDER}\n ") == tokenizer.open_reply(_PLACEHOLDER)


def _opened(tokenizer: Tokenizer, question: str, system: str) -> tuple[list[int], str]:
    before, between, after = _opening_frame(tokenizer, system)
    question = question.strip() if _trims(tokenizer) else question
    ids = [*tokenizer.encode_template(before), *tokenizer.encode(system)] if system else []
    ids += tokenizer.encode_template(between) + tokenizer.encode(question) + tokenizer.encode_template(after)
    return ids, before + system + between + question + after


def _opened_plainly(tokenizer: Tokenizer, question: str, system: str) -> list[int]:
    """Return the ids of a separate prompt, up to the start of a reply without a thought."""
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
    """Return the ids of a question that follows a reply, up to the start of the next reply.

    `thought`: start of a reasoning model's reply; for EMPTY_THOUGHT, the chat template's own empty thought is used.
    """
    before, after = _followup_frame(tokenizer)
    if tokenizer.thinks and thought != EMPTY_THOUGHT:
        after = after.removesuffix(tokenizer.thought.empty) + thought
    return tokenizer.encode_template(before) + tokenizer.encode(question) + tokenizer.encode_template(after)
