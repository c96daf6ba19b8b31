"""Vanilla inference: one model alone. The papers' accuracy baseline (the target) and latency baseline (the draft)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.chain import Chain, Stop
from harness.engine import Completion, Role
from harness.methods.method import Method, check_range, parameter
from harness.prompts import THINK_END
from harness.recording import Model


@dataclass(frozen=True)
class Vanilla(Method):
    """One model writes the chain and the answer in a single completion.

    If the problem contains the beginning of a reply, the model continues that reply within the remaining token budget.
    """

    model: Literal["draft", "target"] = parameter("target", help="Which of the two models runs alone.")
    answer_tokens: int = parameter(
        0,
        help="If above 0, write only an answer of at most this many tokens, after the thought stored with the problem "
        "(benchmarks have none). Used by python -m jobs sweep-budget.",
        is_usual=False,
    )

    def __post_init__(self) -> None:
        check_range("answer_tokens", self.answer_tokens, 0, None)

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.model,)

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        model = target if self.model == "target" else draft
        assert model is not None
        beginning = chain.problem.beginning
        if not model.tokenizer.thinks:  # a plain model is not shown the end of a thought
            beginning = beginning.replace(THINK_END, "")
        ids = tuple(model.tokenizer.encode(beginning))
        if self.answer_tokens:
            if ids and not chain.steps:
                chain.accept(model, "thought", Completion(ids, beginning, "length", num_tokens=0))
            chain.close(model)
            if not chain.answered:
                await chain.answer(model, max_tokens=self.answer_tokens)
        elif not chain.steps:
            if (room := chain.limits.token_budget - len(ids)) <= 0:
                raise Stop("budget")
            await chain.write(model, "chain", max_tokens=room, stop=(), opening=beginning)
