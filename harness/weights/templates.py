"""How a model is talked to: the tags of its thoughts, what was asked for it, and what its chat template sends.

Everywhere outside of a tokenizer a thought stands between `<think>` and `</think>`: in chains, prompts as recorded,
grading and the warehouse. A tokenizer of another family translates both ways, so that a draft and a target with
different tags share one chain. The tags are those of the models' own chat templates and of vLLM's reasoning parsers.

What a template sends is found out by rendering it: its source does not tell what it means. The generation prompt is
what a rendering with `add_generation_prompt` has more than one without. Behind its role header it holds nothing, one
opened thought or one closed one, and the question stands once before it. Anything else is refused: a prompt that is
built from it would not be the one that the template means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

OPEN, CLOSE = "<think>", "</think>"
OPENING = "<think>\n"
"""Opens a reasoning model's reply inside its thought."""
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
"""Opens a reasoning model's reply for plain text."""
NO_TAGS = "none"
_LONGEST = 200


@dataclass(frozen=True)
class ThinkingTags:
    open: str
    close: str
    after_open: str = "\n"
    """What stands between the opening tag and the thought."""
    empty: str | None = None
    """A thought without text, where it is not both tags with blank lines."""

    @property
    def thought(self) -> Thought:
        """How prompts open and close a thought where a chat template has no words of its own for it."""
        opening = OPEN + self.after_open
        return Thought(opening, self.canonical(self.empty) if self.empty else f"{opening}\n{CLOSE}\n\n")

    def native(self, text: str) -> str:
        """Return text with `<think>` and `</think>` in the words of the family."""
        return text.replace(CLOSE, self.close).replace(OPEN, self.open)

    def canonical(self, text: str) -> str:
        """Return text of the family with its tags as `<think>` and `</think>`."""
        return text.replace(self.close, CLOSE).replace(self.open, OPEN)


@dataclass(frozen=True)
class Thought:
    """How prompts open and close a model's thoughts, in the words of its chat template where that has any."""

    opening: str = OPENING
    """Opens a reply inside its thought."""
    empty: str = EMPTY_THOUGHT
    """Opens a reply behind its thought, for plain text."""

    @property
    def closing(self) -> str:
        """Closes a thought that `opening` began."""
        if self.empty.startswith(self.opening):
            return self.empty.removeprefix(self.opening)
        _, close, after = self.empty.partition(CLOSE)
        return (close or CLOSE) + after


CANONICAL = ThinkingTags(OPEN, CLOSE)
KNOWN_TAGS: tuple[ThinkingTags, ...] = (
    CANONICAL,
    ThinkingTags("[THINK]", "[/THINK]", after_open=""),  # Magistral
    ThinkingTags(  # gpt-oss
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        after_open="",
        empty="<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    ThinkingTags("<thought>", "</thought>"),  # EXAONE Deep
    ThinkingTags("◁think▷", "◁/think▷", after_open=""),  # Kimi-VL Thinking
    ThinkingTags("<seed:think>", "</seed:think>"),  # Seed-OSS
    ThinkingTags("<|START_THINKING|>", "<|END_THINKING|>", after_open=""),  # Command A Reasoning
)
"""The tags of each family of models."""


def parsed_tags(text: str) -> ThinkingTags | None:
    """Return the tags of `OPEN,CLOSE`; None for `none`, a plain model. Raises ValueError."""
    if text == NO_TAGS:
        return None
    opening, comma, closing = text.partition(",")
    if not comma or not opening.strip() or not closing.strip() or opening == closing or "," in closing:
        shown = ", ".join(f"{tags.open},{tags.close}" for tags in KNOWN_TAGS)
        raise ValueError(f"expected OPEN,CLOSE or none, for example {shown}")
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"expected printable tags of at most {_LONGEST} characters together")
    return next(
        (tags for tags in KNOWN_TAGS if (tags.open, tags.close) == (opening, closing)), ThinkingTags(opening, closing)
    )


_SET_HERE = ("messages", "add_generation_prompt", "tools", "documents", "bos_token", "eos_token", "raise_exception",
             "strftime_now", "range", "namespace")  # fmt: skip
"""Names in a template that are not for a user to set."""
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""Marks of the assistant's text, a statement that transformers adds to Jinja."""


