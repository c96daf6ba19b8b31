"""What a chain asks: joint verdicts on whole steps, rewards, probabilities of texts, and what is recorded of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harness.chain import Chain, Limits, Stop
from harness.chain.chain import ModelContext
from harness.chain.step_candidates import as_candidates, offered_texts
from harness.engine import Completion, Role, Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import METHODS
from harness.methods.method import Method, required_context_tokens
from harness.prompts import parse, prompt_hash, reward_question, step_choice_question
from harness.recording import Model
from harness.sample import run_sample
from harness.trace import Decision, Trace
from tests.harness.scripts import PROBLEM, OtherTokenizer, Script, new_trace, solve

LIMITS = Limits(0.0, 1.0, 400)


@dataclass(frozen=True)
class Rewarded(Method):
    """Accepts a draft by its reward."""

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target", "reward")

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            [step] = await chain.propose(draft, 1, max_tokens=50)
            decision = Decision.at_least("reward", (await chain.reward(step, draft)).score or 0.0, 0.7)
            if decision.accepted:
                chain.accept(draft, "draft", step, decision=decision)
            else:
                await chain.write(target, "fallback", max_tokens=50, decision=decision)


def _engine(script: Script, tokenizer: ByteTokenizer | None = None) -> ScriptedEngine:
    return ScriptedEngine(script.write, script.judge, tokenizer or ByteTokenizer(), weigh=lambda before, token: (-1, 2))


def _chain(engines: dict[Role, ScriptedEngine]) -> tuple[Chain, dict[Role, Model], Trace]:
    trace = new_trace()
    models = {role: Model(engine, role, trace) for role, engine in engines.items()}
    return Chain(PROBLEM, list(models.values()), trace, LIMITS), models, trace


async def test_a_reward_model_rates_each_draft_behind_the_chain_and_its_calls_are_its_own() -> None:
    reward = Script(decides=["+", "-"])
    engines: dict[Role, ScriptedEngine] = {
        "draft": _engine(Script(["First.\n\n", "Wrong."])),
        "target": _engine(Script(["So \\boxed{5}."])),
        "reward": _engine(reward),
    }
    trace = await run_sample(PROBLEM, Rewarded(), engines, new_trace(), LIMITS)
    assert [step.author for step in trace.steps] == ["draft", "target"]
    decisions = [step.decision for step in trace.steps if step.decision]
    assert [(d.kind, d.accepted) for d in decisions] == [("reward", True), ("reward", False)]
    assert [d.value for d in decisions] == pytest.approx([0.9, 0.1])
    judged = reward.prompts[1]
    question = ByteTokenizer().decode(reward_question(ByteTokenizer()).ids)
    assert judged.endswith("Assistant: First.\n\nWrong." + question)
    assert [(c.purpose, c.model, c.output_tokens) for c in trace.calls if c.model == "reward"] == [
        ("verdict", "reward", 1)
    ] * 2
    assert trace.spent_tokens("reward") == 2
    assert trace.spent_tokens("target") == trace.steps[1].num_tokens


async def test_a_reward_model_may_have_a_tokenizer_of_its_own_and_other_words() -> None:
    wording = parse("[reward]\nquestion = ''\nreply = 'ok?'\ngood = 'y'\nbad = 'n'", "f")
    reward = Script(decides=["n"])
    trace = new_trace()
    engines = {"draft": _engine(Script(["One.\n\n"])), "reward": _engine(reward, OtherTokenizer())}
    roles: tuple[Role, ...] = ("draft", "reward")
    models = {role: Model(engines[role], role, trace) for role in roles}
    chain = Chain(PROBLEM, list(models.values()), trace, LIMITS, wording=wording)
    [step] = await chain.propose(models["draft"], 1, max_tokens=50)
    assert (await chain.reward(step, models["draft"])).score == pytest.approx(0.1)
    assert reward.prompts[0].endswith("One.\n\nok? ")


async def test_a_draft_comes_with_what_was_asked_about_its_tokens() -> None:
    chain, models, _ = _chain({"draft": _engine(Script(["ab.\n\n"] * 2))})
    [plain] = await chain.propose(models["draft"], 1, max_tokens=50)
    assert (plain.token_logprobs, plain.entropies) == (None, None)
    [told] = await chain.propose(models["draft"], 1, max_tokens=50, token_logprobs=True, entropies=True)
    assert (told.token_logprobs, told.entropies) == ((-1,) * 5, (2,) * 5)


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


async def test_a_question_that_does_not_fit_stops_the_sample_by_its_context() -> None:
    chain, models, _ = _chain({"draft": _engine(Script()), "reward": _engine(Script(decides=["+"]))})
    models["reward"].engine.context_tokens = 60  # type: ignore[misc]
    with pytest.raises(Stop, match="context"):
        await chain.reward(_completion("x" * 60), models["draft"])


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


async def test_the_models_continue_the_unfinished_step_itself() -> None:
    _, target = await speccot("Add.\n\n2 + ", [["x\n\n"] * 2, ["\\boxed{5}"] * 2], ["2", "1"])
    assert target.prompts[2].endswith("Add.\n\n2 + "), "the fallback continues where the guidance ended"


async def test_behind_guidance_that_ends_with_a_step_nothing_changes() -> None:
    trace, target = await speccot("Add.\n\n", [["2 + 3 = 5\n\n", "6\n\n"], ["\\boxed{5}"] * 2], ["1", "1"])
    assert verdict_prompt(target).startswith(trace.target_prompt + "Add.\n\n")
    assert trace.steps[1].verdict is not None
    assert "[1]\n2 + 3 = 5\n\n[2]\n6\n\n" in trace.steps[1].verdict.question


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


async def test_a_resumed_sample_is_judged_as_an_undisturbed_one() -> None:
    script = [["3 = 5\n\n", "4 = 6\n\n"], ["\\boxed{5}"] * 2]
    trace, target = await speccot("Add.\n\n2 + ", script, ["1", "1"])
    resumed = Trace("s0", PROBLEM.id, 0, seed=7, steps=trace.steps[:1])
    judge = Script([], decides=["1", "1"])
    await solve("speccot", {"draft": Script(script).engine(), "target": judge.engine()}, drafts=2, trace=resumed)
    assert judge.prompts == target.prompts[1:]


async def test_the_drafts_vocabulary_may_be_another() -> None:
    drafts = [["2 + 3 is "] * 2, ["5\n\n", "6\n\n"], ["\\boxed{5}"] * 2]
    options = {"draft_engine": {"tokenizer": OtherTokenizer()}, "step_tokens": 9}
    trace, target = await speccot("Add.\n\n2 ", drafts, ["1", "1", "1"], **options)
    assert trace.steps[2].verdict is not None
    assert "[1]\n2 2 + 3 is 5" in trace.steps[2].verdict.question
    assert "2 + 3 is" not in target.prompts[2].partition("Here are proposals")[0]


async def test_a_blank_candidate_behind_an_unfinished_step_is_that_step() -> None:
    trace, _ = await speccot("It is 5.", [["\n\n", "5!\n\n"], ["\\boxed{5}"] * 2], ["1", "1"])
    assert trace.steps[1].verdict is not None
    assert "[1]\nIt is 5.\n\n[2]\nIt is 5.5!" in trace.steps[1].verdict.question


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


def test_a_blank_line_may_be_split_between_two_pieces() -> None:
    author = model(ByteTokenizer())
    context = ModelContext(author.tokenizer, PROBLEM)
    opening = len(context.ids)
    for piece in ("one\n", "\ntwo", " three"):
        context.append(author.tokenizer.encode(piece), piece, author.tokenizer)
    assert author.tokenizer.decode(context.whole_steps()[opening:]) == "one\n\n"
    assert context.open_text == "two three"


def test_two_options_never_look_equal() -> None:
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 5.\n\n", "So 5.\n</think>\n\n"])
    assert "[1]\nSo 5.\n\n[2]\nSo 5.\n(the solution ends here)" in question.text
    question = step_choice_question(ByteTokenizer(thinks=True), ["So 6.\n\n", "So 5.\n</think>\n\n"])
    assert "(the solution ends here)" not in question.text, "a last step that nothing equals is shown as it is"


def test_candidates_that_close_the_thought_behind_different_whitespace_are_one_option() -> None:
    texts = ["So 5.</think>\n\n", "So 5.\n</think>\n\n", "So 5.\n\n"]
    candidates = as_candidates([Completion((1,), text, "stop", 1, 0.0) for text in texts])
    assert [candidate.option for candidate in candidates] == [0, 0, 1]
    assert offered_texts(candidates) == [texts[0], texts[2]]


def test_a_wording_can_mark_every_proposal_that_ends_the_reasoning() -> None:
    wording = parse("[step_choice]\nclosing = '(it ends)'", "own.toml")
    texts = ["So 6.\n\n", "So 5.\n</think>\n\n", "\n</think>\n\n"]
    question = step_choice_question(ByteTokenizer(thinks=True), texts, wording)
    assert "[1]\nSo 6.\n\n[2]\nSo 5.\n(it ends)\n\n[3]\n(the solution ends here)\n\n" in question.text
    assert prompt_hash(wording) != prompt_hash()
