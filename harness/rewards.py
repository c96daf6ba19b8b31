"""Process reward models: how good is a step, given the problem and the steps before it?

Stored steps and candidates are scored after a run; no method sees the scores. The prompt format is Math-Shepherd's
(Wang et al., arXiv 2312.08935, section 3), which SpecReason (section 5.5) and SpecCoT (appendix A.1) measure with: a
tag ends each step, and after the tag the model says "+" or "-". That is one forward pass over two options, which any
engine can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.engine import Engine, Tokenizer
from harness.weights.tokenizer import verdict_options

VERSION = 1
"""Version of the prompt format: another format gives other scores."""


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

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Return the probability, from 0 to 1, that the last of the steps is good. Raises EngineError."""
        tokenizer = self._engine.tokenizer
        prompt = tokenizer.encode(self._form.prompt(problem, steps))
        choice = await self._engine.choose([*tokenizer.opening, *prompt, *self._gap], self._options)
        return choice.probabilities[0]
