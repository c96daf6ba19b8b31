"""Chat templates: thinking tags, user overrides, and the prompts that a template produces.

Outside of tokenizers, thinking is always enclosed in `<think>` and `</think>`: in chains, recorded prompts, grading and
the warehouse. Tokenizers of other model families translate both ways, so a draft and a target with different tags can
share a chain. The tags come from the models' chat templates and vLLM's reasoning parsers.

A template is analyzed by rendering it, because its source does not show its effect. The generation prompt is the
difference between renderings with and without `add_generation_prompt`. After the role header, it must contain either
nothing or a single thinking block, opened or closed. The question must occur exactly once before it. Other templates
are rejected, because prompts built from their parts could differ from the template's own.
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
"""Start of a reasoning model's reply, inside the thinking block."""
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
"""Start of a reasoning model's reply without thinking."""
NO_TAGS = "none"
_LONGEST = 200


@dataclass(frozen=True)
class ThinkingTags:
    open: str
    close: str
    after_open: str = "\n"
    """Text between the opening tag and the thinking."""
    empty: str | None = None
    """An empty thinking block. None: both tags with blank lines."""

    @property
    def thought(self) -> Thought:
        """Default opening and closing of a thinking block, if the chat template does not define one."""
        opening = OPEN + self.after_open
        return Thought(opening, self.canonical(self.empty) if self.empty else f"{opening}\n{CLOSE}\n\n")

    def native(self, text: str) -> str:
        """Replace `<think>` and `</think>` with the model family's tags."""
        return text.replace(CLOSE, self.close).replace(OPEN, self.open)

    def canonical(self, text: str) -> str:
        """Replace the model family's tags with `<think>` and `</think>`."""
        return text.replace(self.close, CLOSE).replace(self.open, OPEN)


@dataclass(frozen=True)
class Thought:
    """Text in prompts that opens and closes a thinking block; from the chat template if it has any."""

    opening: str = OPENING
    """Starts a reply inside the thinking block."""
    empty: str = EMPTY_THOUGHT
    """Starts a reply after an empty thinking block."""

    @property
    def closing(self) -> str:
        """Closes a thinking block started by `opening`."""
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
"""The tags of each known model family."""


def parsed_tags(text: str) -> ThinkingTags | None:
    """Parse `OPEN,CLOSE`; None for `none`, i.e. not a reasoning model. Raises ValueError."""
    if text == NO_TAGS:
        return None
    opening, comma, closing = text.partition(",")
    if not comma or not opening.strip() or not closing.strip() or opening == closing or "," in closing:
        shown = ", ".join(f"{tags.open},{tags.close}" for tags in KNOWN_TAGS)
        raise ValueError(f"expected OPEN,CLOSE or none, for example {shown}")
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"expected printable tags with a total length of at most {_LONGEST} characters")
    return next(
        (tags for tags in KNOWN_TAGS if (tags.open, tags.close) == (opening, closing)), ThinkingTags(opening, closing)
    )


_SET_HERE = ("messages", "add_generation_prompt", "tools", "documents", "bos_token", "eos_token", "raise_exception",
             "strftime_now", "range", "namespace")  # fmt: skip
"""Template variables that users cannot set."""
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""Jinja statement added by transformers to mark the assistant's text."""


@dataclass(frozen=True)
class Conventions:
    """User settings for a model's prompts."""

    variables: tuple[tuple[str, str], ...] = ()
    """Chat template variables: names and JSON values."""
    thinking_tags: str | None = None
    """`OPEN,CLOSE`, or `none` for a model without thinking; None: detected from the chat template."""
    date: str = "2024-07-26"
    """Current date for chat templates, in ISO 8601; fixed at a run's first launch."""

    @classmethod
    def of(cls, variables: Mapping[str, Any] | None, thinking_tags: str | None, date: str | None = None) -> Conventions:
        """Build from variables by name."""
        pairs = sorted((variables or {}).items())
        asked = cls(tuple((name, json.dumps(value, sort_keys=True)) for name, value in pairs), thinking_tags)
        return asked if date is None else replace(asked, date=date)

    @property
    def values(self) -> dict[str, Any]:
        """Values of the variables, by name."""
        return {name: json.loads(value) for name, value in self.variables}


