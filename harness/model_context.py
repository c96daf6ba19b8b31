"""What one model has read of a sample: its prompt and the chain so far, in its own token ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from harness import prompts
from harness.engine import Tokenizer
from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts


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
