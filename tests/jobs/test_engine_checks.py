"""Checks with engines: they pass with engines that keep the rules, and each fails where its rule is broken."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from harness.checks import engine_answers
from harness.checks.engine_answers import Machine, Measured, NotPossible, deviations
from harness.doctor import main as doctor
from harness.engine import Choice, Sampling, Timing, VerdictUnavailable
from harness.engines.scripted import ScriptedEngine
from jobs import engine_checks


def machine(work: Path, **values: Any) -> Machine:
    return Machine(**{"kind": "scripted", "device": "cpu", "draft": None, "target": None, "work": str(work), **values})


async def test_every_check_of_scripted_engines_passes_or_says_why_it_is_not_possible(tmp_path: Path) -> None:
    passed = []
    for name, make in engine_checks.CHECKS.items():
        outcome = await engine_checks.outcome_of(name, make, machine(tmp_path))
        if outcome.status == "ok":
            passed.append(name)
        else:
            assert outcome.status == "not possible here", outcome
            assert outcome.reason
    assert passed == ["start", "calls", "prefix-cache", "worker-killed", "preempted"]


def test_the_command_prints_a_line_for_every_check() -> None:
    done = CliRunner().invoke(doctor, ["--engines", "--engine", "scripted", "--json", "--only", "start"])
    [check] = json.loads(done.stdout)["checks"]
    assert (done.exit_code, check["check"], check["status"]) == (0, "start", "ok")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--only", "start,speed"], "'speed'"),
        (["--target", "no/such/model/here"], "no/such/model/here"),
        (["--dataset", "demo"], "--dataset"),
    ],
)
def test_wrong_flags_are_one_line_and_exit_code_2(words: list[str], named: str) -> None:
    done = CliRunner().invoke(doctor, ["--engines", *words])
    assert (done.exit_code, len(done.stderr.splitlines()), named in done.stderr) == (2, 1, True)


def test_a_check_without_an_answer_or_whose_process_dies_fails(tmp_path: Path) -> None:
    outcome = engine_checks.in_process(machine(tmp_path), "preempted", 0.01)
    assert (outcome.status, bool(outcome.reason)) == ("failed", True)
    assert not [child for child in psutil.Process().children() if "--multiprocessing-fork" in child.cmdline()]
    outcome = engine_checks.in_process(machine(tmp_path), "nothing", 60)
    assert (outcome.status, outcome.reason[-1]) == ("failed", "1"), "its exit code"


def found(*measured: Measured) -> engine_checks.MakeCheck:
    async def make(_: Machine) -> list[Measured]:
        return list(measured)

    return make


@pytest.mark.parametrize(
    ("value", "relation", "bound", "status"),
    [
        (1, "=", 1, "ok"),
        (2, "=", 1, "failed"),
        (0.9, ">=", 0.9, "ok"),
        (10.0, "<", 10.0, "failed"),
        (None, "<", 10.0, "failed"),
        (2.0, None, None, "ok"),
    ],
)
async def test_a_goal_that_is_missed_or_was_not_measured_fails(
    value: Any, relation: Any, bound: Any, status: str, tmp_path: Path
) -> None:
    outcome = await engine_checks.outcome_of("a", found(Measured("n", value, "", relation, bound)), machine(tmp_path))
    assert (outcome.status, outcome.reason) == (status, "" if status == "ok" else "not met: n")


@pytest.mark.parametrize(
    ("error", "status"), [(NotPossible("why"), "not possible here"), (RuntimeError("why"), "failed")]
)
async def test_what_a_check_raises_is_its_reason(error: Exception, status: str, tmp_path: Path) -> None:
    async def make(_: Machine) -> list[Measured]:
        raise error

    outcome = await engine_checks.outcome_of("a", make, machine(tmp_path))
    assert outcome.status == status
    assert "why" in outcome.reason


def opening(engines: Iterator[ScriptedEngine]) -> Callable[..., Any]:
    """`open_engines` that takes its engines from these, in the order of the roles."""

    @contextlib.asynccontextmanager
    async def opened(draft: object, target: object, roles: Sequence[str], *_: object) -> AsyncIterator[object]:
        yield {role: next(engines) for role in roles}

    return opened


def engine(text: str = "so it is 4.\n\n", **settings: Any) -> ScriptedEngine:
    def write(prompt: str, sampling: Sampling) -> list[str]:
        return [text] * sampling.n

    return ScriptedEngine(write, lambda prompt, options: [1 / len(options)] * len(options), **settings)


async def test_calls_without_an_answer_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Silent(ScriptedEngine):
        async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
            raise VerdictUnavailable("no probability")

    broken = Silent(engine().write, engine().judge)
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter([engine(), broken])))
    answered, unanswered = await engine_answers.check_calls(machine(tmp_path))
    assert (answered.value, answered.is_met) == (5, False)
    assert str(unanswered.value).startswith("verdict (VerdictUnavailable: ")


async def test_an_engine_that_forgets_its_prompts_misses_the_prefix_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Forgetful(ScriptedEngine):
        def _cached(self, ids: Sequence[int]) -> int:
            return 0

    broken = [Forgetful(engine().write, engine().judge) for _ in range(2)]
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter(broken)))
    [cached] = await engine_answers.check_prefix_cache(machine(tmp_path))
    assert (cached.value, cached.is_met) == (0.0, False)


@pytest.mark.parametrize("text", ["so it is 4.\n\n", "so it is 5.\n\n"])
async def test_speculation_that_changes_a_completion_is_not_lossless(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter([engine(), engine(text)])))
    [changed] = await engine_answers.check_lossless(machine(tmp_path, kind="vllm"), "ngram")
    assert changed.value == (0 if "4" in text else 6)
    assert changed.is_met == ("4" in text)


def choice(*logprobs: float) -> Choice:
    return Choice(logprobs, 1, 0, Timing(0.0, 0.0, 0.0, 0.0, 1))


@pytest.mark.parametrize(
    ("shift", "is_float32", "is_met"), [(0.01, False, True), (0.1, False, False), (0.01, True, False)]
)
def test_verdicts_may_differ_by_rounding_only(shift: float, is_float32: bool, is_met: bool) -> None:
    measured = deviations([choice(-0.5 + shift, -1.0)], [choice(-0.5, -1.0 - shift)], is_float32=is_float32)
    assert all(one.is_met for one in measured) == is_met
