"""What a method may ask of a chain, by plug-ins of a few lines."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from harness.chain import Chain, Limits
from harness.engines.scripted import ScriptedEngine
from harness.methods import Method
from harness.methods.rsd import RSD
from harness.prompts import BUILT_IN, prompt_hash
from tests.harness.scripts import PROBLEM, Script, new_trace, solve


async def test_a_model_with_a_head_rates_and_writes_nothing() -> None:
    rated: list[str] = []

    def head(prompt: str) -> list[float]:
        rated.append(prompt)
        return [3.0] if "good" in prompt.rsplit("\n\n", 2)[-2] else [-3.0]

    draft, target = Script(["good\n\n", "bad\n\n", "good \\boxed{5}\n\n"]), Script(["good too\n\n"])
    reward = ScriptedEngine(lambda *_: [], lambda *_: [], head=head)
    engines = {"draft": draft.engine(), "target": target.engine(), "reward": reward}
    trace = await solve("rsd", engines, delta=0.5)
    assert [step.author for step in trace.steps] == ["draft", "target", "draft"]
    assert [round(step.verdict.score or 0, 2) for step in trace.steps if step.verdict] == [0.95, 0.05, 0.95]
    assert [c.output_tokens for c in trace.calls if c.model == "reward"] == [0, 0, 0]
    assert rated[0].endswith("good\n\n"), "it reads at the end of the step"


def test_a_method_s_step_separator_counts_unless_the_prompt_file_has_one() -> None:
    class Lines(RSD):
        step_separator = "\nWait"

    own = BUILT_IN.model_copy(update={"step_separator": "\n"})
    assert Lines().worded(BUILT_IN).step_separator == "\nWait"
    assert Lines().worded(own) == own
    assert RSD().worded(BUILT_IN) is BUILT_IN
    assert prompt_hash(Lines().worded(BUILT_IN)) != prompt_hash(BUILT_IN)


def test_the_page_has_every_call_with_its_parameters_and_every_property() -> None:
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
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
