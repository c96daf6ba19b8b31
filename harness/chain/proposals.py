"""What the models write of a chain: proposals for the next step, and steps that nobody judges."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from harness.chain.chain_ending import is_cut, is_repeat, joined, whole_completion
from harness.chain.chain import ChainState, Proposal, Stop, mixed_seed
from harness.engine import Completion, Role, Sampling
from harness.recording import Model
from harness.trace import Candidate, Decision, Purpose, Step, StepRole, Verdict


class Proposals(ChainState):
    """Requests for text: each is sent in the chain's context, within its limits, with a seed of its own."""

    async def propose(
        self,
        model: Model,
        n: int,
        *,
        max_tokens: int,
        purpose: Purpose = "draft",
        stop: tuple[str, ...] | None = None,
        temperature: float | None = None,
        behind: Sequence[Proposal] = (),
        token_logprobs: bool = False,
        entropies: bool = False,
    ) -> list[Completion]:
        """Return `n` continuations of the chain by one model, generated in parallel from one prefix. Raises Stop.

        `behind`: proposals that the chain does not hold and is to be continued after, as if it held them.
        `token_logprobs` and `entropies`: the engine is asked for these (see Completion).
        """
        context, ahead = self._behind(model, behind)
        sampling = self._sampling(
            model, context, purpose, max_tokens, stop=stop, n=n, temperature=temperature, ahead=ahead
        )
        sampling = replace(sampling, token_logprobs=token_logprobs, entropies=entropies)
        return await self._written(model, context, sampling, purpose, ahead)

    async def propose_each(
        self, model: Model, prefixes: Sequence[Sequence[Proposal]], *, max_tokens: int, purpose: Purpose
    ) -> list[Completion]:
        """Return one model's next step behind each of several prefixes (see `propose`), all generated in parallel.

        They count as one call, because a sample waits once. Raises Stop where there is no room behind one of them.
        """
        read = [self._behind(model, prefix) for prefix in prefixes]
        samplings = [self._sampling(model, ids, purpose, max_tokens, ahead=ahead) for ids, ahead in read]
        requests = [(ids, sampling) for (ids, _), sampling in zip(read, samplings, strict=True)]
        drawn = await model.generate_each(requests, purpose=purpose, step=len(self.steps))
        return [
            (await self._whole(model, ids, sampling, purpose, [completion], ahead))[0]
            for (ids, ahead), sampling, completion in zip(read, samplings, drawn, strict=True)
        ]

    async def continued(
        self,
        model: Model,
        begun: Completion,
        *,
        max_tokens: int,
        purpose: Purpose,
        stop: tuple[str, ...] | None = None,
        temperature: float | None = None,
    ) -> Completion:
        """Return a proposal that its limit cut, with what its author writes behind it: one step from two requests.

        `max_tokens` limits what is added. A proposal that has ended, or that spends the budget or fills the context,
        is returned as it is; raises Stop where it holds nothing that was generated.
        """
        if begun.finish != "length":
            return begun
        context = [*self._contexts[model.role].ids, *begun.token_ids]
        spent = [Step(model.role, "draft", begun.text, begun.num_tokens, begun.token_ids, begun.finish)]
        try:
            sampling = self._sampling(
                model, context, purpose, max_tokens, stop=stop, temperature=temperature, ahead=spent
            )
        except Stop:
            if begun.num_tokens:
                return begun
            raise
        # Another seed than that of the beginning, whose random numbers would be drawn again.
        seed = mixed_seed(f"{self._seed(purpose, len(self.steps))}/{len(begun.token_ids)}")
        sampling = replace(
            sampling,
            seed=seed,
            token_logprobs=begun.token_logprobs is not None,
            entropies=begun.entropies is not None,
        )
        [more] = await self._written(model, context, sampling, purpose, spent, len(self.steps))
        return joined(begun, more, model.tokenizer)

    def may_continue(self, behind: Sequence[Proposal], *models: Model) -> bool:
        """Return False where nothing may follow these proposals: they hold the answer or repeat a step.

        The same where they leave no budget, or one of the models no room in its context.
        """
        steps, reasoning, answered = self._as_steps(behind)
        repeats = any(is_repeat(step, before) for before, step in pairwise([*self.steps[-1:], *steps]))
        has_room = all(len(self._behind(m, behind)[0]) < m.engine.context_tokens for m in models)
        return not answered and not (repeats and reasoning) and self._budget(steps) > 0 and has_room

    def propose_behind(self, candidate: Completion, model: Model, *, max_tokens: int) -> None:
        """Start the request that `propose` will send if this candidate of the model becomes the next step.

        `propose` uses the started request where prompt, limits and seed are those that it would send, so the chain is
        the same with and without it. Nothing is started where `propose` would not be called: after a step that ends the
        chain, repeats the previous one, or leaves no budget or context.
        """
        step = self._step(model, "draft", candidate)
        ends = self._ends(step)
        repeats = bool(self.steps) and is_repeat(step, self.steps[-1])
        if ends.chain or (repeats and self.reasoning and not ends.thought):
            return
        own = self._contexts[model.role]
        context = [*own.ids, *own.read(step.token_ids, step.text, model.tokenizer)]
        with contextlib.suppress(Stop):
            sampling = self._sampling(model, context, "draft", max_tokens, ahead=[step])
            model.begin(context, sampling, step=len(self.steps) + 1)

    async def write(
        self,
        model: Model,
        role: StepRole,
        *,
        max_tokens: int,
        stop: tuple[str, ...] | None = None,
        refused: Sequence[Candidate] = (),
        verdict: Verdict | None = None,
        decision: Decision | None = None,
        temperature: float | None = None,
        opening: str = "",
    ) -> None:
        """Let one model write the next step without a verdict of its own. Raises Stop.

        `refused`, `verdict` and `decision` are recorded with the step: the candidates that it replaces, and what
        rejected them (see `accept`). `opening`: text that the step begins with, which nobody generates.
        """
        for other in self._models.values():
            other.discard()  # a draft that was started after a rejected candidate
        purpose: Purpose = "draft" if role == "draft" else role
        if opening:
            begun = Completion(tuple(model.tokenizer.encode(opening)), opening, "length", num_tokens=0)
            completion = await self.continued(
                model, begun, max_tokens=max_tokens, purpose=purpose, stop=stop, temperature=temperature
            )
        else:
            [completion] = await self.propose(
                model, 1, max_tokens=max_tokens, purpose=purpose, stop=stop, temperature=temperature
            )
        self.accept(model, role, completion, refused, verdict, decision=decision)

    async def answer(self, model: Model, temperature: float | None = None) -> None:
        """Let the model write the final answer after the finished reasoning. Raises Stop."""
        is_plain = not model.tokenizer.thinks  # nothing in its context tells it to answer now
        forced = model.tokenizer.encode(self.wording.answer_bridge) if is_plain else []
        stop = ("\n",) if is_plain else ()
        context = self._contexts[model.role].ids + forced
        max_tokens = self.limits.token_budget
        sampling = self._sampling(model, context, "answer", max_tokens, stop=stop, temperature=temperature)
        [completion] = await self._written(model, context, sampling, "answer")
        whole = replace(
            completion,
            token_ids=(*forced, *completion.token_ids),
            text=(self.wording.answer_bridge if forced else "") + completion.text,
        )
        self.accept(model, "answer", whole)

    def _sampling(
        self,
        model: Model,
        context: list[int],
        purpose: Purpose,
        max_tokens: int,
        *,
        stop: tuple[str, ...] | None = None,
        n: int = 1,
        temperature: float | None = None,
        ahead: Sequence[Step] = (),
    ) -> Sampling:
        """Return the sampling of the next step, after `ahead` steps that the chain does not hold yet. Raises Stop."""
        budget = self._budget(ahead)
        if budget <= 0:
            raise Stop("budget")
        room = model.engine.context_tokens - len(context)
        if room <= 0:
            raise Stop("context")
        return Sampling(
            max_tokens=min(max_tokens, budget, room),
            **self._drawn_by(model.role, temperature),
            stop=(self.wording.step_separator,) if stop is None else stop,
            seed=self._seed(purpose, len(self.steps) + len(ahead)),
            n=n,
        )

    def _drawn_by(self, role: Role, temperature: float | None) -> dict[str, Any]:
        """Return how a model draws its tokens; a `temperature` of the method's own takes precedence."""
        drawn = {
            "temperature": self.limits.temperature,
            "top_p": self.limits.top_p,
            **self.limits.by_role.get(role, {}),
        }
        return drawn if temperature is None else {**drawn, "temperature": temperature}

    async def _written(
        self,
        model: Model,
        context: list[int],
        sampling: Sampling,
        purpose: Purpose,
        ahead: Sequence[Step] = (),
        step: int | None = None,
    ) -> list[Completion]:
        """Return completions that do not end inside a character, wherever their limit cut them."""
        step = len(self.steps) + len(ahead) if step is None else step
        drawn = await model.generate(context, sampling, purpose=purpose, step=step)
        return await self._whole(model, context, sampling, purpose, drawn, ahead)

    async def _whole(
        self,
        model: Model,
        context: list[int],
        sampling: Sampling,
        purpose: Purpose,
        drawn: Sequence[Completion],
        ahead: Sequence[Step],
    ) -> list[Completion]:
        """Return completions without a character that their limit cut, drawing what a character lacks."""
        step, tokenizer = len(self.steps), model.tokenizer
        if not any(is_cut(completion, tokenizer) for completion in drawn):
            return list(drawn)
        budget, room = self._budget(ahead), model.engine.context_tokens - len(context)
        whole = []
        for i, completion in enumerate(drawn):

            async def next_token(ids: Sequence[int], seed: int = sampling.seed + i) -> Completion:
                one = replace(sampling, max_tokens=1, stop=(), seed=mixed_seed(f"{seed}/{len(ids)}"), n=1)
                [token] = await model.generate([*context, *ids], one, purpose=purpose, step=step)
                return token

            whole.append(await whole_completion(completion, tokenizer, next_token, min(budget, room)))
        if room < budget and not any(completion.token_ids for completion in whole):
            raise Stop("context")  # there is no room for one character
        return whole
