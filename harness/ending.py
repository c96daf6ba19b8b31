"""What a step ends: the thought, the whole chain, or neither."""

from __future__ import annotations

from harness.prompts import THINK_END
from harness.trace import Step, StepRole

WHOLE_REPLY_ROLES: tuple[StepRole, ...] = ("chain", "rethink", "answer")
"""Roles whose author writes until it ends its reply."""


def ends_thought(step: Step) -> bool:
    """Return True where no reasoning follows the step."""
    return THINK_END in step.text or step.finish == "eos" or step.role in WHOLE_REPLY_ROLES


def ends_chain(step: Step, *, in_thought: bool) -> bool:
    """Return True where the step holds the final answer.

    Inside a thought (`in_thought`) a boxed result is an intermediate one, unless the step also closes the thought.
    """
    if step.role in WHOLE_REPLY_ROLES:
        return True
    if in_thought and THINK_END not in step.text:
        return False
    reply = step.text.rpartition(THINK_END)[2]
    return has_boxed(reply) or (step.finish == "eos" and bool(reply.strip() or not in_thought))


def is_repeat(step: Step, previous: Step) -> bool:
    """Return True where a step's text equals the previous one's, up to surrounding whitespace."""
    return step.text.strip() == previous.text.strip()


def has_boxed(text: str) -> bool:
    """Return True where the last `\\boxed{…}` of the text has balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return False
    depth = 0
    for char in text[start + 6 :]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return True
    return False
