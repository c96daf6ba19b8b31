"""Early exit against both programs: where a trial answer is asked for, when it is certain, and what follows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.engine import Role
from harness.methods import build
from harness.trace import Trace
from tests.harness.scripts import Script, solve

BRIDGE = "\n\nFinal answer: \\boxed{"


def weigh(before: str, token: str) -> tuple[float, float]:
    """A digit of 5 is certain, a question mark improbable."""
    return math.log({"?": 0.5, "}": 0.92}.get(token, 1.0)), 0.0


async def exits(target: Script, *, thinks: bool = True, **params: Any) -> Trace:
    return await solve("early_exit", {"target": target.engine(thinks=thinks, weigh=weigh)}, **params)


def decided(trace: Trace) -> list[tuple[str, float | None, bool] | None]:
    return [(d.kind, d.value, d.accepted) if (d := step.decision) else None for step in trace.steps]


async def test_the_thought_ends_where_the_last_trial_answers_agree() -> None:
    target = Script(["aaaa", "4}", "bbbb", "5}.", "cccc", " 5 }", "So \\boxed{5}."])
    trace = await exits(target, window=2, interval=4)
    assert trace.output_text == "aaaabbbbcccc\n</think>\n\nSo \\boxed{5}."
    assert [step.role for step in trace.steps] == ["thought", "thought", "thought", "closing", "answer"]
    assert decided(trace) == [None, ("agreement", 1, False), ("agreement", 1, False), ("agreement", 2, True), None]
    assert [[(c.text, c.accepted) for c in step.candidates] for step in trace.steps] == [
        *([], [("4}", False)], [("5}.", False)], [(" 5 }", True)], [])
    ]
    assert [(s.max_tokens, s.stop, s.temperature) for s in target.samplings[:2]] == [
        (4, ("</think>",), 0.6),
        (20, (), 0.6),
    ]
    assert target.prompts[1].endswith("aaaa" + BRIDGE)
    assert target.prompts[2].endswith("aaaa"), "a trial answer is not kept"
    probes = [call for call in trace.calls if call.purpose == "probe"]
    assert [(call.step, call.output_tokens) for call in probes] == [(1, 3), (2, 4), (3, 5)]
    assert trace.spent_tokens() == trace.emitted_tokens + 12


@pytest.mark.parametrize("trial", ["}", "5", "5} but wait", "6}"], ids=["empty", "unclosed", "in doubt", "another"])
async def test_a_trial_answer_that_is_no_answer_or_in_doubt_breaks_the_row(trial: str) -> None:
    target = Script(["aaaa", "5}", "bbbb", trial, "cccc", "5}", "dddd", "5}", "\\boxed{5}"])
    trace = await exits(target, window=2, interval=4)
    values = [decision[1] for decision in decided(trace) if decision]
    assert values == [1, 1 if trial == "6}" else 0, 1, 2]


async def test_confidence_asks_in_place_of_the_transition_which_opens_the_next_thought() -> None:
    target = Script(["So 4. Wait", "?}", ", 2 + 3 is 5. Wait", "5}", "So \\boxed{5}."])
    trace = await exits(target, criterion="confidence")
    assert [step.text for step in trace.steps][:2] == ["So 4. ", "Wait, 2 + 3 is 5. "]
    assert trace.output_text == "So 4. Wait, 2 + 3 is 5. \n</think>\n\nSo \\boxed{5}."
    decisions = [step.decision for step in trace.steps if step.decision]
    assert [d.value for d in decisions] == pytest.approx([0.71, 0.96])
    assert [(d.kind, d.threshold, d.accepted) for d in decisions] == [
        ("confidence", 0.95, False),
        ("confidence", 0.95, True),
    ]
    assert [s.stop for s in target.samplings][:3] == [("Wait", "</think>"), (), ("Wait", "</think>")]
    assert [(s.temperature, s.token_logprobs) for s in target.samplings][:2] == [(0.6, False), (0.0, True)]
    assert target.prompts[1].endswith("So 4. " + BRIDGE)
    assert target.prompts[2].endswith("So 4. Wait")


@pytest.mark.parametrize(("certainty", "is_closed"), [(0.959, True), (0.961, False)])
async def test_what_follows_the_closing_brace_is_not_part_of_the_confidence(certainty: float, is_closed: bool) -> None:
    target = Script(["aWait", "5}???", "b</think>", "\\boxed{5}"])
    trace = await exits(target, criterion="confidence", certainty=certainty)
    assert (trace.steps[1].role == "closing") is is_closed


@pytest.mark.parametrize(("writer", "prober"), [("draft", "target"), ("target", "draft"), ("draft", "draft")])
async def test_one_model_thinks_and_the_one_that_is_certain_closes_and_answers(writer: Role, prober: Role) -> None:
    think, answer = ["aaaa"], ["5}", "So \\boxed{5}."]
    scripts = {writer: Script(think), prober: Script(answer)} if writer != prober else {writer: Script(think + answer)}
    engines = {role: script.engine(thinks=True) for role, script in scripts.items()}
    trace = await solve("early_exit", engines, window=1, interval=4, writer=writer, prober=prober)
    assert [(step.author, step.role) for step in trace.steps] == [
        *((writer, "thought"), (prober, "closing"), (prober, "answer"))
    ]
    assert set(build("early_exit", {"writer": writer, "prober": prober}).roles) == {writer, prober}
