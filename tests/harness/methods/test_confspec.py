"""ConfSpec against its abstract: a sure draft's verdict on its own step stands, an unsure one's goes to the target."""

from __future__ import annotations

import pytest

from tests.harness.scripts import Script, solve_pair


@pytest.mark.parametrize(
    ("own", "confidence", "escalated", "author", "verdicts"),
    [
        ("9", 0.9, None, "draft", [("draft", 9, True)]),
        ("3", 0.9, None, "target", [("draft", 3, False)]),
        ("9", 0.95, "2", "target", [("draft", 9, True), ("target", 2, False)]),
        ("3", 0.98, "8", "draft", [("draft", 3, False), ("target", 8, True)]),
        ("7", 0.0, None, "draft", [("draft", 7, True)]),
        ("9", 1.0, "7", "draft", [("draft", 9, True), ("target", 7, True)]),
    ],
)
async def test_the_target_judges_where_the_draft_is_unsure_whichever_way_it_decides(
    own: str, confidence: float, escalated: str | None, author: str, verdicts: list[tuple[str, float, bool]]
) -> None:
    """The script gives 0.9 to its digit and 0.1 to the nine others: 0.92 to those from 7 on, or 0.97 to those below."""
    draft, target = Script(["\\boxed{5}"], [own]), Script(["\\boxed{6}"], [escalated] if escalated else [])
    trace = await solve_pair("confspec", draft, target, confidence=confidence)
    step = trace.steps[0]
    assert (step.author, step.role) == (author, "draft" if author == "draft" else "fallback")
    assert [(v.model, v.score, v.accepted) for v in step.verdicts] == verdicts
    assert [c.accepted for c in step.candidates] == [author == "draft"]
    assert step.decision is None, "the last verdict says it"
    asked = [call.model for call in trace.calls if call.purpose == "verdict"]
    assert asked == [model for model, _, _ in verdicts]


async def test_both_judges_read_the_step_behind_the_chain_and_take_turns_until_the_answer() -> None:
    draft = Script(["one\n\n", "two\n\n", "\\boxed{5}"], ["9", "0", "9"])
    target = Script(["2\n\n"], ["8", "0", "9"])
    trace = await solve_pair("confspec", draft, target, confidence=0.99)
    assert trace.output_text == "one\n\n2\n\n\\boxed{5}"
    assert trace.stop_reason == "answered"
    assert draft.prompts[1].startswith(trace.draft_prompt + "one\n\n")
    assert target.prompts[0].startswith(trace.target_prompt + "one\n\n")
    assert target.prompts[1].startswith(trace.target_prompt + "one\n\ntwo\n\n")
    assert trace.spent_tokens("draft") == 5 + 5 + 9 + 1 + 3
    assert trace.spent_tokens("target") == 3 + 3
