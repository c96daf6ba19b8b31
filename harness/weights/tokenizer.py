"""A model's tokenizer and chat template, behind the `Tokenizer` protocol.

Text by a model or a benchmark is data: whatever looks like a control token in it is encoded as plain text, so that a
problem cannot close the user's turn. `<think>` and `</think>` are the exception, because they are part of a chain; a
model with other tags (harness.weights.templates) reads and writes its own, which are translated here.
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
"""Added tokens of this shape steer a model even where the tokenizer does not call them special (`<｜User｜>`)."""
_FAILURES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What a chat template may raise beside errors of Jinja: it is a program, in a sandbox."""
_ANOTHER_DAY = date(2001, 2, 3)


class HFTokenizer:
    """The tokenizer in a model's folder, or of a hub id that the cache holds."""

    def __init__(self, path: str, revision: str | None = None, asked: Conventions = templates.NO_CONVENTIONS) -> None:
        """Load the tokenizer. `asked`: how the model is talked to.

        Raises ValueError where the chat template does not read a variable, or the tokenizer is no fast one. A chat
        template whose prompts would not be what it means raises BadTemplate where one is asked for.
        """
        from transformers import AutoTokenizer

        # Without a word transformers asks a terminal whether to run code that comes with the model.
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
        self._backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if self._backend is None:
            raise ValueError(f"{path}: a fast tokenizer (tokenizer.json) is required")
        self._plain: Any = copy.deepcopy(self._backend)
        self._plain.encode_special_tokens = True
        self._asked = asked
        template = self._tokenizer.chat_template
        self.template: str | None = (template.get("default") if isinstance(template, dict) else template) or None
        """Text of the chat template; None where prompts are a plain dialogue."""
        self._today = date.fromisoformat(asked.date)
        if self.template is None and asked.variables:
            raise ValueError("it has no chat template, so that no variable of one can be set")
        self._chat = ChatTemplate(self._render, self.template, asked) if self.template is not None else None
        self._reply: Reply | BadTemplate = self._replies(asked)
        self._thinking = templates.CANONICAL if isinstance(self._reply, BadTemplate) else self._reply.tags
        self._think_ids = self._ids_of_tags()
        self._tags = _alternatives(list(self._think_ids))
        self._controls = _alternatives(self._unmarked_controls())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every token and its id."""
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
        """How the chat template opens a reply. Raises BadTemplate where its prompts would not be what it means."""
        if isinstance(self._reply, BadTemplate):
            raise self._reply
        return self._reply

    @property
    def thinks(self) -> bool:
        """True where the generation prompt, or a thinking variable, lets the model think (harness.weights.templates).

        Without a chat template the vocabulary decides. Raises BadTemplate.
        """
        return self.reply.thought is not None

    @property
    def unopened_tags(self) -> tuple[str, str] | None:
        """Tags of thoughts in the vocabulary of a plain model, where neither its prompt nor anybody says so.

        Some models think without any sign in their chat template. Raises BadTemplate.
        """
        asked, tags = self._asked, self._tags_of_vocabulary()
        if self._chat is None or self.thinks or tags is None or asked.variables or asked.thinking_tags:
            return None
        return None if tags.close in self.reply.header else (tags.open, tags.close)

    @property
    def thought(self) -> Thought:
        """Raises BadTemplate."""
        return self.reply.thought or Thought()

    @property
    def has_chat_template(self) -> bool:
        """False where prompts are a plain dialogue, because the tokenizer has no chat template."""
        return self._chat is not None

    @property
    def prompt_date(self) -> str | None:
        """The day that prompts hold as today's; None where they hold none. Raises BadTemplate."""
        if self._chat is None or not self._chat.depends_on({}, {"strftime_now": _ANOTHER_DAY.strftime}):
            return None
        return self._today.isoformat()

    @property
    def tags(self) -> tuple[str, str]:
        """The tags that the model itself writes, `<think>` and `</think>` unless it is of another family."""
        return self._thinking.open, self._thinking.close

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a sequence, where the tokenizer names one."""
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
        """Return text as the model itself writes it: with its own tags around thoughts."""
        return self._thinking.native(text)

    def open_reply(self, question: str, system: str = "") -> str:
        """Without a chat template: a plain dialogue after the tokenizer's own BOS."""
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
        """Return how replies are opened, or the error where prompts would not be what the template means."""
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
        """Return the ids of `<think>` and `</think>`; without a tag that is text for this model."""
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
            raise BadTemplate(f"its chat template cannot be rendered: {reason}") from error
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
        """Yield the text in pieces that hold no control token: usually the whole text."""
        start = 0
        for control in self._controls.finditer(text) if self._controls else ():
            yield text[start : control.start() + 1]
            start = control.start() + 1
        if start < len(text):
            yield text[start:]


def verdict_options(tokenizer: Tokenizer, text: str, labels: Sequence[str]) -> tuple[list[int], list[int]]:
    """Ids of `text`, and one id per label that may follow it: labels that one forward pass can tell apart.

    Behind a space where the tokenizer allows it, which is how a model would write it, else without one.
    """
    for glue in (" ", ""):
        encodings = [tokenizer.encode_template(text + glue + label) for label in labels]
        if not all(encodings):
            continue
        options = [ids[-1] for ids in encodings]
        if len({tuple(ids[:-1]) for ids in encodings}) == 1 and len(set(options)) == len(labels):
            return encodings[0][:-1], options
    raise ValueError(f"these labels are not one distinct token each after {text!r}: {', '.join(labels)}")


def _alternatives(literals: list[str]) -> re.Pattern[str] | None:
    """Return a capturing pattern that matches any of the literals, the longest first; None without literals."""
    if not literals:
        return None
    return re.compile("(" + "|".join(re.escape(x) for x in sorted(literals, key=len, reverse=True)) + ")")


def loaded_tokenizer(path: str, revision: str | None, asked: Conventions) -> HFTokenizer | None:
    """Return a model's tokenizer; None where it cannot be loaded, which the doctor and the engines explain."""
    with contextlib.suppress(Exception):  # the library raises bare Exceptions
        return HFTokenizer(path, revision, asked)
    return None