NO_CONVENTIONS = Conventions()


def variables_of(template: str) -> set[str]:
    """Return the names of a chat template's user-settable variables. Raises ValueError."""
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    try:
        tree = environment.parse(_GENERATION.sub("", template))
    except TemplateError as error:
        raise ValueError(f"invalid chat template: {error}") from error
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
"""The second resembles a problem, to detect templates that alter the text of problems."""
_REPLY = "PREVIOUS-REPLY-ENDS-HERE"
_TAIL = 80
"""Number of characters of a prompt's end shown in messages."""
_SWITCHES = {"enable_thinking": False, "thinking": False, "reasoning": False, "thinking_budget": 0}
"""Chat template variables that switch thinking on or off, with the value for off."""


NO_SYSTEM = "the chat template has no system role, so the prompts must not define `system`"


class BadTemplate(ValueError):
    """An unsupported chat template; the message is one line."""


@dataclass(frozen=True)
class Reply:
    """Start of a reply in a chat template."""

    header: str
    """Text from the user turn to the thinking block, or to the reply if there is no thinking block."""
    tags: ThinkingTags
    thought: Thought | None
    """Opening and closing of the thinking block, with `<think>` and `</think>`; None: not a reasoning model."""


@dataclass(frozen=True)
class _Mark:
    """A generation prompt, split into the role header and the thinking block."""

    header: str
    text: str = ""
    tags: ThinkingTags | None = None
    """None: no thinking block is opened or closed."""
    is_closed: bool = False


@dataclass(frozen=True)
class Frame:
    """A dialogue, split at its last question."""

    before: str
    after: str
    """Text after the question, up to the generation prompt."""
    generation: str


