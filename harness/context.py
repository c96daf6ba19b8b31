"""What a model's context holds of a sample, and how long it must be.

How long: one rule for every method, model and engine. What a method writes or shows to a model stands behind a prompt
(`Text`): the chain, which may be as long as the token budget, or SCoT's drafts, which the target reads all at once.
Each has to fit at its full length.

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

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness import prompts
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


class Reader(Protocol):
    """Whatever reads or writes with a tokenizer: a recording model, or a model whose stored steps are read again."""

    @property
    def tokenizer(self) -> Tokenizer: ...


class ModelContext:
    """One model's reading of a growing chain. It also knows where the last whole step ends.

    A chain may end inside a step: guidance is a fixed number of tokens, a step may reach its token limit, and a token
    may carry text past the separator that ends a step.
    """

    def __init__(self, model: Reader, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False) -> None:
        """Open the context with the model's prompt; `rubric` lets the prompt explain what a score is."""
        self.model = model
        self.ids, self.prompt = prompts.opening(model.tokenizer, problem, wording, rubric=rubric)
        self._separator = wording.step_separator
        self.open_text = ""
        """The text behind the last step separator: the beginning of the unfinished step that the chain ends in."""
        self._last_boundary = len(self.ids), ""
        """How many ids stand before the piece with the last separator, and the text of that piece up to it."""

    def read(self, ids: Sequence[int], text: str, author: Reader) -> Sequence[int]:
        """Return the ids under which this model reads what `author` wrote; a plain model is not shown `</think>`."""
        reader = self.model
        if not reader.tokenizer.thinks and prompts.THINK_END in text:
            return reader.tokenizer.encode(text.replace(prompts.THINK_END, ""))
        tagged = prompts.THINK_END in text and not _have_equal_tags(author.tokenizer, reader.tokenizer)
        if author.tokenizer.fingerprint == reader.tokenizer.fingerprint and not tagged:
            return ids
        return reader.tokenizer.encode(text)

    def append(self, ids: Sequence[int], text: str, author: Reader) -> None:
        """Append a piece of the chain."""
        joined = self.open_text + text
        head, separator, self.open_text = joined.rpartition(self._separator)
        if separator:
            num_known = len(joined) - len(text)
            self._last_boundary = len(self.ids), text[: len(head) + len(separator) - num_known]
        self.ids += self.read(ids, text, author)

    def whole_steps(self) -> list[int]:
        """Return the ids up to the end of the last whole step: all of them where the chain ends in one.

        They are a prefix of the context, so that the prefix cache holds them, except where a token straddles the end of
        the step.
        """
        if not self.open_text.strip():
            return self.ids
        start, text = self._last_boundary
        count = _num_ids(self.model.tokenizer, self.ids[start:], text)
        if count is None:
            return self.ids[:start] + self.model.tokenizer.encode(text)
        return self.ids[: start + count]


def _have_equal_tags(one: Tokenizer, other: Tokenizer) -> bool:
    return one.thinks == other.thinks and one.encode(prompts.THINK_END) == other.encode(prompts.THINK_END)


def _num_ids(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> int | None:
    """Return how many of the leading ids decode to the text; None where a token straddles its end.

    A decoded prefix never gets shorter by another id, so bisection finds the first that is long enough.
    """
    count = bisect_left(range(len(ids) + 1), len(text), key=lambda n: len(tokenizer.decode(ids[:n])))
    return count if count <= len(ids) and tokenizer.decode(ids[:count]) == text else None
