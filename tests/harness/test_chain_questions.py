"""What a chain asks beside verdicts: rewards, probabilities of given texts, and what is recorded of that."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from harness.chain import Chain, Limits, Stop
from harness.engine import Completion, Role
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods.method import Method
from harness.prompt_file import parse
from harness.prompts import reward_question
from harness.recording import Model
from harness.sample import run_sample
from harness.trace import Decision, Trace
from tests.harness.scripts import PROBLEM, OtherTokenizer, Script, new_trace

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
            decision = Decision.at_least("reward", await chain.reward(step, draft), 0.7)
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
    assert await chain.reward(step, models["draft"]) == pytest.approx(0.1)
    assert reward.prompts[0].endswith("One.\n\nok? ")


async def test_several_candidates_are_rated_in_one_recorded_call() -> None:
    chain, models, trace = _chain(
        {"draft": _engine(Script([["a.\n\n", "b.\n\n"]])), "reward": _engine(Script(decides=["+", "-"]))}
    )
    candidates = await chain.propose(models["draft"], 2, max_tokens=50)
    assert await chain.reward_each(candidates, models["draft"]) == pytest.approx([0.9, 0.1])
    assert [(call.model, call.n, call.output_tokens) for call in trace.calls] == [("draft", 2, 8), ("reward", 2, 2)]


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
