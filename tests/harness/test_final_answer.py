"""Who writes the final answer, and where a chain ends, where a paper leaves it open or its program decides."""

from __future__ import annotations

import pytest

from grading import Gold, grade
from harness.ending import kept_open
from jobs.after.grading import FinishedSample, _submission
from tests.harness.scripts import Script, solve


@pytest.mark.parametrize("author", ["target", "draft"])
async def test_speccot_lets_the_chosen_model_write_the_final_answer(author: str) -> None:
    closing = [["done</think>\n\n"]]
    draft = Script([*closing, "It is \\boxed{5}."])
    target = Script(["It is \\boxed{5}."], decides=["1"])
    engines = {"draft": draft.engine(thinks=True), "target": target.engine(thinks=True)}
    trace = await solve("speccot", engines, drafts=1, guidance_tokens=0, answer_by=author)
    assert [(s.author, s.role) for s in trace.steps] == [("draft", "draft"), (author, "answer")]
    assert trace.stop_reason == "answered"


THOUGHT = [["maybe \\boxed{4}\n\n"], ["no\n\n"], ["5</think>\n\n"], ["\\boxed{5}"]]


@pytest.mark.parametrize(("ends_at", "num_steps"), [("answer", 4), ("boxed", 1)])
async def test_specreason_may_end_at_a_box_inside_the_thought(ends_at: str, num_steps: int) -> None:
    engines = {
        "draft": Script(THOUGHT).engine(thinks=True),
        "target": Script([], decides=["9"] * 4).engine(thinks=True),
    }
    trace = await solve("specreason", engines, ends_at=ends_at)
    assert len(trace.steps) == num_steps
    assert trace.stop_reason == "answered"


@pytest.mark.parametrize("answer", ["Answer: 5\n\n", "ANSWER: 5\n\n", "the boxed one\n\n"])
async def test_what_the_authors_program_takes_for_an_answer_ends_the_chain(answer: str) -> None:
    engines = {
        "draft": Script([["two\n\n"], [answer]]).engine(thinks=True),
        "target": Script([], decides=["9"] * 2).engine(thinks=True),
    }
    trace = await solve("specreason", engines, ends_at="boxed")
    assert trace.output_text == "two\n\n" + answer
    assert trace.stop_reason == "answered"


async def test_a_thought_that_closes_without_an_answer_continues() -> None:
    draft = Script([["so</think>\n\n"], ["it is"], ["\\boxed{5}"]])
    target = Script([], decides=["9"] * 3)
    engines = {"draft": draft.engine(thinks=True), "target": target.engine(thinks=True)}
    trace = await solve("specreason", engines, ends_at="boxed")
    assert trace.output_text == "so\n\nit is\n\n\\boxed{5}"
    assert draft.prompts[-1].endswith("so\n\nit is\n\n")
    assert "so</think>" in target.prompts[0], "the target scores the step as it was written"


def test_a_step_with_an_answer_is_kept_as_it_is() -> None:
    assert kept_open("</think>\n\n\\boxed{5}", "eos") == "</think>\n\n\\boxed{5}"


async def test_every_step_ends_with_the_separator_also_one_that_was_cut() -> None:
    draft = Script([["so it is\n\n"], ["\\boxed"]])
    target = Script([], decides=["9"] * 2)
    engines = {"draft": draft.engine(thinks=True), "target": target.engine(thinks=True)}
    trace = await solve("specreason", engines, ends_at="boxed", step_tokens=6)
    assert [step.finish for step in trace.steps] == ["length", "length"]
    assert trace.output_text == "so it \n\n\\boxed"


@pytest.mark.parametrize("end", ["\n\n", "\n</think>\n\n"])
def test_an_answer_inside_the_thought_is_graded_also_where_its_step_closes_the_thought(end: str) -> None:
    sample: FinishedSample = {
        "sample_id": "s",
        "problem_id": "p",
        "text": "2 + 3\n\n\\boxed{5}" + end,
        "stop_reason": "answered",
        "draft_prompt": "<think>\n",
        "target_prompt": "<think>\n",
    }
    gold = Gold("5")
    assert grade(_submission(sample, answers_in_thought=True), gold).verdict == "correct"
    assert grade(_submission(sample, answers_in_thought=False), gold).verdict == "no_answer"