@dataclass(frozen=True)
class Conventions:
    """What was asked for a model."""

    variables: tuple[tuple[str, str], ...] = ()
    """Variables of the chat template by name, as JSON."""
    thinking_tags: str | None = None
    """`OPEN,CLOSE`, or `none` for a plain model; None: what the chat template has."""
    date: str = "2024-07-26"
    """The day that chat templates take for today, as in ISO 8601: a run keeps that of its first launch."""

    @classmethod
    def of(cls, variables: Mapping[str, Any] | None, thinking_tags: str | None, date: str | None = None) -> Conventions:
        """Return the conventions for variables by name."""
        pairs = sorted((variables or {}).items())
        asked = cls(tuple((name, json.dumps(value, sort_keys=True)) for name, value in pairs), thinking_tags)
        return asked if date is None else replace(asked, date=date)

    @property
    def values(self) -> dict[str, Any]:
        """The variables' values by name."""
        return {name: json.loads(value) for name, value in self.variables}


NO_CONVENTIONS = Conventions()


def variables_of(template: str) -> set[str]:
    """Return the names of the variables that a chat template reads and a user may set. Raises ValueError."""
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    try:
        tree = environment.parse(_GENERATION.sub("", template))
    except TemplateError as error:
        raise ValueError(f"its chat template cannot be read: {error}") from error
    return meta.find_undeclared_variables(tree) - set(_SET_HERE)


Messages = list[dict[str, str]]
Render = Callable[[Messages, bool, Mapping[str, object]], str]
"""(messages, add_generation_prompt, variables) -> text. Raises BadTemplate."""

_LIKE_PROBLEMS = (
    "Is 1 < 2 & \"3\" > '2'?\n\n\n  Let $\\frac{x}{2}$ be {{ x }} {% if %} [\u00e9]\u00a0\u2014 50\\% of %s:\r\n"
    "\t1. #*_`~|@^ "
)
_QUESTIONS = (
    "FIRST-QUESTION-GOES-HERE",
    f"{_LIKE_PROBLEMS}{'long ' * 4000}\n\nA SECOND-QUESTION, longer than the first.",
)
"""The second has what problems have: a template that changes some of it would send another problem."""
_REPLY = "PREVIOUS-REPLY-ENDS-HERE"
_TAIL = 80
"""Characters of a prompt's end that a message shows."""
_SWITCHES = {"enable_thinking": False, "thinking": False, "reasoning": False, "thinking_budget": 0}
"""Variables of chat templates that let a model think or not, with the value that means not."""


NO_SYSTEM = "its chat template has no system role, so the prompts must not have `system`"


class BadTemplate(ValueError):
    """A chat template whose prompts would not be what it means; the message is one line."""


@dataclass(frozen=True)
class Reply:
    """How a chat template opens a reply."""

    header: str
    """What stands between the question's turn and a thought, or the reply itself where there is none."""
    tags: ThinkingTags
    thought: Thought | None
    """How thoughts are opened and closed, with `<think>` and `</think>`; None: the model does not think."""


@dataclass(frozen=True)
class _Mark:
    """A generation prompt in two parts: a role header, and how it opens or closes a thought."""

    header: str
    text: str = ""
    tags: ThinkingTags | None = None
    """None: it neither opens nor closes a thought."""
    is_closed: bool = False


@dataclass(frozen=True)
class Frame:
    """A dialogue around its last question."""

    before: str
    after: str
    """Up to the generation prompt."""
    generation: str
    """The generation prompt."""


