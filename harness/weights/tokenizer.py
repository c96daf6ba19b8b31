"""A model's tokenizer and chat template, as the `Tokenizer` protocol.

Text from models and benchmarks is untrusted: control tokens in it are encoded as plain text, so a problem cannot end
the user's turn. Exceptions are `<think>` and `</think>`, which belong to chains; they are translated here for models
with other tags (harness.weights.templates).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any

from harness.engine import Tokenizer
from harness.weights import templates
from harness.weights.templates import (
    NO_SYSTEM,
    BadTemplate,
    ChatTemplate,
    Conventions,
    Messages,
    Reply,
    ThinkingTags,
    Thought,
)

THINK_TAGS = (templates.OPEN, templates.CLOSE)
_CONTROL = re.compile(r"<.+>|\[.+\]", re.DOTALL)
"""Added tokens of this form are control tokens even if not marked as special (`<｜User｜>`)."""
_FAILURES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions that a chat template, which is sandboxed code, can raise in addition to Jinja's."""
_ANOTHER_DAY = date(2001, 2, 3)


class HFTokenizer:
    """The tokenizer of a model folder or a cached Hub id."""

    def __init__(self, path: str, revision: str | None = None, asked: Conventions = templates.NO_CONVENTIONS) -> None:
        """Load the tokenizer.

        Raises ValueError if the tokenizer is not a fast one, or if a variable is set that the chat template does not
        use. An unsupported chat template raises BadTemplate later, when a prompt is requested.
        """
        from transformers import AutoTokenizer

        # By default, transformers asks on a terminal whether to run the model's code.
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
        self._backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if self._backend is None:
            raise ValueError(f"{path}: a fast tokenizer (tokenizer.json) is required")
        self._plain: Any = copy.deepcopy(self._backend)
        self._plain.encode_special_tokens = True
        self._asked = asked
        template = self._tokenizer.chat_template
        self.template: str | None = (template.get("default") if isinstance(template, dict) else template) or None
        """Source of the chat template; None: prompts are a plain dialogue."""
        self._today = date.fromisoformat(asked.date)
        if self.template is None and asked.variables:
            raise ValueError("the tokenizer has no chat template, so template variables cannot be set")
        self._chat = ChatTemplate(self._render, self.template, asked) if self.template is not None else None
        self._reply: Reply | BadTemplate = self._replies(asked)
        self._thinking = templates.CANONICAL if isinstance(self._reply, BadTemplate) else self._reply.tags
        self._think_ids = self._ids_of_tags()
        self._tags = _alternatives(list(self._think_ids))
        self._controls = _alternatives(self._unmarked_controls())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all tokens and ids."""
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        digest = hashlib.sha256()
        for token, index in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
            digest.update(f"{index}\0{token}\0".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @property
    def num_tokens(self) -> int:
        """One more than the largest token id."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=0)

    @property
    def reply(self) -> Reply:
        """The start of a reply. Raises BadTemplate."""
        if isinstance(self._reply, BadTemplate):
            raise self._reply
        return self._reply

    @property
    def thinks(self) -> bool:
        """True for a reasoning model, by its generation prompt or a thinking variable (harness.weights.templates).

        Without a chat template, the vocabulary decides. Raises BadTemplate.
        """
        return self.reply.thought is not None

    @property
    def unopened_tags(self) -> tuple[str, str] | None:
        """Thinking tags in the vocabulary that neither the prompt nor the user mentions; None if there are none.

        Some models think although their chat template does not show it. Raises BadTemplate.
        """
        asked, tags = self._asked, self._tags_of_vocabulary()
        if self._chat is None or self.thinks or tags is None or asked.variables or asked.thinking_tags:
            return None
        return None if tags.close in self.reply.header else (tags.open, tags.close)

    @property
    def thought(self) -> Thought:
        """The texts that open and close a thought in prompts. Raises BadTemplate."""
        return self.reply.thought or Thought()

    @property
    def has_chat_template(self) -> bool:
        """False if prompts are a plain dialogue, because the tokenizer has no chat template."""
        return self._chat is not None

    @property
    def prompt_date(self) -> str | None:
        """The current date contained in prompts, or None. Raises BadTemplate."""
        if self._chat is None or not self._chat.depends_on({}, {"strftime_now": _ANOTHER_DAY.strftime}):
            return None
        return self._today.isoformat()

    @property
    def tags(self) -> tuple[str, str]:
        """The model's thinking tags, such as `<think>` and `</think>`."""
        return self._thinking.open, self._thinking.close

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-sequence id, if defined."""
        token_id: int | None = self._tokenizer.eos_token_id
        return token_id

    @property
    def opening(self) -> list[int]:
        return self.encode_template(self._bos())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._tags.split(text) if self._tags else [text]:
            if piece in self._think_ids:
                ids += self._think_ids[piece]
            else:
                for part in self._without_controls(piece):
                    ids += self._plain.encode(part, add_special_tokens=False).ids
        return ids

    def encode_template(self, text: str) -> list[int]:
        return list(self._backend.encode(self.native(text), add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self._thinking.canonical(str(self._backend.decode(list(ids), skip_special_tokens=False)))

    def native(self, text: str) -> str:
        """Return text with the model's own thinking tags."""
        return self._thinking.native(text)

    def open_reply(self, question: str, system: str = "") -> str:
        """Return the chat template's text, or, without one, a plain dialogue after the beginning-of-sequence token."""
        reply = self.reply
        if self._chat is not None:
            text = self._chat.opening(question, system)
        elif system:
            raise BadTemplate(NO_SYSTEM)
        else:
            text = f"{self._bos()}User: {question}\n\n"
        return self._thinking.canonical(text + reply.header) + (reply.thought.opening if reply.thought else "")

    def ask_again(self, question: str) -> str:
        reply = self.reply
        text = f"\n\nUser: {question}\n\n" if self._chat is None else self._chat.following(question)
        return self._thinking.canonical(text + reply.header) + (reply.thought.empty if reply.thought else "")

    def _replies(self, asked: Conventions) -> Reply | BadTemplate:
        if self._chat is not None:
            try:
                return self._chat.reply
            except BadTemplate as error:
                return error
        own = asked.thinking_tags
        chosen = self._tags_of_vocabulary() if own is None else templates.parsed_tags(own)
        return Reply("Assistant: ", chosen or templates.CANONICAL, chosen.thought if chosen else None)

    def _tags_of_vocabulary(self) -> ThinkingTags | None:
        ids = self._backend.token_to_id
        return next((tags for tags in templates.KNOWN_TAGS if None not in (ids(tags.open), ids(tags.close))), None)

    def _ids_of_tags(self) -> dict[str, list[int]]:
        """Return the ids of `<think>` and `</think>`, without tags that are plain text for this model."""
        if self._thinking is templates.CANONICAL:
            ids = {tag: self._backend.token_to_id(tag) for tag in THINK_TAGS}
            return {tag: [i] for tag, i in ids.items() if i is not None}
        return {
            tag: list(self._backend.encode(own, add_special_tokens=False).ids)
            for tag, own in zip(THINK_TAGS, self.tags, strict=True)
        }

    def _render(self, messages: Messages, is_open: bool, variables: Mapping[str, object]) -> str:
        from jinja2 import TemplateError

        given = {"strftime_now": self._today.strftime, **variables}
        try:
            rendered = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=is_open, **given
            )
        except (TemplateError, *_FAILURES) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadTemplate(f"cannot render the chat template: {reason}") from error
        return str(rendered)

    def _bos(self) -> str:
        ids = self._backend.encode("x", add_special_tokens=True).ids
        has_bos = self._tokenizer.bos_token_id is not None and ids[0] == self._tokenizer.bos_token_id
        return str(self._tokenizer.bos_token) if has_bos else ""

    def _unmarked_controls(self) -> list[str]:
        added = self._backend.get_added_tokens_decoder().values()
        return [
            token.content
            for token in added
            if not token.special and token.content not in THINK_TAGS and _CONTROL.fullmatch(token.content)
        ]

    def _without_controls(self, text: str) -> Iterator[str]:
        """Split the text so that no piece contains a control token; usually yields the whole text."""
        start = 0
        for control in self._controls.finditer(text) if self._controls else ():
            yield text[start : control.start() + 1]
            start = control.start() + 1
        if start < len(text):
            yield text[start:]


