"""Endings of a step: whether it ends the thought, the chain, or neither."""

from __future__ import annotations

import pytest

from harness.chain.ending import ends_chain, ends_thought, has_boxed, is_repeat
from harness.engine import Finish
from harness.trace import Step, StepRole


def step(text: str, role: StepRole = "draft", finish: Finish = "stop") -> Step:
    return Step("draft", role, text, 1, (1,), finish)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{5}", True),
        ("so \\boxed{\\frac{1}{2}} it is", True),
        ("\\boxed{}", True),
        ("\\boxed{5", False),
        ("\\boxed{\\frac{1}{2}", False),
        ("\\boxed 5", False),
        ("boxed{5}", False),
        ("", False),
        ("\\boxed{1} or \\boxed{2", False),  # the last one is still being written
        ("\\boxed{1 and \\boxed{2}", True),
    ],
)
def test_a_box_has_balanced_braces(text: str, expected: bool) -> None:
    assert has_boxed(text) is expected


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (step("We add.\n\n"), False),
        (step("We add.\n\n", finish="length"), False),
        (step("So it is 5.</think>"), True),
        (step("So it is 5.", finish="eos"), True),
        (step("So it is 5.", "chain"), True),
        (step("So it is 5.", "rethink", "length"), True),
        (step("5", "answer"), True),
        (step("Let me think", "guidance", "length"), False),
        (step("\\boxed{5}"), False),
    ],
)
def test_a_thought_ends_with_its_tag_or_its_author_or_a_whole_reply(ended: Step, expected: bool) -> None:
    assert ends_thought(ended) is expected


@pytest.mark.parametrize(
    ("ended", "in_thought", "expected"),
    [
        (step("so \\boxed{5}\n\n"), False, True),
        (step("so \\boxed{5}\n\n"), True, False),  # an intermediate result
        (step("so \\boxed{5}</think>\n\n"), True, False),  # the box is inside the thought
        (step("so</think>\n\nIt is \\boxed{5}."), True, True),
        (step("It is 5.", finish="eos"), False, True),
        (step("It is 5.", finish="eos"), True, False),
        (step("so</think>\n\nIt is 5.", finish="eos"), True, True),
        (step("so</think>\n\n", finish="eos"), True, False),  # the answer is still missing
        (step("", finish="eos"), False, True),
        (step("We add.\n\n"), False, False),
        (step("5", "answer", "length"), True, True),
        (step("no box", "chain", "length"), True, True),
    ],
)
def test_a_chain_ends_with_its_answer(ended: Step, in_thought: bool, expected: bool) -> None:
    assert ends_chain(ended, in_thought=in_thought) is expected


def test_a_repeat_has_the_same_text_whoever_wrote_it() -> None:
    assert is_repeat(step("We add.\n\n"), step("We add.", "fallback"))
    assert not is_repeat(step("We add 2."), step("We add."))
