"""Process reward models: how good is a step, given the problem and the steps before it?

Asked after a run, of stored steps and candidates; no method sees an answer. The form is Math-Shepherd's (Wang et al.,
arXiv 2312.08935, section 3), which SpecReason (section 5.5) and SpecCoT (appendix A.1) measure with: a tag ends each
step, and behind a tag the model says «+» or «-». That is one forward pass over two options, so any engine can be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.engine import Engine, Tokenizer
from harness.tokenizer import verdict_options

VERSION = 1
"""Of the form: another one gives other scores."""


@dataclass(frozen=True)
class Form:
    """How a reward model was taught to read."""

    tag: str = "ки"
    """Ends a step. Math-Shepherd took a word that no solution holds."""
    good: str = "+"
    bad: str = "-"

    def words(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        """Ids between the tag and «good» or «bad», often none, and the two words' ids. Raises ValueError where those
        are not one each."""
        ids, options = verdict_options(tokenizer, self.tag, (self.good, self.bad))
        return ids[len(tokenizer.encode_template(self.tag)) :], options

    def prompt(self, problem: str, steps: Sequence[str]) -> str:
        """Problem and steps, each with its tag; a tag that a model wrote itself is taken out."""
        said = [" ".join(step.replace(self.tag, " ").split()) for step in steps]
        return f"{problem} " + "\n".join(f"Step {number}: {text} {self.tag}" for number, text in enumerate(said, 1))


class RewardModel:
    """An engine that is asked for the quality of steps."""

    def __init__(self, engine: Engine, form: Form | None = None) -> None:
        """Raises ValueError where the tokenizer cannot tell the form's two words apart."""
        self._engine, self._form = engine, form or Form()
        self._gap, self._options = self._form.words(engine.tokenizer)

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Probability from 0 to 1 that the last of the steps is good. Raises EngineError."""
        tokenizer = self._engine.tokenizer
        prompt = tokenizer.encode(self._form.prompt(problem, steps))
        choice = await self._engine.choose([*tokenizer.opening, *prompt, *self._gap], self._options)
        return choice.probabilities[0]