def verdict_options(tokenizer: Tokenizer, text: str, labels: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the ids of `text`, and one token id per label, so one forward pass distinguishes the labels.

    If possible, labels follow a space, as a model would write them. Raises ValueError if no such ids exist.
    """
    for glue in (" ", ""):
        encodings = [tokenizer.encode_template(text + glue + label) for label in labels]
        if not all(encodings):
            continue
        options = [ids[-1] for ids in encodings]
        if len({tuple(ids[:-1]) for ids in encodings}) == 1 and len(set(options)) == len(labels):
            return encodings[0][:-1], options
    raise ValueError(f"the labels must be distinct single tokens after {text!r}: {', '.join(labels)}")


def _alternatives(literals: list[str]) -> re.Pattern[str] | None:
    """Return a capturing pattern for any of the literals, longest first; None without literals."""
    if not literals:
        return None
    return re.compile("(" + "|".join(re.escape(x) for x in sorted(literals, key=len, reverse=True)) + ")")


def loaded_tokenizer(path: str, revision: str | None, asked: Conventions) -> HFTokenizer | None:
    """Return a model's tokenizer; None if loading fails, which the doctor and the engines report."""
    with contextlib.suppress(Exception):  # the library raises bare Exceptions
        return HFTokenizer(path, revision, asked)
    return None