class ChatTemplate:
    """The chat template of a model under the variables that were asked for."""

    def __init__(self, render: Render, source: str, asked: Conventions) -> None:
        """Nothing is rendered yet. Raises ValueError where the template does not read a variable that was asked for."""
        self._render_with, self._asked, self.readable = render, asked, variables_of(source)
        if unread := sorted(set(asked.values) - self.readable):
            valid = f"it reads {', '.join(sorted(self.readable))}" if self.readable else "it reads none"
            raise ValueError(f"its chat template does not read {', '.join(unread)}; {valid}")
        self._requested = None if asked.thinking_tags is None else parsed_tags(asked.thinking_tags)
        self._is_plain_by_request = asked.thinking_tags == NO_TAGS
        self._families = [*filter(None, [self._requested]), *KNOWN_TAGS]

    @cached_property
    def reply(self) -> Reply:
        """How a reply is opened. Raises BadTemplate where that is not as the template means it."""
        frame = self._opening
        mark = _marks(frame.generation, self._families)
        if mark is None:
            raise BadTemplate(
                "its generation prompt holds more than a role header and one opened or closed thought: "
                f"{_end(frame.generation)}"
            )
        rest = self._rest_of_header(frame, mark)
        closed = self._closed_by_switch(mark)
        channel = next((tags for tags in KNOWN_TAGS if rest and tags.close.endswith(mark.header + rest)), None)
        if rest and mark.tags is None and channel is None and self._asked.thinking_tags is None:
            raise BadTemplate(
                f"its generation prompt ends in {_end(frame.generation)}, and replies begin with {_end(rest)} behind "
                "that: channels of this kind are not supported; --draft.thinking-tags or --target.thinking-tags "
                "OPEN,CLOSE names what is around the model's thoughts, none makes it a plain model"
            )
        tags = self._requested or mark.tags or (closed.tags if closed else None) or channel
        if not self._thinks(mark, closed, channel):
            if mark.is_closed:
                return Reply(mark.header + mark.text, mark.tags or CANONICAL, None)
            return Reply(mark.header + rest, tags or CANONICAL, None)
        own = mark if mark.is_closed else closed
        if own is None and (reply := self._before_reply(frame)) is not None and reply.is_closed:
            own = _behind(mark.header, reply)  # the closed thought that the template writes before a plain reply
        return _thinking_reply(mark, own, rest, tags or CANONICAL)

    def opening(self, question: str, system: str = "") -> str:
        """Return a dialogue's beginning up to the generation prompt.

        Raises BadTemplate, also where the template has no place for a system prompt or changes with it.
        """
        frame = self._opening
        if system:
            try:
                frame = self._framed(_said("system", system))
            except BadTemplate as error:
                raise BadTemplate(NO_SYSTEM) from error
            if system.strip() not in frame.before:
                raise BadTemplate(NO_SYSTEM)
            if frame.generation != self._opening.generation:
                other = f"another one behind this system prompt: {_end(frame.generation)}"
                raise BadTemplate(f"its generation prompt is {other}")
        return frame.before + (question.strip() if self._trims else question) + frame.after

    def following(self, question: str) -> str:
        """Return what ends a reply and asks the next question, up to the generation prompt. Raises BadTemplate."""
        frame = self._framed(_said("user", "Hello.") + _said("assistant", _REPLY))
        if frame.before.count(_REPLY) != 1:
            raise BadTemplate("its chat template drops the assistant's earlier reply, so no question can follow it")
        if frame.generation != self._opening.generation:
            raise BadTemplate(f"its generation prompt is another one behind a reply: {_end(frame.generation)}")
        return frame.before.partition(_REPLY)[2] + question + frame.after

    def depends_on(self, one: Mapping[str, object], other: Mapping[str, object]) -> bool:
        """Return whether a prompt is another one under other variables. Raises BadTemplate."""
        return self._render(_said("user", _QUESTIONS[0]), one) != self._render(_said("user", _QUESTIONS[0]), other)

    @cached_property
    def _trims(self) -> bool:
        """Whether white space around a question is left out, as the templates of Llama and Gemma do."""
        return self._render(_said("user", f" \n{_QUESTIONS[0]}\n ")) == self._render(_said("user", _QUESTIONS[0]))

    @cached_property
    def _opening(self) -> Frame:
        return self._framed([])

    def _framed(self, before: Messages) -> Frame:
        """Return what stands around a question. Raises BadTemplate where that is not all that the template does."""
        first, second = _QUESTIONS
        bare = self._render(before + _said("user", first), is_open=False)
        whole, other = (self._render(before + _said("user", question)) for question in _QUESTIONS)
        if not whole.startswith(bare):
            raise BadTemplate(
                "its generation prompt does not stand behind the dialogue: with it the prompt ends in "
                f"{_end(whole)}, without it in {_end(bare)}"
            )
        if (count := whole.count(first)) != 1 or first not in bare:
            raise BadTemplate(
                f"its chat template sends the question {count} times, and not once: the prompt ends in {_end(whole)}"
            )
        if whole.replace(first, second) != other:
            raise BadTemplate(
                "its chat template changes more than the question from one question to another: the prompt ends in "
                f"{_end(whole)}, and in {_end(other)}"
            )
        until, _, after = bare.partition(first)
        return Frame(until, after, whole[len(bare) :])

    def _rest_of_header(self, frame: Frame, mark: _Mark) -> str:
        """Return what the template writes between its role header and a reply that the generation prompt leaves out.

        Raises BadTemplate where the generation prompt is no beginning of that, or none is needed and missing.
        """
        before = self._before_reply(frame)
        header, own = mark.header.strip(), before.header.strip() if before else None
        if not header and (own or own is None or not frame.after.strip()):
            raise BadTemplate(f"its chat template opens no reply: the prompt ends in {_end(frame.after)}")
        if own is None:
            return ""
        if not own.startswith(header):
            raise BadTemplate(
                f"its generation prompt is not the beginning of a reply: it ends in {_end(mark.header)}, and replies "
                f"begin with {_end(own)}"
            )
        return own[len(header) :].strip()

    def _before_reply(self, frame: Frame) -> _Mark | None:
        """Return what stands between a question and a reply without a thought; None where that cannot be told."""
        messages = _said("user", _QUESTIONS[0]) + _said("assistant", _REPLY)
        try:
            text = self._render(messages, is_open=False)
        except BadTemplate:
            return None
        begun = frame.before + _QUESTIONS[0] + frame.after
        if not text.startswith(begun) or text.count(_REPLY) != 1:
            return None
        return _marks(text[len(begun) :].partition(_REPLY)[0], self._families)

    def _closed_by_switch(self, mark: _Mark) -> _Mark | None:
        """Return the generation prompt that closes the thought, where a thinking variable of the template does so."""
        if mark.is_closed:
            return None
        for name in (name for name in _SWITCHES if name in self.readable):
            try:
                off = self._render(_said("user", _QUESTIONS[0]), {name: _SWITCHES[name]})
                bare = self._render(_said("user", _QUESTIONS[0]), {name: _SWITCHES[name]}, is_open=False)
            except BadTemplate:
                continue
            found = _marks(off.removeprefix(bare), self._families)
            if found is not None and found.is_closed:
                return _behind(mark.header, found)
        return None

    def _thinks(self, mark: _Mark, closed: _Mark | None, channel: ThinkingTags | None) -> bool:
        if self._is_plain_by_request:
            return False
        if mark.is_closed:
            return self._requested is not None and not self._asked.variables
        if mark.tags is not None or channel is not None or self._requested is not None:
            return True
        switched = {name: value for name, value in self._asked.values.items() if name in _SWITCHES}
        return any(value != _SWITCHES[name] for name, value in switched.items()) if switched else closed is not None

    def _render(
        self, messages: Messages, variables: Mapping[str, object] | None = None, *, is_open: bool = True
    ) -> str:
        return self._render_with(messages, is_open, {**self._asked.values, **(variables or {})})


