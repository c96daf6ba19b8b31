"""What a method may ask of a chain, by plug-ins of a few lines."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import methods
from harness.chain import Chain, Limits, as_candidates
from harness.engine import Role
from harness.engines.scripted import ScriptedEngine
from harness.methods import Method, Model
from harness.methods.plugins import MethodFailed
from harness.methods.rsd import RSD
from harness.prompts import BUILT_IN, prompt_hash
from harness.sample import run_sample
from harness.trace import Trace
from tests.harness.scripts import PROBLEM, Script, new_trace


@dataclass(frozen=True)
class Cascade(Method):
    """The draft judges its own step, and the target only where the draft is unsure."""

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            [step] = await chain.propose(draft, 1, max_tokens=100)
            [candidate] = as_candidates([step])
            verdicts = [await chain.score(draft, step, draft)]
            if verdicts[0].decision < 7:
                verdicts.append(await chain.score(target, step, draft))
            last = verdicts[-1]
            last.score = float(last.decision)
            candidate.accepted = last.accepted = last.score >= 7
            if last.accepted:
                chain.accept(draft, "draft", step, [candidate], verdicts)
            else:
                await chain.write(target, "fallback", max_tokens=100, refused=[candidate], verdict=verdicts)


@dataclass(frozen=True)
class DraftTree(Method):
    """Two beginnings and what follows each; the target chooses a beginning and scores what follows it."""

    @property
    def parallel(self) -> int:
        return 2

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            roots = await chain.propose(draft, 2, max_tokens=100)
            behind = [[(draft, root)] for root in roots]
            leaves = await chain.propose_each(draft, behind, max_tokens=100, purpose="draft")
            candidates = as_candidates(roots)
            choice = await chain.choose(target, candidates)
            choice.accepted = choice.decision < 2
            if not choice.accepted:
                await chain.write(target, "fallback", max_tokens=100, refused=candidates, verdict=choice)
                continue
            candidates[choice.decision].accepted = True
            chain.accept(draft, "draft", roots[choice.decision], candidates, choice)
            if not chain.answered:
                leaf = leaves[choice.decision]
                verdict = await chain.score(target, leaf, draft)
                verdict.score, verdict.accepted = float(verdict.decision), verdict.decision >= 7
                if verdict.accepted:
                    chain.accept(draft, "draft", leaf, as_candidates([leaf]), verdict)


@dataclass(frozen=True)
class EarlyExit(Method):
    """The target stops to think once a trial answer is certain."""

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("target",)

    @property
    def step_separator(self) -> str:
        return "\nWait"

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        if not chain.steps:
            await chain.write(target, "thought", max_tokens=100)
        while chain.reasoning and not chain.answered:
            [trial] = await chain.probe(target, "\nAnswer: ", max_tokens=5, temperature=0.0, token_logprobs=True)
            if min(trial.token_logprobs or (-9.0,)) > -0.1:
                chain.close(target)
            else:
                await chain.write(target, "thought", max_tokens=100)
        if not chain.answered:
            await chain.answer(target)


async def _run(method: Method, engines: dict[Any, ScriptedEngine], trace: Trace | None = None) -> Trace:
    limits, wording = Limits(0.6, 0.95, 1000), method.worded(BUILT_IN)
    return await run_sample(PROBLEM, method, engines, trace or new_trace(), limits, wording=wording)


async def test_every_verdict_is_kept_in_its_order_with_the_model_that_gave_it() -> None:
    draft, target = Script(["one\n\n", "two\n\n", "\\boxed{5}"], ["9", "3", "4"]), Script(["2\n\n"], ["2", "8"])
    trace = await _run(Cascade(), {"draft": draft.engine(), "target": target.engine()})
    told = [[(v.model, v.decision, v.accepted) for v in step.verdicts] for step in trace.steps]
    assert told == [
        [("draft", 9, True)],
        [("draft", 3, False), ("target", 2, False)],
        [("draft", 4, False), ("target", 8, True)],
    ]
    assert [step.verdict and step.verdict.model for step in trace.steps] == ["draft", "target", "target"]
    assert [c.model for c in trace.calls if c.purpose == "verdict"] == ["draft", "draft", "target", "draft", "target"]


async def test_a_tree_of_drafts_is_walked_by_two_kinds_of_verdict() -> None:
    roots, more = ["left\n\n", "right\n\n"], ["so\n\n", "\\boxed{5}\n\n"]
    draft = Script([roots, "left two\n\n", "right two\n\n", more, "a\n\n", "b\n\n"])
    target = Script(["third\n\n"], ["2", "8", "2"])
    trace = await _run(DraftTree(), {"draft": draft.engine(), "target": target.engine()})
    assert trace.output_text == "right\n\nright two\n\n\\boxed{5}\n\n"
    assert [v.kind for step in trace.steps for v in step.verdicts] == ["choice", "score", "choice"]


def _unsure_then_sure(before: str, token: str) -> tuple[float, float]:
    return (-0.01 if "second" in before else -1.0, 0.0)


async def test_a_probe_is_spent_and_not_kept_and_a_closed_thought_is_answered() -> None:
    script = Script(["first\nWait", "4", "second\nWait", "5", "It is \\boxed{5}."])
    trace = await _run(EarlyExit(), {"target": script.engine(thinks=True, weigh=_unsure_then_sure)})
    assert trace.output_text == "first\nWaitsecond\nWait\n</think>\n\nIt is \\boxed{5}."
    assert [(s.role, s.num_tokens) for s in trace.steps if s.role == "closing"] == [("closing", 0)]
    probes = [call for call in trace.calls if call.purpose == "probe"]
    assert [(call.step, call.output_tokens) for call in probes] == [(1, 2), (2, 2)]
    assert trace.spent_tokens() == trace.emitted_tokens + sum(call.output_tokens for call in probes)
    assert script.prompts[1].endswith("first\nWait\nAnswer: ")
    assert script.prompts[2].endswith("first\nWait"), "the chain goes on without the trial answer"


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("num_held", [1, 2])
async def test_a_chain_that_was_killed_around_its_closing_goes_on_as_undisturbed(thinks: bool, num_held: int) -> None:
    whole = Script(["second\nWait", "5", "It is 5"])
    trace = await _run(EarlyExit(), {"target": whole.engine(thinks=thinks, weigh=_unsure_then_sure)})
    assert [step.role for step in trace.steps] == ["thought", "closing", "answer"]
    rest, half = Script(["5", "It is 5"][num_held - 1 :]), new_trace()
    half.steps = trace.steps[:num_held]
    again = await _run(EarlyExit(), {"target": rest.engine(thinks=thinks, weigh=_unsure_then_sure)}, half)
    assert [(step.role, step.text) for step in again.steps] == [(step.role, step.text) for step in trace.steps]
    assert rest.prompts == whole.prompts[num_held:]


async def test_a_model_with_a_head_rates_and_writes_nothing() -> None:
    rated: list[str] = []

    def head(prompt: str) -> list[float]:
        rated.append(prompt)
        return [3.0] if "good" in prompt.rsplit("\n\n", 2)[-2] else [-3.0]

    draft, target = Script(["good\n\n", "bad\n\n", "good \\boxed{5}\n\n"]), Script(["good too\n\n"])
    reward = ScriptedEngine(lambda *_: [], lambda *_: [], head=head)
    trace = await _run(RSD(delta=0.5), {"draft": draft.engine(), "target": target.engine(), "reward": reward})
    assert [step.author for step in trace.steps] == ["draft", "target", "draft"]
    assert [round(step.verdict.score or 0, 2) for step in trace.steps if step.verdict] == [0.95, 0.05, 0.95]
    assert [c.output_tokens for c in trace.calls if c.model == "reward"] == [0, 0, 0]
    assert rated[0].endswith("good\n\n"), "it reads at the end of the step"


async def test_a_model_without_a_head_is_not_asked_to_rate() -> None:
    @dataclass(frozen=True)
    class Wrong(Method):
        async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
            [step] = await chain.propose(draft, 1, max_tokens=100)
            await chain.rate(target, [step], draft)

    with pytest.raises(MethodFailed, match="the target model has no head of its own"):
        await _run(Wrong(), {"draft": Script(["a\n\n"]).engine(), "target": Script().engine()})


def test_a_method_s_step_separator_counts_unless_the_prompt_file_has_one() -> None:
    own = BUILT_IN.model_copy(update={"step_separator": "\n"})
    assert EarlyExit().worded(BUILT_IN).step_separator == "\nWait"
    assert EarlyExit().worded(own) == own
    assert Cascade().worded(BUILT_IN) is BUILT_IN
    assert prompt_hash(EarlyExit().worded(BUILT_IN)) != prompt_hash(BUILT_IN)


def test_the_page_has_every_call_with_its_parameters_and_every_property() -> None:
    page = (Path(methods.__file__).parent / "README.md").read_text(encoding="utf-8")
    told = {
        name: [one.strip("*") for one in re.sub("=[^,]*", "", text).split(", ") if one.strip("*")]
        for name, text in re.findall(r"^\| `(?:await )?chain\.(\w+)\((.*?)\)` \|", page, re.MULTILINE)
    }
    public = {name: call for name, call in vars(Chain).items() if inspect.isfunction(call) and name[0] != "_"}
    assert told == {name: [*inspect.signature(call).parameters][1:] for name, call in public.items()}
    shown = [*vars(Chain(PROBLEM, [], new_trace(), Limits(0, 1, 1))), *_properties(Chain), *_properties(Method)]
    assert [name for name in shown if name[0] != "_" and f"`{name}`" not in page] == []


def _properties(owner: type) -> list[str]:
    return [name for name, member in vars(owner).items() if isinstance(member, property)]
