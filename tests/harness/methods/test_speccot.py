"""SpecCoT against its paper, over scripted engines, and what every chain has in common: limits, thoughts, counts."""

from __future__ import annotations

import pytest

from harness.engine import RequestRefused
from tests.harness.scripts import PROBLEM, Script, solve, solve_pair


async def test_vanilla_is_one_call_of_one_model() -> None:
    target = Script(["First.\n\nSo \\boxed{5}."])
    trace = await solve("vanilla", {"target": target.engine()})
    assert [(s.author, s.role) for s in trace.steps] == [("target", "chain")]
    assert trace.stop_reason == "answered"
    assert PROBLEM.text in target.prompts[0]
    assert trace.emitted_tokens == trace.spent_tokens() == trace.critical_path_tokens


async def test_speccot_guides_then_takes_the_chosen_of_the_distinct_drafts() -> None:
    draft = Script([["2 + 3 = 6\n\n", "2 + 3 = 5\n\n", "2 + 3 = 6\n\n"], ["So \\boxed{5}."] * 3])
    target = Script(["First: add"], decides=["2", "1"])
    trace = await solve_pair("speccot", draft, target, drafts=3, guidance_tokens=10)
    assert [(s.author, s.role) for s in trace.steps] == [("target", "guidance"), ("draft", "draft"), ("draft", "draft")]
    assert trace.output_text == "First: add2 + 3 = 5\n\nSo \\boxed{5}."
    assert trace.stop_reason == "answered"
    chosen = trace.steps[1]
    assert [(c.option, c.accepted) for c in chosen.candidates] == [(0, False), (1, True), (0, False)]
    assert chosen.verdict is not None
    assert chosen.verdict.options == ("1", "2", "3")
    for offered in ("[1]\nFirst: add2 + 3 = 6", "[2]\nFirst: add2 + 3 = 5", "reply with 3"):
        assert offered in chosen.verdict.question
    assert sum(chosen.verdict.probabilities) == pytest.approx(1)


async def test_speccot_reasoning_model_answers_itself_after_the_thought() -> None:
    draft = Script([["so: 5\n\n"], ["done</think>\n\n"]])
    target = Script(["The answer is \\boxed{5}."], decides=["1", "1"])
    trace = await solve_pair("speccot", draft, target, thinks=True, drafts=1, guidance_tokens=0)
    assert [(s.author, s.role) for s in trace.steps][-1] == ("target", "answer")
    assert trace.target_prompt.endswith("<think>\n")
    assert target.prompts[-1].endswith("so: 5\n\ndone</think>\n\n")


async def test_a_thought_that_falls_silent_is_closed_before_the_answer() -> None:
    draft = Script([["so: 5"]])
    target = Script(["\\boxed{5}"], decides=["1"])
    trace = await solve_pair("speccot", draft, target, thinks=True, drafts=1, guidance_tokens=0)
    assert trace.output_text == "so: 5\n</think>\n\n\\boxed{5}"
    assert trace.steps[0].num_tokens == len("so: 5") + 1, "what the harness forced is nobody's token"


async def test_a_step_that_repeats_the_one_before_stops_the_sample() -> None:
    engines = {"draft": Script([["same\n\n"], ["same\n\n"]]).engine(), "target": Script(decides=["1"] * 2).engine()}
    trace = await solve("speccot", engines, drafts=1, guidance_tokens=0)
    assert trace.stop_reason == "repeated"
    assert len(trace.steps) == 2


async def test_a_refused_request_is_data() -> None:
    engine = Script(["x"]).engine(failures={0: RequestRefused("long")})
    trace = await solve("vanilla", {"target": engine})
    assert (trace.stop_reason, trace.error) == ("error", "RequestRefused: long")


async def test_speccot_separate_verdicts_score_each_candidate_where_it_would_stand() -> None:
    draft = Script([["2 + 3 = 6\n\n", "2 + 3 = 5\n\n", "2 + 3 = 6\n\n"], ["So \\boxed{5}."] * 3])
    target = Script(decides=["2", "8", "9"])
    trace = await solve_pair("speccot", draft, target, drafts=3, guidance_tokens=0, verdict="separate")
    assert trace.output_text == "2 + 3 = 5\n\nSo \\boxed{5}."
    assert [c.accepted for c in trace.steps[0].candidates] == [False, True, False]
    scores = [c.verdict_score or 0 for c in trace.steps[0].candidates]
    assert 0 < scores[0] == scores[2] < scores[1]
    verdict = trace.steps[0].verdict
    assert verdict is not None
    assert (verdict.kind, verdict.accepted, verdict.score) == ("score", True, scores[1])
    judged = target.prompts[:2]
    assert [prompt.rpartition("2 + 3 = ")[2] for prompt in judged] == ["6\n\nScore: ", "5\n\nScore: "]
    assert "«Score:»" in judged[0].partition("2 + 3 = 6")[0]
    calls = [call for call in trace.calls if call.purpose == "verdict"]
    assert [(call.n, call.output_tokens, call.longest_output_tokens) for call in calls] == [(2, 2, 1), (1, 1, 1)]


async def test_speccot_may_take_drafts_that_agree_without_asking() -> None:
    draft = Script([["2 + 3 = 5\n\n", "2 + 3 = 5\n"], ["so \\boxed{5}", "so \\boxed{6}"]])
    target = Script(decides=["1"])
    trace = await solve_pair("speccot", draft, target, drafts=2, guidance_tokens=0, skip_agreed=True)
    assert [step.verdict is None for step in trace.steps] == [True, False]
    assert [c.accepted for c in trace.steps[0].candidates] == [True, False]
    assert sum(call.purpose == "verdict" for call in trace.calls) == 1
