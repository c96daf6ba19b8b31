"""Process reward models: how good is a step, given the problem and the steps before it?

Asked after a run, of stored steps and candidates; no method sees an answer. The form is Math-Shepherd's (Wang et al., arXiv
2312.08935, section 3), which SpecReason (section 5.5) and SpecCoT (appendix A.1) measure with: each step ends with a tag,
and behind a tag the model says «+» or «-». That is one forward pass over two options, so any engine can be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.engine import Engine
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

    def prompt(self, problem: str, steps: Sequence[str]) -> str:
        """Problem and steps up to where the last one's tag goes; a tag that a model wrote itself is taken out."""
        said = [" ".join(step.replace(self.tag, " ").split()) for step in steps]
        lines = [f"Step {number}: {text}" for number, text in enumerate(said, 1)]
        return f"{problem} " + f" {self.tag}\n".join(lines)


class RewardModel:
    """An engine that is asked for the quality of steps."""

    def __init__(self, engine: Engine, form: Form | None = None) -> None:
        """Raises ValueError where the tokenizer cannot tell the form's two words apart."""
        self._engine, self._form = engine, form or Form()
        self._tag, self._options = verdict_options(engine.tokenizer, self._form.tag, (self._form.good, self._form.bad))

    async def quality(self, problem: str, steps: Sequence[str]) -> float:
        """Probability from 0 to 1 that the last of the steps is good. Raises EngineError."""
        tokenizer = self._engine.tokenizer
        text = self._form.prompt(problem, steps)
        choice = await self._engine.choose([*tokenizer.opening, *tokenizer.encode(text), *self._tag], self._options)
        return choice.probabilities[0]
