"""What a step ends: the thought, the whole chain, or neither."""

from __future__ import annotations

from harness.prompts import THINK_END
from harness.trace import Step, StepRole

WHOLE_REPLY_ROLES: tuple[StepRole, ...] = ("chain", "rethink", "answer")
"""Roles whose author writes until it ends its reply."""


def ends_thought(step: Step) -> bool:
    """Whether nothing is reasoned behind it."""
    return THINK_END in step.text or step.finish == "eos" or step.role in WHOLE_REPLY_ROLES


def ends_chain(step: Step, *, in_thought: bool) -> bool:
    """Whether it holds the final answer; inside a thought nothing does that does not close it."""
    if step.role in WHOLE_REPLY_ROLES:
        return True
    if in_thought and THINK_END not in step.text:
        return False
    said = step.text.rpartition(THINK_END)[2]
    return has_boxed(said) or (step.finish == "eos" and bool(said.strip() or not in_thought))


def is_repeat(step: Step, before: Step) -> bool:
    """Whether a step repeats the one before it."""
    return step.text.strip() == before.text.strip()


def has_boxed(text: str) -> bool:
    """Whether the text holds a `\\boxed{…}` with balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return False
    depth = 0
    for char in text[start + 6 :]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return True
    return False
