"""The measurements on scripted engines: sound ones pass, and each fault that a check is for fails it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from harness.acceptance.calls import ACTS, deviations, mixed_load, purposes
from harness.acceptance.catalog import CHECKS, chosen
from harness.acceptance.group import functions
from harness.acceptance.outcome import Measurement, judged
from harness.acceptance.questions import questions
from harness.acceptance.rates import rates
from harness.acceptance.speculation import difference, lossless
from harness.bench.busy import Watch
from harness.bench.drive import Replay, Run
from harness.engine import Choice, Engine, Generation, RequestRefused, Role, Sampling, Timing, VerdictUnavailable
from harness.engines.scripted import ScriptedEngine
from harness.engines.simulated_model import SimulatedModel
from harness.problems.problem import Problem
from harness.trace import Purpose

PROBLEM = Problem("demo/0", "demo", "What is 4 + 3?", "7")
TIMING = Timing(0.0, 0.0, 0.0, 1.0, 1)


def scripted() -> ScriptedEngine:
    model = SimulatedModel()
    return ScriptedEngine(model.write, model.judge)


def engines(**changed: Engine) -> dict[Role, Engine]:
    return {"draft": changed.get("draft", scripted()), "target": changed.get("target", scripted())}


def passes(measurements: Sequence[Measurement]) -> bool:
    return judged("x", measurements, 0.0).status == "PASS"


class Unavailable(ScriptedEngine):
    """An engine that has no log-probabilities for some verdicts."""

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        if self.counters.choose_calls % 7 == 3:
            self.counters.choose_calls += 1
            raise VerdictUnavailable("-inf")
        return await super().choose(prompt, options)


def test_every_check_has_a_function_and_every_function_a_check() -> None:
    assert list(functions()) == list(CHECKS)


def test_a_purpose_that_is_added_needs_a_way_to_be_tested() -> None:
    assert {name.partition(" (")[0] for name in ACTS} == set(
        get_args(get_args(Purpose)[0])
    )  # the others are methods' own words


async def test_sound_engines_answer_every_purpose() -> None:
    assert passes(await purposes(engines(), PROBLEM))


@pytest.mark.parametrize(
    ("role", "named"), [("target", ["guidance", "verdict (score)", "fallback"]), ("draft", ["draft", "lookahead"])]
)
async def test_an_engine_that_refuses_a_request_fails_the_purposes_that_need_it(role: Role, named: list[str]) -> None:
    refusing = scripted()
    refusing.failures = {number: RequestRefused("no") for number in range(100)}
    measurements = await purposes(engines(**{role: refusing}), PROBLEM)
    assert not passes(measurements)
    assert all(f"{name}" in str(measurements[1].value) for name in named)


async def test_verdicts_like_the_reference_s_pass_and_wrong_ones_fail() -> None:
    asked = await questions(scripted(), [PROBLEM])
    assert len({one.kind for one in asked}) == 4
    expected = [await scripted().choose(one.prompt, one.options) for one in asked]
    assert passes(deviations(expected, expected, is_float32=True))
    assert passes(deviations(expected, expected, is_float32=False))
    model = SimulatedModel()
    wrong = ScriptedEngine(model.write, lambda prompt, labels: [p**0.9 for p in model.judge(prompt, labels)])
    given = [await wrong.choose(one.prompt, one.options) for one in asked]
    assert not passes(deviations(given, expected, is_float32=True))
    assert not passes(deviations(given, expected, is_float32=False))


def test_float32_is_judged_by_the_worst_option_and_rounded_numbers_by_the_likely_ones() -> None:
    expected = Choice((math.log(0.9), math.log(0.0999), math.log(0.0001)), 1, 0, TIMING)
    tail = replace(expected, logprobs=(*expected.logprobs[:2], expected.logprobs[2] + 0.1))
    assert not passes(deviations([tail], [expected], is_float32=True))
    assert passes(deviations([tail], [expected], is_float32=False))


async def test_verdicts_among_writers_count_what_was_unavailable_and_the_lowest_mass() -> None:
    asked = await questions(scripted(), [PROBLEM])
    writers = [[65, 66, 67]] * 5
    assert passes(await mixed_load(scripted(), writers, asked * 5, 4, is_mass_known=True))
    model = SimulatedModel()
    measurements = await mixed_load(Unavailable(model.write, model.judge), writers, asked * 5, 4, is_mass_known=True)
    assert not passes(measurements)
    assert {m.name: m.value for m in measurements}["unavailable"] == 3
    doubtful = ScriptedEngine(model.write, lambda prompt, labels: [0.5 / len(labels)] * len(labels))
    assert not passes(await mixed_load(doubtful, writers, asked, 4, is_mass_known=True))
    assert passes(await mixed_load(doubtful, writers, asked, 4, is_mass_known=False))


async def test_a_changed_token_is_not_lossless() -> None:
    engine = scripted()
    prompts = [engine.tokenizer.encode(f"What is {n} + 1?") for n in range(4)]
    before = [(await engine.generate(prompt, Sampling(20))).completions[0].token_ids for prompt in prompts]
    assert passes(await lossless(engine, prompts, before, 20))
    before[2] = (*before[2][:-1], before[2][-1] ^ 1)
    measurements = await lossless(engine, prompts, before, 20)
    assert not passes(measurements)
    assert measurements[0].value == 1


class Counting(ScriptedEngine):
    """An engine that counts proposed tokens, all of which it confirms."""

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        reply = await super().generate(prompt, sampling)
        counted = tuple(replace(c, proposed_tokens=9, confirmed_tokens=9) for c in reply.completions)
        return replace(reply, completions=counted)


async def test_where_no_proposed_token_was_rejected_nothing_is_shown() -> None:
    model = SimulatedModel()
    engine = Counting(model.write, model.judge)
    prompts = [engine.tokenizer.encode("What is 2 + 1?")]
    before = [(await engine.generate(prompts[0], Sampling(20))).completions[0].token_ids]
    outcome = judged("x", await lossless(engine, prompts, before, 20), 0.0)
    assert (outcome.status, outcome.reason) == ("FAIL", "not met: rejected")


def test_a_bias_is_found_and_noise_is_not_called_one() -> None:
    draw = random.Random(1)
    before = [draw.gauss(-0.5, 0.1) for _ in range(40)]
    same = [x + draw.gauss(0, 0.05) for x in before]
    assert passes(difference(same, before))
    assert not passes(difference([x + 0.05 for x in same], before))


def test_checks_are_chosen_by_name_in_their_own_order() -> None:
    assert [check.name for check in chosen(["purposes", "start"], [])] == ["start", "purposes"]
    assert [check.name for check in chosen(None, list(CHECKS)[1:])] == ["environment"]
    for only, skip in ((["speed"], []), (None, ["speed"])):
        with pytest.raises(ValueError, match="'speed' is not one of environment, start"):
            chosen(only, skip)


def test_what_does_not_apply_says_why() -> None:
    assert CHECKS["lossless-ngram"].skip_reason("transformers", "gpu", quick=False) is not None
    assert CHECKS["unbiased-draft"].skip_reason("vllm", "cpu", quick=False) is not None
    assert CHECKS["unbiased-draft"].skip_reason("vllm", "gpu", quick=True) == "of --quick"
    assert all(check.skip_reason("vllm", "gpu", quick=False) is None for check in CHECKS.values())


def watch(seconds: float, busy_seconds: float) -> Watch:
    measured = Watch()
    measured.seconds, measured.busy_seconds = seconds, busy_seconds
    return measured


@pytest.mark.parametrize(
    ("harness", "bare", "busy", "missed"),
    [(1.1, 1.0, 0.5, set()), (1.3, 1.0, 0.5, {"harness ÷ bare"}), (1.1, 1.0, 1.0, {"loop busy"})],
)
def test_a_slow_harness_and_a_busy_loop_are_told_from_a_slow_engine(
    harness: float, bare: float, busy: float, missed: set[str]
) -> None:
    runs = [Run("speccot", [], [], watch(seconds, busy)) for seconds in (5.0, harness)]
    replays = [Replay(0.0, watch(seconds, 0.1)) for seconds in (bare, 4.0)]
    assert {m.name for m in rates(runs, replays) if m.is_met is False} == missed
