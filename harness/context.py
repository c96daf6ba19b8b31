"""The context length that an engine needs. Computed before any tokenizer is loaded, so it is an upper estimate."""

from __future__ import annotations

from collections.abc import Iterable

from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.prompts import problem_text

BYTES_PER_TOKEN = 2
"""Fewer UTF-8 bytes than a token of any benchmark's text has on average."""
PROMPT_RESERVE_TOKENS = 512
"""Room for the chat template, the instructions and a verdict's question."""


def required_context_tokens(
    problems: Iterable[Problem], token_budget: int, verdict_tokens: int, wording: Prompts = BUILT_IN
) -> int:
    """Return the tokens that the longest sample and its longest verdict prompt may need.

    `token_budget` is what a sample may emit, `verdict_tokens` what a verdict prompt holds beyond problem and chain (see
    `Method.verdict_tokens`). A wording with longer texts than the built-in one needs as much more. Raises ValueError
    without any problem.
    """
    prompt_bytes = max(len(problem_text(problem, wording).encode()) for problem in problems)
    prompt_bytes += max(0, wording.num_bytes - BUILT_IN.num_bytes)
    return prompt_bytes // BYTES_PER_TOKEN + PROMPT_RESERVE_TOKENS + token_budget + verdict_tokens
