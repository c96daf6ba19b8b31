"""What opens and closes a model's thoughts, by family of models.

Everywhere outside of a tokenizer a thought stands between `<think>` and `</think>`: in chains, prompts as recorded,
grading and the warehouse. A tokenizer of another family translates both ways, so that a draft and a target with
different tags share one chain. The tags are those of the models' own chat templates and of vLLM's reasoning parsers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"
OPENING = "<think>\n"
"""Opens a reasoning model's reply inside its thought."""
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
"""Opens a reasoning model's reply for plain text."""
NONE = "none"
_LONGEST = 200


@dataclass(frozen=True)
class ThinkingTags:
    """The tags of a family of models."""

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
FAMILIES: Mapping[str, ThinkingTags] = {
    "Magistral": ThinkingTags("[THINK]", "[/THINK]", after_open=""),
    "gpt-oss": ThinkingTags(
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        after_open="",
        empty="<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "EXAONE Deep": ThinkingTags("<thought>", "</thought>"),
    "Kimi-VL Thinking": ThinkingTags("◁think▷", "◁/think▷", after_open=""),
    "Seed-OSS": ThinkingTags("<seed:think>", "</seed:think>"),
    "Command A Reasoning": ThinkingTags("<|START_THINKING|>", "<|END_THINKING|>", after_open=""),
}
"""Families whose tags are not `<think>` and `</think>`."""


def of_vocabulary(tokens: Collection[str]) -> ThinkingTags | None:
    """Return the tags that are tokens of a vocabulary, for a model without a chat template; None without any."""
    return next((tags for tags in (CANONICAL, *FAMILIES.values()) if {tags.open, tags.close} <= set(tokens)), None)


def parsed(text: str) -> ThinkingTags | None:
    """Return the tags of `OPEN,CLOSE`; None for `none`, a plain model. Raises ValueError."""
    if text == NONE:
        return None
    opening, comma, closing = text.partition(",")
    known = (CANONICAL, *FAMILIES.values())
    if not comma or not opening.strip() or not closing.strip() or opening == closing or "," in closing:
        shown = ", ".join(f"{tags.open},{tags.close}" for tags in known)
        raise ValueError(f"expected OPEN,CLOSE or none, for example {shown}")
    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"expected printable tags of at most {_LONGEST} characters together")
    return next(
        (tags for tags in known if (tags.open, tags.close) == (opening, closing)), ThinkingTags(opening, closing)
    )
