"""The context that engines are started with holds the longest sample and its longest verdict prompt."""

from __future__ import annotations

import pytest

from harness.context import BYTES_PER_TOKEN, PROMPT_RESERVE_TOKENS, required_context_tokens
from harness.methods import METHODS, build
from harness.problems.problem import Problem
from tests.harness.scripts import PROBLEM


def problem(text: str, *choices: str) -> Problem:
    return Problem("demo/0", "demo", text, "A", "choice" if choices else "math", choices=choices)


def test_it_is_prompt_and_reserve_and_budget_and_verdict() -> None:
    assert required_context_tokens([problem("x" * 1000)], 4096, 512) == 500 + PROMPT_RESERVE_TOKENS + 4096 + 512


def test_the_longest_problem_counts_with_its_options_in_bytes() -> None:
    short = problem("x" * 10)
    with_choices = problem("x" * 10, "y" * 200)
    greek = problem("α" * 10)
    assert required_context_tokens([short, with_choices], 0, 0) == required_context_tokens([with_choices], 0, 0)
    longer_by = required_context_tokens([with_choices], 0, 0) - required_context_tokens([short], 0, 0)
    assert longer_by > 200 // BYTES_PER_TOKEN
    assert required_context_tokens([greek], 0, 0) == required_context_tokens([problem("x" * 20)], 0, 0)


def test_without_problems_there_is_no_context() -> None:
    with pytest.raises(ValueError, match="empty"):
        required_context_tokens([], 4096, 0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_reserves_what_its_verdicts_hold(name: str) -> None:
    method = build(name, {})
    most = {"speccot": 5 * 512, "specreason": 512, "scot": 5 * 5000 + 1024, "lookahead": 2 * 100, "rsd": 512}
    assert method.verdict_tokens(8192) == most.get(name, 0)
    assert method.verdict_tokens(100) <= 5 * 100 + 1024, "no candidate is longer than the sample's budget"
    assert required_context_tokens([PROBLEM], 8192, method.verdict_tokens(8192)) > 8192 + most.get(name, 0)
