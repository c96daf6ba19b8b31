"""Process reward models: how good is a step, given the problem and the steps before it?

Stored steps and candidates are scored after a run; no method sees the scores. The prompt format is Math-Shepherd's
(Wang et al., arXiv 2312.08935, section 3), which SpecReason (section 5.5) and SpecCoT (appendix A.1) measure with: a
tag ends each step, and after the tag the model says "+" or "-". That is one forward pass over two options, which any
engine can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.engine import Engine, Finish, Tokenizer
from harness.weights.tokenizer import verdict_options

VERSION = 2
"""Version of the prompt format: another format gives other scores. 1 showed halves of steps."""


@dataclass(frozen=True)
class Written:
    """A piece of a chain as it is stored: a step, which may begin or end inside a step of the text."""

    text: str
    finish: Finish


@dataclass(frozen=True)
class WholeSteps:
    """The whole steps of the text that one stored piece belongs to."""

    before: tuple[str, ...]
    """The steps before it."""
    begun: str
    """The beginning of the piece's first step, in pieces before it; empty where the piece begins with a step."""
    rest: str
    """The end of its last step, in pieces behind it; empty where the piece, or the chain, ends with a step."""


def whole_steps(pieces: Sequence[Written], separator: str) -> list[WholeSteps]:
    """Return for each piece of a chain the whole steps that a reward model is to be shown.

    Guidance is a fixed number of tokens and a step may reach its limit: both may end in the middle of a step, which
    the next piece completes.
    """
    before: list[str] = []
    found: list[WholeSteps] = []
    begun = ""
    for number, piece in enumerate(pieces):
        joined = begun + piece.text
        unfinished = _unfinished(joined, piece.finish, separator)
        rest = _rest(unfinished, pieces[number + 1 :], separator) if unfinished else ""
        found.append(WholeSteps(tuple(before), begun, rest))
        if len(unfinished) < len(joined):
            before.append(joined[: len(joined) - len(unfinished)])
        begun = unfinished
    return found


def _unfinished(text: str, finish: Finish, separator: str) -> str:
    """Return the beginning of the unfinished step that a text ends in; empty where it ends with a whole step."""
    _, found, tail = text.rpartition(separator)
    return tail if tail.strip() and (finish == "length" or (finish == "stop" and found)) else ""


def _rest(unfinished: str, behind: Sequence[Written], separator: str) -> str:
    """Return what completes an unfinished step: the text behind it up to the first separator."""
    step = unfinished
    for piece in behind:
        head, found, _ = (step + piece.text).partition(separator)
        step = head + found
        if found or piece.finish != "length":
            break
    return step.removeprefix(unfinished)


@dataclass(frozen=True)
class Form:
    """The prompt format that a reward model was trained on."""

    tag: str = "ки"
    """Ends a step. Math-Shepherd chose a word that no solution contains."""
    good: str = "+"
    bad: str = "-"

    def words(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        """Return the ids between the tag and the words `good` and `bad` (often none), and the ids of the two words.

        Raises ValueError where a word is not a single token.
        """
        ids, options = verdict_options(tokenizer, self.tag, (self.good, self.bad))
        return ids[len(tokenizer.encode_template(self.tag)) :], options

    def ids(self, tokenizer: Tokenizer, problem: str, steps: Sequence[str]) -> list[int]:
        """Return the ids of the prompt, up to the last tag."""
        return [*tokenizer.opening, *tokenizer.encode(self.prompt(problem, steps))]

    def context_tokens(self, tokenizer: Tokenizer, problem: str, steps: Sequence[str]) -> int:
        """Return the context that the judgment of the last of these steps needs, in tokens."""
        return len(self.ids(tokenizer, problem, steps)) + len(self.words(tokenizer)[0]) + 1

    def prompt(self, problem: str, steps: Sequence[str]) -> str:
        """Return the problem and its steps, each with its tag; a tag that a model wrote itself is removed."""
        texts = [" ".join(step.replace(self.tag, " ").split()) for step in steps]
        return f"{problem} " + "\n".join(f"Step {number}: {text} {self.tag}" for number, text in enumerate(texts, 1))


class RewardModel:
    """An engine that scores the quality of steps."""

    def __init__(self, engine: Engine, form: Form | None = None) -> None:
        """Raises ValueError where the tokenizer cannot tell the form's two words apart."""
        self._engine, self._form = engine, form or Form()
        self._gap, self._options = self._form.words(engine.tokenizer)

    @property
    def context_tokens(self) -> int:
        """Longest judgment plus its one token."""
        return self._engine.context_tokens

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Return the probability, from 0 to 1, that the last of the steps is good. Raises EngineError."""
        ids = self._form.ids(self._engine.tokenizer, problem, steps)
        choice = await self._engine.choose([*ids, *self._gap], self._options)
        return choice.probabilities[0]
