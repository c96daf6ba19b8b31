"""SpecGuard against its paper: which candidate is selected, how confident it is, and who writes the step otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import Completion
from harness.methods.specguard import SpecGuard
from harness.trace import Trace
from tests.harness.scripts import Script, solve


def weigh(before: str, token: str) -> tuple[float, float]:
    """A question mark is an improbable token."""
    return (-3.5 if token == "?" else -0.7), 1.0


async def guard(draft: Script, target: Script, **params: Any) -> Trace:
    engines = {"draft": draft.engine(weigh=weigh), "target": target.engine()}
    return await solve("specguard", engines, **params)


async def test_the_most_consistent_candidate_is_accepted_where_its_least_probable_token_is_probable_enough() -> None:
    draft = Script([["no clue\n\n", "2 and 3\n\n", "2 + 3\n\n", "2 and 3\n\n"], ["So \\boxed{5}"] * 4])
    trace = await guard(draft, Script(), k=4)
    assert trace.output_text == "2 and 3\n\nSo \\boxed{5}"
    first = trace.steps[0]
    assert [c.accepted for c in first.candidates] == [False, True, False, False]
    assert first.decision is not None
    assert (first.decision.kind, first.decision.threshold, first.decision.accepted) == ("confidence", 0.7, True)
    assert first.decision.value == pytest.approx(1 - 0.7 / 7)
    assert [(s.n, s.token_logprobs) for s in draft.samplings] == [(4, True)] * 2


async def test_one_improbable_token_refuses_a_step_and_the_target_samples_and_selects_its_own() -> None:
    draft = Script([["2 or 3?\n\n"] * 3, ["So \\boxed{5}"] * 3])
    target = Script([["what\n\n", "2 + 3 is 5\n\n", "2 + 3 = 5\n\n"]])
    trace = await guard(draft, target, k=3)
    step = trace.steps[0]
    assert (step.author, step.role, step.text) == ("target", "fallback", "2 + 3 is 5\n\n")
    assert step.decision is not None
    assert step.decision.value == pytest.approx(0.5)
    assert not step.decision.accepted
    assert [c.accepted for c in step.candidates] == [False] * 3
    assert (target.samplings[0].n, target.samplings[0].token_logprobs) == (3, False)
    assert trace.spent_tokens("draft") == 3 * 9 + 3 * 13
    assert trace.spent_tokens("target") == 6 + 12 + 11
    assert trace.critical_path_tokens == 9 + 12 + 13, "of parallel candidates the longest"


@pytest.mark.parametrize(
    ("params", "value", "accepted"),
    [
        ({"tau": 0.5}, 0.5, True),
        ({"tau": 0.51}, 0.5, False),
        ({"l_min": -3.5}, 0.0, False),
        ({"l_min": -2.0}, 0.0, False),
        ({"l_min": -35.0}, 0.9, True),
    ],
)
async def test_a_confidence_of_exactly_tau_is_accepted_and_l_min_and_below_are_none(
    params: dict[str, float], value: float, accepted: bool
) -> None:
    trace = await guard(Script(["\\boxed{5}?"]), Script(["\\boxed{5}"]), k=1, **params)
    assert (trace.steps[0].author == "draft") is accepted
    decision = trace.steps[0].decision
    assert decision is not None
    assert decision.value == pytest.approx(value)


def test_a_step_without_a_token_is_as_sure_as_can_be() -> None:
    assert SpecGuard().confidence(Completion((), "", "eos", 0, token_logprobs=())) == 1
