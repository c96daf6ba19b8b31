"""RSD against its paper, over scripted engines: what the reward model is asked, what is kept, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.prompts import reward_question
from harness.trace import Trace
from tests.harness.scripts import PROBLEM, Script, new_trace, solve


async def rated(
    drafts: list[str], rewards: list[float], target: Sequence[str] = (), **params: Any
) -> tuple[Trace, list[str]]:
    """A sample under a reward model that gives these rewards in turn, and what that was asked."""
    asked: list[str] = []

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        assert labels == ("+", "-")
        asked.append(prompt)
        reward = rewards[len(asked) - 1]
        return [reward / 2, (1 - reward) / 2]  # half of the probability is on other tokens

    reward = ScriptedEngine(lambda prompt, sampling: [], judge)
    engines = {"draft": Script(drafts).engine(), "target": Script(target).engine(), "reward": reward}
    return await solve("rsd", engines, **params), asked


async def test_a_draft_is_kept_from_the_threshold_on_and_rewritten_by_the_target_below_it() -> None:
    drafts = ["2 + 3 = 5\n\n", "2 + 3 = 6\n\n", "\\boxed{5}"]
    trace, _ = await rated(drafts, [0.701, 0.699, 0.9], ["so: 5\n\n"])
    assert [(step.author, step.role, step.text) for step in trace.steps] == [
        ("draft", "draft", "2 + 3 = 5\n\n"),
        ("target", "fallback", "so: 5\n\n"),
        ("draft", "draft", "\\boxed{5}"),
    ]
    assert [[c.accepted for c in step.candidates] for step in trace.steps] == [[True], [False], [True]]
    assert trace.stop_reason == "answered"


async def test_the_reward_model_reads_the_problem_the_accepted_steps_the_new_step_and_the_question() -> None:
    trace, asked = await rated(["first\n\n", "second\n\n", "\\boxed{5}"], [0.9, 0.1, 0.9], ["better\n\n"])
    question = ByteTokenizer().decode(reward_question(ByteTokenizer()).ids)
    assert PROBLEM.text in asked[0]
    assert [prompt.removesuffix(question).removeprefix(trace.draft_prompt) for prompt in asked] == [
        "first\n\n",
        "first\n\nsecond\n\n",
        "first\n\nbetter\n\n\\boxed{5}",
    ]


async def test_under_clipping_a_step_is_kept_with_the_probability_of_its_reward() -> None:
    kept = []
    for seed in range(400):
        trace = new_trace()
        trace.seed = seed
        await rated(["\\boxed{5}"], [0.3], ["\\boxed{5}"], weighting="clipping", trace=trace)
        kept.append(trace.steps[0].author == "draft")
    assert 0.23 < sum(kept) / len(kept) < 0.37
    sure, _ = await rated(["a\n\n", "\\boxed{5}"], [1.0, 1.0], weighting="clipping")
    assert {step.author for step in sure.steps} == {"draft"}
