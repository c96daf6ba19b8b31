"""GlimpRouter against its paper: the entropy of a step's first token decides who writes the step."""

from __future__ import annotations

from typing import Any

import pytest

from harness.trace import Trace
from tests.harness.scripts import Script, solve

UNSURE = "?"
"""A first token of high entropy."""


def weigh(before: str, token: str) -> tuple[float, float]:
    return -0.5, 1.75 if token == UNSURE else 0.25


async def route(draft: Script, target: Script, **params: Any) -> Trace:
    engines = {"draft": draft.engine(weigh=weigh), "target": target.engine()}
    return await solve("glimprouter", engines, **params)


async def test_a_sure_draft_goes_on_and_an_unsure_one_leaves_the_step_to_the_target() -> None:
    draft, target = Script(["So", "o 2.\n\n", "?", "Is", "s \\boxed{5}"]), Script(["Then 3.\n\n"])
    trace = await route(draft, target, step_tokens=50)
    assert trace.output_text == "So 2.\n\nThen 3.\n\nIs \\boxed{5}"
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft"), ("target", "fallback"), ("draft", "draft")]
    decisions = [s.decision for s in trace.steps if s.decision]
    assert [(d.kind, d.value, d.threshold, d.accepted) for d in decisions] == [
        ("entropy", 0.25, 1.0, True),
        ("entropy", 1.75, 1.0, False),
        ("entropy", 0.25, 1.0, True),
    ]
    assert all(d.accepts_below for d in decisions)
    candidates = [("So 2.\n\n", True), ("?", False), ("Is \\boxed{5}", True)]
    assert [(c.text, c.accepted) for s in trace.steps for c in s.candidates] == candidates
    asked = [(s.max_tokens, s.entropies) for s in draft.samplings]
    assert asked == [(1, True), (49, False), (1, True), (1, True), (49, False)], "the first token is drawn once"
    assert draft.samplings[0].seed != draft.samplings[1].seed
    assert [(c.purpose, c.model, c.step) for c in trace.calls][:4] == [
        ("draft", "draft", 0),
        ("draft", "draft", 0),
        ("draft", "draft", 1),
        ("fallback", "target", 1),
    ]
    assert trace.emitted_tokens == 7 + 9 + 13
    assert trace.spent_tokens() == trace.critical_path_tokens == 7 + 1 + 9 + 13


@pytest.mark.parametrize(("tau", "author"), [(1.74, "target"), (1.75, "draft"), (0.0, "target")])
async def test_a_step_of_exactly_tau_is_the_drafts(tau: float, author: str) -> None:
    trace = await route(Script(["?", "so \\boxed{5}"]), Script(["so \\boxed{5}"]), tau=tau)
    assert trace.steps[0].author == author
