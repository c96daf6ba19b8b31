"""Scores of a finished chain: which tokens count, in whose ids; prompts of reward models, and a toy that judges."""

from __future__ import annotations

import asyncio
import math

import pytest

from harness import prompts
from harness.chain.chain_scores import (
    RewardModel,
    StepLikelihood,
    WholeSteps,
    Written,
    read_chain,
    step_likelihoods,
    whole_steps,
)
from harness.engine import Finish, Role
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.problems.problem import Problem
from harness.trace import Step, StepRole

PROBLEM = Problem("toy/0", "toy", "1 + 1?", "2")
PLAIN, THINKING = ByteTokenizer(), ByteTokenizer(thinks=True)
BRIDGE = prompts.THINK_BRIDGE


def step(
    text: str, *, author: Role = "draft", role: StepRole = "draft", finish: Finish = "stop", added: int = 0
) -> Step:
    """A step of which `added` tokens are not its author's."""
    ids = tuple(THINKING.encode(text))
    return Step(author, role, text, len(ids) - added + (finish == "eos"), ids, finish)


def counted_texts(steps: list[Step]) -> list[str]:
    chain = read_chain(PROBLEM, steps, {"target": THINKING, "draft": THINKING})
    return [THINKING.decode(chain.ids[start:end]) for start, end in chain.generated]


def test_a_chain_is_read_behind_the_prompt_of_the_target_alone() -> None:
    steps = [step("So 1.\n\n"), step("So, 2.", author="target", role="answer", finish="eos")]
    chain = read_chain(PROBLEM, steps, {"target": THINKING, "draft": THINKING})
    assert list(chain.prompt) == prompts.opening(THINKING, PROBLEM)[0]
    assert THINKING.decode(chain.ids) == "So 1.\n\nSo, 2."
    assert counted_texts(steps) == ["So 1.\n\n", "So, 2."]


@pytest.mark.parametrize(
    ("stored", "counted"),
    [
        (step("So 2." + BRIDGE, finish="eos", added=len(THINKING.encode(BRIDGE))), "So 2."),
        (step("So 2." + BRIDGE, finish="stop"), "So 2." + BRIDGE),
        (step("So 2.\n\n", finish="length", added=2), "So 2."),
        (step("Wait. So 2.", role="fallback", author="target", finish="length", added=6), "So 2."),
        (step("", finish="length"), ""),
    ],
    ids=["closed by the harness", "closed by the author", "kept open", "begun by the harness", "empty"],
)
def test_only_what_a_model_generated_counts(stored: Step, counted: str) -> None:
    assert counted_texts([stored]) == [counted]


def test_one_pass_gives_every_step_its_sum_and_its_least_probable_token_where_its_numbers_are_finite() -> None:
    weights = {"b": -3.0, "c": -math.inf}
    scripted = ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [1.0], tokenizer=PLAIN)
    scripted.weigh = lambda before, token: (weights.get(token, -1.0), 0.0)
    steps = [step(text) for text in ("aa", "ab", "", "c")]
    chain = read_chain(PROBLEM, steps, {"target": PLAIN, "draft": PLAIN})
    assert asyncio.run(step_likelihoods(scripted, chain)) == [
        StepLikelihood(2, -2.0, -1.0),
        StepLikelihood(2, -4.0, -3.0),
        StepLikelihood(0, 0.0, None),
        StepLikelihood(1, None, None),
    ]
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([("A.\n\n", "stop"), ("B.", "eos")], [((), "", ""), (("A.\n\n",), "", "")]),
        (
            [("A.\n\n2 + ", "length"), ("3 ", "length"), ("= 5.\n\n", "stop"), ("B.", "eos")],
            [
                ((), "", "3 = 5.\n\n"),
                (("A.\n\n",), "2 + ", "= 5.\n\n"),
                (("A.\n\n",), "2 + 3 ", ""),
                (("A.\n\n", "2 + 3 = 5.\n\n"), "", ""),
            ],
        ),
        ([("2 +\n", "length"), ("\n3.", "eos")], [((), "", "\n"), ((), "2 +\n", "")]),
        ([("A.\n\nB", "stop"), (" it is.\n\n", "stop")], [((), "", " it is.\n\n"), (("A.\n\n",), "B", "")]),
    ],
    ids=["whole", "cut twice", "separator in two pieces", "token past the separator"],
)
def test_a_piece_that_begins_or_ends_inside_a_step_is_shown_with_the_rest_of_it(
    pieces: list[tuple[str, Finish]], shown: list[tuple[tuple[str, ...], str, str]]
) -> None:
    assert whole_steps([Written(*piece) for piece in pieces], "\n\n") == [WholeSteps(*one) for one in shown]


async def test_quality_is_the_probability_of_good_against_bad() -> None:
    prompts: list[str] = []

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        prompts.append(prompt)
        return [0.6, 0.2]

    model = RewardModel(ScriptedEngine(lambda prompt, sampling: [""], judge))
    assert await model.quality("What is 2 + 3?", ["5"]) == pytest.approx(0.75)
    assert prompts == ["What is 2 + 3? Step 1: 5 ки "]
