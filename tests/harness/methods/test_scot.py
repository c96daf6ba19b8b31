"""SCoT against its paper and its authors' program: the chosen chain, the rethinking, and chains that were cut off."""

from __future__ import annotations

from tests.harness.scripts import Script, solve


async def test_scot_answers_from_the_chosen_chain() -> None:
    draft = Script([["I say \\boxed{4}", "I say \\boxed{5}"]])
    target = Script(["5}"], decides=["2"])
    trace = await solve("scot", {"draft": draft.engine(), "target": target.engine()}, drafts=2)
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft"), ("target", "answer")]
    assert trace.output_text == "I say \\boxed{5}\n\nFinal answer: \\boxed{5}"
    assert "If all attempts are wrong, reply with 3" in target.prompts[0]


async def test_scot_rethinks_where_all_chains_are_wrong() -> None:
    draft = Script([["bad", "worse"]])
    target = Script(["Properly: \\boxed{5}"], decides=["3"])
    trace = await solve("scot", {"draft": draft.engine(), "target": target.engine()}, drafts=2)
    assert [(s.author, s.role) for s in trace.steps] == [("target", "rethink")]
    assert "bad" not in target.prompts[-1], "the target thinks about the question, not about the drafts"
    assert trace.stop_reason == "answered"


async def test_scot_without_error_correction_cannot_reject() -> None:
    target = Script(["4}"], decides=["1"])
    engines = {"draft": Script([["bad", "worse"]]).engine(), "target": target.engine()}
    trace = await solve("scot", engines, drafts=2, error_correction=False)
    verdict = trace.steps[0].verdict
    assert verdict is not None
    assert verdict.options == ("1", "2")


async def test_scot_does_not_offer_a_chain_that_was_cut_off() -> None:
    draft = Script([["x" * 50, "I say \\boxed{5}"]])
    target = Script(["5}"], decides=["1"])
    trace = await solve("scot", {"draft": draft.engine(), "target": target.engine()}, drafts=2, draft_tokens=30)
    assert [c.option for c in trace.steps[0].candidates] == [None, 0]
    assert trace.steps[0].text == "I say \\boxed{5}"


async def test_scot_offers_a_chain_that_was_cut_off_where_it_is_told_to_do_as_the_authors_program() -> None:
    draft = Script([["x" * 50, "I say \\boxed{5}"]])
    target = Script(["5}"], decides=["1"])
    engines = {"draft": draft.engine(), "target": target.engine()}
    trace = await solve("scot", engines, drafts=2, draft_tokens=30, offer_cut_drafts=True)
    assert [c.option for c in trace.steps[0].candidates] == [0, 1]
    assert trace.steps[0].text == "x" * 30


async def test_scot_closes_the_thought_of_a_chosen_chain_that_was_cut_off() -> None:
    """Without error correction a cut chain may be chosen; the target must still answer, not think on."""
    draft = Script([["x" * 50, "y" * 50]])
    target = Script(["\\boxed{5}"], decides=["2"])
    engines = {"draft": draft.engine(thinks=True), "target": target.engine(thinks=True)}
    trace = await solve("scot", engines, drafts=2, draft_tokens=30, error_correction=False)
    assert target.prompts[-1].endswith("y" * 30 + "\n</think>\n\n")
    assert [s.role for s in trace.steps] == ["draft", "answer"]


async def test_scot_rethinks_unasked_where_every_chain_was_cut_off() -> None:
    draft = Script([["x" * 50, "y" * 50]])
    target = Script(["\\boxed{5}"])
    trace = await solve("scot", {"draft": draft.engine(), "target": target.engine()}, drafts=2, draft_tokens=30)
    assert trace.steps[0].role == "rethink"
    assert trace.steps[0].verdict is None
