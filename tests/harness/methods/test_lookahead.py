"""Lookahead Reasoning against its paper: what is drafted, written and asked at once, and what is kept of it."""

from __future__ import annotations

import pytest

from harness.methods import build
from tests.harness.scripts import Script, solve, solve_pair

YES, NO = "1", "0"


async def test_drafts_are_kept_up_to_the_first_that_means_something_else() -> None:
    draft = Script(["a\n\n", "b\n\n", "c\n\n", "\\boxed{5}"])
    target = Script(["A is a\n\n", "B!\n\n", "C\n\n", "D\n\n", "\\boxed{5}"], decides=[YES, NO, NO])
    trace = await solve_pair("lookahead", draft, target, gamma=3)
    assert trace.output_text == "a\n\nB!\n\n\\boxed{5}"
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft"), ("target", "fallback"), ("draft", "draft")]
    decisions = [s.decision for s in trace.steps if s.decision]
    assert [(d.kind, d.value, d.threshold, d.accepted) for d in decisions] == [
        ("agreement", pytest.approx(0.9), 0.5, True),
        ("agreement", pytest.approx(0.1), 0.5, False),
        ("agreement", 1.0, 0.5, True),
    ]
    assert [[(c.text, c.accepted) for c in s.candidates] for s in trace.steps[:2]] == [
        [("a\n\n", True)],
        [("b\n\n", False)],
    ]


async def test_the_target_writes_behind_every_prefix_at_once_and_every_pair_is_asked_at_once() -> None:
    draft = Script(["a\n\n", "b\n\n", "\\boxed{5}", "x"])
    target = Script(["A1\n\n", "B12\n\n", "\\boxed{6}", "\\boxed{5}"], decides=[YES, NO])
    trace = await solve_pair("lookahead", draft, target, gamma=2)
    written = [p.removeprefix(trace.target_prompt) for p in target.prompts if p.startswith(trace.target_prompt)]
    assert written[:3] == ["", "a\n\n", "a\n\nb\n\n"]
    asked = [p for p in target.prompts if "First version" in p]
    assert len(asked) == 2
    assert "First version:\na\n\nSecond version:\nA1\n" in asked[0]
    wave = trace.calls[:4]
    assert [(c.purpose, c.model, c.n, c.step) for c in wave] == [
        ("draft", "draft", 1, 0),
        ("draft", "draft", 1, 1),
        ("fallback", "target", 3, 0),
        ("verdict", "target", 2, 0),
    ]
    assert (wave[2].output_tokens, wave[2].longest_output_tokens) == (4 + 5 + 10, 10)
    assert trace.critical_path_tokens == sum(c.longest_output_tokens for c in trace.calls)


async def test_where_all_drafts_are_kept_the_targets_next_step_follows() -> None:
    draft = Script(["a\n\n", "b\n\n", "\\boxed{5}"])
    target = Script(["A \n\n", "b\n\n", "So:\n\n", "\\boxed{5}"])
    trace = await solve_pair("lookahead", draft, target, gamma=2)
    assert [s.text for s in trace.steps] == ["a\n\n", "b\n\n", "So:\n\n", "\\boxed{5}"]
    third = trace.steps[2]
    assert (third.author, third.role, third.candidates, third.decision) == ("target", "fallback", [], None)
    assert trace.stop_reason == "answered"
    assert not [c for c in trace.calls if c.purpose == "verdict"], "equal steps need no judge"


@pytest.mark.parametrize(("threshold", "kept"), [(0.7, True), (0.8, False)])
async def test_similarity_can_decide_in_place_of_a_judge(threshold: float, kept: bool) -> None:
    draft = Script(["we add 2 here\n\n", "\\boxed{5}"])
    target = Script(["we add 2 there\n\n", "\\boxed{5}", "\\boxed{5}"])
    trace = await solve_pair("lookahead", draft, target, gamma=1, verifier="similarity", threshold=threshold)
    decision = trace.steps[0].decision
    assert decision is not None
    assert decision.value == pytest.approx(3 / 4)
    assert decision.accepted is kept


@pytest.mark.parametrize("budget", [3, 4, 7, 11])
async def test_no_more_than_the_budget_is_emitted_and_what_was_drafted_within_it_is_kept(budget: int) -> None:
    steps = ["a\n\n", "b\n\n", "c\n\n", "d\n\n"]
    trace = await solve_pair("lookahead", Script(steps * 3), Script(steps * 3), gamma=4, budget=budget)
    assert (trace.stop_reason, trace.emitted_tokens) == ("budget", budget)
    assert trace.output_text == "".join(steps)[:budget]


async def test_a_third_model_can_judge() -> None:
    judge = Script(decides=[YES])
    engines = {
        "draft": Script(["a\n\n", "\\boxed{5}"]).engine(),
        "target": Script(["A!\n\n", "\\boxed{5}", "\\boxed{5}"]).engine(),
        "reward": judge.engine(),
    }
    trace = await solve("lookahead", engines, gamma=1, judge="reward")
    assert trace.output_text == "a\n\n\\boxed{5}"
    assert "Second version:\nA!\n" in judge.prompts[0]
    assert [c.model for c in trace.calls if c.purpose == "verdict"] == ["reward"]
    assert build("lookahead", {"judge": "reward"}).roles == ("draft", "target", "reward")