class ChatTemplate:
    """A model's chat template with the user's variables."""

    def __init__(self, render: Render, source: str, asked: Conventions) -> None:
        """Prepare without rendering. Raises ValueError if the template does not use one of the variables."""
        self._render_with, self._asked, self.readable = render, asked, variables_of(source)
        if unread := sorted(set(asked.values) - self.readable):
            valid = ", ".join(sorted(self.readable)) or "none"
            raise ValueError(f"the chat template does not use {', '.join(unread)}; valid: {valid}")
        self._requested = None if asked.thinking_tags is None else parsed_tags(asked.thinking_tags)
        self._is_plain_by_request = asked.thinking_tags == NO_TAGS
        self._families = [*filter(None, [self._requested]), *KNOWN_TAGS]

    @cached_property
    def reply(self) -> Reply:
        """The start of a reply. Raises BadTemplate if it cannot be determined."""
        frame = self._opening
        mark = _marks(frame.generation, self._families)
        if mark is None:
            raise BadTemplate(
                "unsupported generation prompt: expected a role header and at most one thinking block, open or closed, "
                f"found {_end(frame.generation)}"
            )
        rest = self._rest_of_header(frame, mark)
        closed = self._closed_by_switch(mark)
        channel = next((tags for tags in KNOWN_TAGS if rest and tags.close.endswith(mark.header + rest)), None)
        if rest and mark.tags is None and channel is None and self._asked.thinking_tags is None:
            raise BadTemplate(
                f"after the generation prompt, which ends with {_end(frame.generation)}, the chat template adds "
                f"{_end(rest)} before a reply: unknown thinking tags; set them with --draft.thinking-tags or "
                "--target.thinking-tags OPEN,CLOSE, or none if the model is not a reasoning model"
            )
        tags = self._requested or mark.tags or (closed.tags if closed else None) or channel
        if not self._thinks(mark, closed, channel):
            if mark.is_closed:
                return Reply(mark.header + mark.text, mark.tags or CANONICAL, None)
            return Reply(mark.header + rest, tags or CANONICAL, None)
        own = mark if mark.is_closed else closed
        if own is None and (reply := self._before_reply(frame)) is not None and reply.is_closed:
            own = _behind(mark.header, reply)  # the template closes the thinking block before a reply
        return _thinking_reply(mark, own, rest, tags or CANONICAL)

    def opening(self, question: str, system: str = "") -> str:
        """Return the start of a dialogue, up to the generation prompt.

        Raises BadTemplate, for example if the template ignores the system prompt, or if the system prompt changes the
        generation prompt.
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
                raise BadTemplate(f"this system prompt changes the generation prompt, to {_end(frame.generation)}")
        return frame.before + (question.strip() if self._trims else question) + frame.after

    def following(self, question: str) -> str:
        """Return the text from the end of a reply to the next generation prompt. Raises BadTemplate."""
        frame = self._framed(_said("user", "Hello.") + _said("assistant", _REPLY))
        if frame.before.count(_REPLY) != 1:
            raise BadTemplate("the chat template drops earlier replies, so a follow-up question is not possible")
        if frame.generation != self._opening.generation:
            raise BadTemplate(f"an earlier reply changes the generation prompt, to {_end(frame.generation)}")
        return frame.before.partition(_REPLY)[2] + question + frame.after

    def depends_on(self, one: Mapping[str, object], other: Mapping[str, object]) -> bool:
        """Return whether two sets of variables give different prompts. Raises BadTemplate."""
        return self._render(_said("user", _QUESTIONS[0]), one) != self._render(_said("user", _QUESTIONS[0]), other)

    @cached_property
    def _trims(self) -> bool:
        """Whether the template strips whitespace around a question, as the templates of Llama and Gemma do."""
        return self._render(_said("user", f" \n{_QUESTIONS[0]}\n ")) == self._render(_said("user", _QUESTIONS[0]))

    @cached_property
    def _opening(self) -> Frame:
        return self._framed([])

    def _framed(self, before: Messages) -> Frame:
        """Return the text around a question that follows `before`. Raises BadTemplate if the question is altered."""
        first, second = _QUESTIONS
        bare = self._render(before + _said("user", first), is_open=False)
        whole, other = (self._render(before + _said("user", question)) for question in _QUESTIONS)
        if not whole.startswith(bare):
            raise BadTemplate(
                "the chat template does not append the generation prompt to the dialogue: with it, the prompt ends "
                f"with {_end(whole)}; without it, with {_end(bare)}"
            )
        if (count := whole.count(first)) != 1 or first not in bare:
            raise BadTemplate(
                "the chat template must render the question exactly once, with and without the generation prompt, not "
                f"{count} and {bare.count(first)} times; with it, the prompt ends in {_end(whole)}"
            )
        if whole.replace(first, second) != other:
            raise BadTemplate(
                "the text that the chat template adds around the question depends on the question: prompts end in "
                f"{_end(whole)} and in {_end(other)}"
            )
        until, _, after = bare.partition(first)
        return Frame(until, after, whole[len(bare) :])

    def _rest_of_header(self, frame: Frame, mark: _Mark) -> str:
        """Return the text that the template puts between role header and reply, but not into the generation prompt.

        Raises BadTemplate if the generation prompt does not match this text, or is required but missing.
        """
        before = self._before_reply(frame)
        header, own = mark.header.strip(), before.header.strip() if before else None
        if not header and (own or own is None or not frame.after.strip()):
            raise BadTemplate(f"the chat template adds no reply header: the prompt ends in {_end(frame.after)}")
        if own is None:
            return ""
        if not own.startswith(header):
            raise BadTemplate(
                f"the generation prompt does not start a reply: it ends in {_end(mark.header)}, but replies start "
                f"with {_end(own)}"
            )
        return own[len(header) :].strip()

    def _before_reply(self, frame: Frame) -> _Mark | None:
        """Return the text between a question and a reply without thinking; None if unknown."""
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
        """Return the generation prompt with thinking switched off by a template variable; None if not possible."""
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
    """Return the start of a reasoning model's reply, with the template's own thinking block if it has one."""
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
    """Split a generation prompt; None if it has tags other than those of one opened or closed block at its end."""
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
    """If a mark's header is `header` followed by whitespace, move the whitespace to the mark's text."""
    if not mark.header.startswith(header) or mark.header[len(header) :].strip():
        return mark
    return replace(mark, header=header, text=mark.header[len(header) :] + mark.text)


def _said(role: str, content: str) -> Messages:
    return [{"role": role, "content": content}]


def _end(text: str) -> str:
    return repr(text if len(text) <= _TAIL else f"…{text[-_TAIL:]}")