def _thinking_reply(mark: _Mark, closed: _Mark | None, rest: str, tags: ThinkingTags) -> Reply:
    """Return how a reasoning model's reply is opened: in the template's own words, where it has any."""
    is_own = mark.tags is tags and not mark.is_closed
    if is_own and tags is not CANONICAL:
        tags = replace(tags, after_open=mark.text.removeprefix(tags.open))
    opening = tags.canonical(mark.text) if is_own else tags.thought.opening
    empty = tags.thought.empty
    if closed is not None and closed.tags and (closed.tags.open, closed.tags.close) == (tags.open, tags.close):
        text = closed.text.lstrip()
        between = closed.text.removesuffix(text)
        opening, empty = opening if is_own else between + opening, between + tags.canonical(text)
    elif rest:
        empty = rest
    return Reply(mark.header, tags, Thought(opening, empty))


def _marks(generation: str, families: Sequence[ThinkingTags]) -> _Mark | None:
    """Return a generation prompt in its parts; None where tags stand otherwise than around one thought at its end."""
    tags = next((tags for tags in families if tags.open in generation or tags.close in generation), None)
    if tags is None:
        return _Mark(generation)
    start = min(place for tag in (tags.open, tags.close) if (place := generation.find(tag)) >= 0)
    header, text = generation[:start], generation[start:]
    thought, close, after = text.removeprefix(tags.open).partition(tags.close)
    if after.strip() or tags.open in thought or (not close and thought.strip()):
        return None
    return _Mark(header, text, tags, is_closed=bool(close))


def _behind(header: str, mark: _Mark) -> _Mark:
    """Return a mark with what stands before it behind a shorter header: `<|assistant|>` and a line break."""
    if not mark.header.startswith(header) or mark.header[len(header) :].strip():
        return mark
    return replace(mark, header=header, text=mark.header[len(header) :] + mark.text)


def _said(role: str, content: str) -> Messages:
    return [{"role": role, "content": content}]


def _end(text: str) -> str:
    return repr(text if len(text) <= _TAIL else f"…{text[-_TAIL:]}")
