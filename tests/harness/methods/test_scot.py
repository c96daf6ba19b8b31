"""SCoT against its paper and its authors' program: the chosen chain, the rethinking, and chains that were cut off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.scripts import Script, solve_pair


async def test_scot_answers_from_the_chosen_chain() -> None:
    draft = Script([["I say \\boxed{4}", "I say \\boxed{5}"]])
    target = Script(["5}"], decides=["2"])
    trace = await solve_pair("scot", draft, target, drafts=2)
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft"), ("target", "answer")]
    assert trace.output_text == "I say \\boxed{5}\n\nFinal answer: \\boxed{5}"
    assert "If all attempts are wrong, reply with 3" in target.prompts[0]


@pytest.mark.parametrize(
    ("chains", "params", "decides", "roles", "options", "text"),
    [
        (["bad", "worse"], {"error_correction": False}, ["1"], ["draft", "answer"], [0, 1], "bad"),
        (["bad", "worse"], {}, ["3"], ["rethink"], [0, 1], "\\boxed{5}"),
        (["x" * 50, "\\boxed{5}"], {}, ["1"], ["draft", "answer"], [None, 0], "\\boxed{5}"),
        (
            ["x" * 50, "\\boxed{5}"],
            {"offer_cut_drafts": True},
            ["1"],
            ["draft", "answer"],
            [0, 1],
            "x" * 30,
        ),
        (["x" * 50, "y" * 50], {"offer_cut_drafts": True}, ["3"], ["rethink"], [0, 1], "\\boxed{5}"),
        (["x" * 50, "y" * 50], {"error_correction": False}, ["2"], ["draft", "answer"], [0, 1], "y" * 30),
        (["x" * 50, "y" * 50], {}, [], ["rethink"], [None, None], "\\boxed{5}"),  # no chain ended
    ],
)
async def test_scot_offers_chains_that_ended_unless_it_is_told_otherwise(
    chains: list[str],
    params: dict[str, Any],
    decides: list[str],
    roles: list[str],
    options: list[int | None],
    text: str,
) -> None:
    target = Script(["\\boxed{5}"], decides=decides)
    trace = await solve_pair("scot", Script([chains]), target, drafts=2, draft_tokens=30, **params)
    assert [step.role for step in trace.steps] == roles
    assert [c.option for c in trace.steps[0].candidates] == options
    assert trace.steps[0].text == text
    assert (trace.steps[0].verdict is None) == (not decides)
    if roles == ["rethink"]:
        assert not any(chain in target.prompts[-1] for chain in chains), "it thinks about the question, not the drafts"


async def test_scot_closes_the_thought_of_a_chosen_chain_that_was_cut_off() -> None:
    """Without error correction a cut chain may be chosen; the target must still answer, not think on."""
    target = Script(["\\boxed{5}"], decides=["2"])
    draft = Script([["x" * 50, "y" * 50]])
    await solve_pair("scot", draft, target, thinks=True, drafts=2, draft_tokens=30, error_correction=False)
    assert target.prompts[-1].endswith("y" * 30 + "\n</think>\n\n")
