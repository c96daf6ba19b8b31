"""Speculative Thinking against its paper: what the target takes over, how much it writes, and when it looks back."""

from __future__ import annotations

import pytest

from tests.harness.scripts import Script, solve_pair


async def test_the_draft_goes_on_where_a_thought_holds_no_keyword() -> None:
    draft, target = Script(["First, 2.\n\n", "And, and 3 mo", "re.\n\n", "\\boxed{5}"]), Script()
    trace = await solve_pair("spec_thinking", draft, target, n1=13)
    assert trace.output_text == "First, 2.\n\nAnd, and 3 more.\n\n\\boxed{5}"
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft")] * 3
    first, *others = (s.decision for s in trace.steps)
    assert first is None, "nothing is decided before the first separator"
    assert [d and (d.kind, d.value, d.threshold, d.accepted) for d in others] == [("keywords", 0, 0, True)] * 2
    assert [s.max_tokens for s in draft.samplings] == [1024, 13, 1024 - 13, 13]
    assert draft.samplings[1].seed != draft.samplings[2].seed, "one step does not draw the same numbers twice"
    assert draft.prompts[2].endswith("And, and 3 mo")
    assert target.prompts == []


@pytest.mark.parametrize("thought", ["Wait, is it 2", "Yes, it is 2.", "Let me CHECK."])
async def test_the_target_writes_n1_tokens_in_place_of_a_thought_with_a_keyword(thought: str) -> None:
    draft = Script(["First, 2.\n\n", thought + "x" * 20, "es.\n\n", "\\boxed{5}"])
    target = Script(["So: it's 5 and much more than that"])
    trace = await solve_pair("spec_thinking", draft, target, n1=13)
    assert trace.output_text == "First, 2.\n\nSo: it's 5 anes.\n\n\\boxed{5}"
    step = trace.steps[1]
    assert (step.author, step.role, step.num_tokens) == ("target", "fallback", 13)
    assert step.decision is not None
    assert (step.decision.kind, step.decision.value, step.decision.accepted) == ("keywords", 1, False)
    assert [(c.text, c.accepted) for c in step.candidates] == [(thought, False)]
    assert trace.steps[2].decision is None, "the draft ends the thought that the target began"
    assert (target.samplings[0].max_tokens, target.samplings[0].stop) == (13, ())
    assert (trace.spent_tokens("target"), trace.emitted_tokens) == (13, 11 + 13 + 5 + 10)
    assert trace.spent_tokens("draft") == 11 + 13 + 5 + 10, "the refused beginning is spent"
    assert trace.critical_path_tokens == trace.spent_tokens()


async def test_a_verification_by_the_target_gets_n2_tokens_more() -> None:
    draft = Script(["First.\n\n", "Wait!", "\\boxed{5}"])
    target = Script(["Verify 2+.", ": 2 + 3 is 5. And"])
    trace = await solve_pair("spec_thinking", draft, target, n1=9, n2=13)
    assert trace.steps[1].text == "Verify 2+: 2 + 3 is 5."
    assert [s.max_tokens for s in target.samplings] == [9, 13]
    assert target.prompts[1].endswith("First.\n\nVerify 2+")
    assert [(c.purpose, c.step) for c in trace.calls if c.model == "target"] == [("fallback", 1)] * 2


def thought(text: str, tokens: int = 20) -> str:
    """A text that reaches its limit right behind a step separator."""
    return f"{text:.<{tokens - 2}}\n\n and more"


async def test_after_c_reflections_the_target_looks_for_mistakes() -> None:
    draft = Script(["a\n\n", "Wait, b\n\n", "Wait, c\n\n", "\\boxed{5}"])
    target = Script([thought("Wait, b"), thought("Oh, wait, c"), thought(" none", 30)])
    trace = await solve_pair("spec_thinking", draft, target, n3=30, c=2, recap="A mistake?")
    assert [s.text[:11] for s in trace.steps] == ["a\n\n", "Wait, b....", "Oh, wait, c", "A mistake? ", "\\boxed{5}"]
    recap = trace.steps[3]
    assert recap.decision is not None
    assert (recap.decision.kind, recap.decision.value, recap.decision.threshold) == ("reflections", 2, 1)
    assert (recap.role, recap.candidates, recap.num_tokens) == ("fallback", [], 30), "nobody generates the opening"
    assert target.prompts[2].endswith("Oh, wait, c.......\n\nA mistake?")
    assert (target.samplings[2].max_tokens, target.samplings[2].stop) == (30, ())


async def test_a_search_for_mistakes_sets_the_count_back_and_makes_the_next_one_later_and_longer() -> None:
    draft = Script(["a\n\n", *["Wait\n\n"] * 7, "\\boxed{5}"])
    waits = [thought(f"Wait, {i}") for i in range(7)]
    target = Script([waits[0], thought("none", 30), *waits[1:], thought("nothing", 55)])
    trace = await solve_pair("spec_thinking", draft, target, c=1, n3=30)
    recaps = [s.decision for s in trace.steps if s.decision and s.decision.kind == "reflections"]
    assert [(d.value, d.threshold) for d in recaps] == [(1, 0), (6, 5)]
    assert [s.max_tokens for s in target.samplings if s.max_tokens != 20] == [30, 55]


async def test_a_draft_that_does_not_reason_can_be_opened_and_taken_over_everywhere() -> None:
    draft = Script(["a\n\n", "b\n\n", "c\n\n"])
    target = Script(["Let us see", thought("see"), "\\boxed{5}"])
    trace = await solve_pair("spec_thinking", draft, target, begin_tokens=6, takeover="always")
    authors = [("target", "guidance"), ("draft", "draft"), ("target", "fallback"), ("target", "fallback")]
    assert [(s.author, s.role) for s in trace.steps] == authors
    assert [s.decision.threshold for s in trace.steps if s.decision] == [None, None]
