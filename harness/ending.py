"""What a step ends: the thought, the whole chain, or neither."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine import Finish
from harness.prompts import STEP_END, THINK_END
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


@dataclass(frozen=True, slots=True)
class Ending:
    """What a step ends."""

    chain: bool
    """True where the step holds the final answer."""
    thought: bool
    """True where no reasoning follows the step."""


def ending(step: Step, *, in_thought: bool, at_any_answer: bool = False) -> Ending:
    """Return what a step ends. `at_any_answer`: the chain ends with its first answer, and with nothing else."""
    if at_any_answer:
        is_answer = has_any_answer(step.text)
        return Ending(chain=is_answer, thought=is_answer)
    return Ending(chain=ends_chain(step, in_thought=in_thought), thought=ends_thought(step))


def has_any_answer(text: str) -> bool:
    """Return True where a step holds what the SpecReason authors' program takes for an answer, wherever it stands."""
    return any(marker in text for marker in ("boxed", "Answer:", "ANSWER:"))


def kept_open(text: str, finish: Finish, separator: str = STEP_END) -> str:
    """Return a step's text so that the thought continues after it, unless it holds an answer.

    `</think>` is removed, and the step separator also follows a step that its author ended or that reached its limit
    (SpecReason authors' program, which joins all steps with it).
    """
    if has_any_answer(text):
        return text
    text = text.replace(THINK_END, "")
    return text if finish == "stop" or text.endswith(separator) else text + separator


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
