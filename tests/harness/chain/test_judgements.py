"""What a chain asks: joint verdicts on whole steps, rewards, probabilities of texts, and what is recorded of that."""

from __future__ import annotations

from typing import Any

import pytest

from harness.chain import Chain, Limits
from harness.chain.chain import ModelContext
from harness.engine import Completion, Role, Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import METHODS
from harness.methods.method import required_context_tokens
from harness.prompts import step_choice_question
from harness.recording import Model
from harness.trace import Trace
from tests.harness.scripts import PROBLEM, OtherTokenizer, Script, new_trace, solve

LIMITS = Limits(0.0, 1.0, 400)


def _engine(script: Script, tokenizer: ByteTokenizer | None = None) -> ScriptedEngine:
    return ScriptedEngine(script.write, script.judge, tokenizer or ByteTokenizer(), weigh=lambda before, token: (-1, 2))


def _chain(engines: dict[Role, ScriptedEngine]) -> tuple[Chain, dict[Role, Model], Trace]:
    trace = new_trace()
    models = {role: Model(engine, role, trace) for role, engine in engines.items()}
    return Chain(PROBLEM, list(models.values()), trace, LIMITS), models, trace


async def test_a_models_probability_of_candidates_is_read_behind_the_chain_in_its_own_tokens() -> None:
    target = _engine(Script(), OtherTokenizer())
    seen: list[str] = []

    def weigh(before: str, token: str) -> tuple[float, float]:
        seen.append(before + token)
        return 1.0 - len(seen), 0.0

    target.weigh = weigh
    chain, models, trace = _chain({"draft": _engine(Script()), "target": target})
    candidates = [_completion("xy"), _completion(""), _completion("z")]
    logprobs = await chain.log_probabilities(models["target"], candidates, models["draft"])
    assert logprobs == [(0.0, -1.0), (), (-2.0,)]
    assert seen == [trace.target_prompt + text for text in ("x", "xy", "z")]
    [call] = trace.calls
    assert (call.purpose, call.model, call.n, call.output_tokens) == ("verdict", "target", 2, 2)


def _completion(text: str) -> Completion:
    ids = ByteTokenizer().encode(text)
    return Completion(tuple(ids), text, "stop", len(ids))


async def speccot(guidance: str, drafts: list[Any], decides: list[str], **params: Any) -> tuple[Trace, Script]:
    """Run speccot with two candidates per step; returns the trace and what the target was asked."""
    draft, target = Script(drafts), Script([guidance, "2 + 3 = 5\n\n"], decides=decides)
    engines = {"draft": draft.engine(**params.pop("draft_engine", {})), "target": target.engine()}
    trace = await solve("speccot", engines, drafts=2, guidance_tokens=len(guidance), **params)
    return trace, target


def verdict_prompt(target: Script) -> str:
    return target.prompts[1]


async def test_candidates_behind_guidance_are_shown_as_the_steps_that_they_complete() -> None:
    trace, target = await speccot("Add.\n\n2 + ", [["3 = 5\n\n", "4 = 6\n\n"], ["\\boxed{5}"] * 2], ["1", "1"])
    verdict = trace.steps[1].verdict
    assert verdict is not None
    assert "[1]\n2 + 3 = 5\n\n[2]\n2 + 4 = 6" in verdict.question
    chain = verdict_prompt(target).removeprefix(trace.target_prompt).partition("Here are proposals")[0]
    assert chain.startswith("Add.\n\n")
    assert "2 +" not in chain, "the target would read the beginning of the step twice"
    assert trace.output_text == "Add.\n\n2 + 3 = 5\n\n\\boxed{5}", "what is written continues the guidance itself"


async def test_a_step_that_was_cut_at_its_limit_is_judged_with_its_beginning() -> None:
    drafts = [["2 + 3 is "] * 2, ["5\n\n", "6\n\n"], ["\\boxed{5}"] * 2]
    trace, target = await speccot("Add.\n\n", drafts, ["1", "1", "1"], step_tokens=9)
    assert trace.steps[1].finish == "length"
    assert trace.steps[2].verdict is not None
    assert "[1]\n2 + 3 is 5\n\n[2]\n2 + 3 is 6" in trace.steps[2].verdict.question
    assert target.prompts[2].removeprefix(trace.target_prompt).startswith("Add.\n\n")
    assert "2 + 3 is" not in target.prompts[2].partition("Here are proposals")[0]


async def test_a_chain_without_blank_lines_reaches_its_budget_as_the_context_is_planned() -> None:
    def write(prompt: str, sampling: Sampling) -> list[str]:
        return [f"line {len(prompt)} of draft {i}\n" * 9 for i in range(sampling.n)]

    budget = 1024
    params: dict[str, Any] = {"drafts": 2, "step_tokens": 64, "guidance_tokens": 0}
    room = required_context_tokens([PROBLEM], budget, METHODS["speccot"](**params).verdict_tokens(budget))
    draft, target = (ScriptedEngine(write, lambda _, labels: [1.0] * len(labels), context_tokens=room) for _ in "dt")
    trace = await solve("speccot", {"draft": draft, "target": target}, budget=budget, **params)
    assert trace.stop_reason == "budget"
    questions = [step.verdict.question for step in trace.steps if step.verdict]
    assert questions[3].count(trace.steps[0].text) == 2, "each candidate is shown with the beginning of its step"
    assert questions[-1].count(trace.steps[0].text) == 0, "where it fits, and else without"


def model(tokenizer: Any) -> Model:
    return Model(Script().engine(tokenizer=tokenizer), "target", Trace("s", "p", 0, seed=0))


class PairTokenizer(ByteTokenizer):
    """Two characters in every token, so that tokens straddle the end of a step."""

    def encode(self, text: str) -> list[int]:
        data = text.encode() + b"\0" * (len(text.encode()) % 2)
        return [1000 + 256 * data[i] + data[i + 1] for i in range(0, len(data), 2)]

    def decode(self, ids: Any) -> str:
        return bytes(byte for i in ids for byte in divmod(i - 1000, 256) if byte).decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["a.\n\nb", "ab.\n\nb", "a.\n\nbc\n\nd", "\n\nx", "é\n\nü", "a\n\n\nb"])
@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), PairTokenizer()])
def test_the_context_of_whole_steps_ends_at_the_last_blank_line(text: str, tokenizer: ByteTokenizer) -> None:
    author = model(tokenizer)
    context = ModelContext(author.tokenizer, PROBLEM)
    num_prompt = len(context.ids)
    context.append(tokenizer.encode(text), text, author.tokenizer)
    whole = text[: text.rindex("\n\n") + 2]
    assert tokenizer.decode(context.whole_steps()[num_prompt:]) == whole
    assert context.open_text == text.removeprefix(whole)


def test_two_options_never_look_equal() -> None:
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 5.\n\n", "So 5.\n</think>\n\n"])
    assert "[1]\nSo 5.\n\n[2]\nSo 5.\n(the solution ends here)" in question.text
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 6.\n\n", "So 5.\n</think>\n\n"])
    assert "(the solution ends here)" not in question.text, "a last step that nothing equals is shown as it is"
