"""How long a context must be: one rule for every method, model and engine.

What a method writes or shows to a model stands behind a prompt (`Text`): the chain, which may be as long as the token
budget, or SCoT's drafts, which the target reads all at once. Each has to fit at its full length.

- Without `--max-context` an engine is opened with room for the longest prompt, the budget and the longest verdict
  (`context_to_open`), at most the model's own maximum.
- A `--max-context` that does not hold every prompt and text is refused at the launch, with the least that does.
- Where the model's own maximum is shorter, a text that was asked for and is longer than the whole context is refused.
  For any other a warning says how many problems it concerns.
- Inside a run a text is as long as asked, as long as budget and context allow. Where they leave nothing, or the context
  cut a draft of a whole chain, the sample ends with the stop reason `budget` or `context`.

Lengths of prompts are those of the model's tokenizer where it is at hand (`needs`), else estimates from above. Texts
are counted in the tokens of their author; a reader with another tokenizer may need more or fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.engine import Tokenizer
from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.prompts import opening, problem_text

BYTES_PER_TOKEN = 2
"""Fewer UTF-8 bytes than a token of any benchmark's text has on average."""
PROMPT_RESERVE_TOKENS = 512
"""Room for the chat template, the instructions and a verdict's question."""

PromptLength = Callable[[Tokenizer, Problem, Prompts], int]
"""Returns the tokens of a prompt for a problem."""


@dataclass(frozen=True)
class Text:
    """What stands behind a prompt in a model's context."""

    tokens: int
    """Its full length."""
    settings: tuple[str, ...]
    """The settings that say how long it is: `token_budget`, or names of hyper-parameters."""
    prompt: PromptLength | None = None
    """The prompt that it stands behind; None: the one that opens the model's reply."""


class HasVerdicts(Protocol):
    """What a method says of its verdicts."""

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the tokens that the longest verdict prompt holds beyond problem and chain."""


def required_context_tokens(
    problems: Iterable[Problem], token_budget: int, verdict_tokens: int, wording: Prompts = BUILT_IN
) -> int:
    """Return the tokens that the longest sample and its longest verdict prompt may need.

    Estimated from above, without a tokenizer. `token_budget` is what a sample may emit, `verdict_tokens` what a verdict
    prompt holds beyond problem and chain (see `Method.verdict_tokens`). A wording with longer texts than the built-in
    one needs as much more. Raises ValueError without any problem.
    """
    prompt_bytes = max(len(problem_text(problem, wording).encode()) for problem in problems)
    prompt_bytes += max(0, wording.num_bytes - BUILT_IN.num_bytes)
    return prompt_bytes // BYTES_PER_TOKEN + PROMPT_RESERVE_TOKENS + token_budget + verdict_tokens


def context_to_open(method: HasVerdicts, prompt_tokens: int, token_budget: int, asked: int | None = None) -> int:
    """Return the context that engines are opened with: as asked for, else what the longest request may need."""
    return asked or prompt_tokens + token_budget + method.verdict_tokens(token_budget)


def needs(
    text: Text, tokenizer: Tokenizer, problems: Iterable[Problem], wording: Prompts = BUILT_IN, *, rubric: bool = False
) -> Sequence[int]:
    """Return the context, in tokens, that holds each problem's prompt and this text behind it.

    `rubric`: the prompt explains what a score is (see `harness.prompts.opening`).
    """

    def opened(tokenizer: Tokenizer, problem: Problem, wording: Prompts) -> int:
        return len(opening(tokenizer, problem, wording, rubric=rubric)[0])

    length = text.prompt or opened
    return [length(tokenizer, problem, wording) + text.tokens for problem in problems]
