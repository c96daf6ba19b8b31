"""What the models are asked about a chain: verdicts, rewards and log-probabilities, each in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness import prompts
from harness.chain.chain import ChainState
from harness.chain.step_candidates import offered_texts
from harness.engine import Choice, Completion
from harness.recording import Model
from harness.trace import Candidate, Verdict, VerdictKind


class Questions(ChainState):
    """Requests for a judgement of candidates; none of them adds to the chain."""

    async def score(self, model: Model, candidate: Completion, author: Model) -> Verdict:
        """Return SpecReason's verdict on a candidate: one token, 0 to 9, in one forward pass (section 4.1).

        Raises Stop.
        """
        question = prompts.score_question(model.tokenizer, self.wording)
        context = self._contexts[model.role]
        proposed = context.read(candidate.token_ids, candidate.text, author.tokenizer)
        return await self._ask(model, [*context.ids, *proposed], question, "score")

    async def choose(self, model: Model, candidates: Sequence[Candidate]) -> Verdict:
        """Return SpecCoT's verdict: one candidate or a rejection, in one forward pass (equation 4).

        Where the chain ends inside a step, as it does behind most guidance, the target judges whole steps: its context
        ends at the last step boundary, and each candidate is shown as the step that it would complete. Shown the
        second half of a formula alone, a target rejects what it would have written itself. The beginning is shown once
        per candidate. Where it is so long that the prompt would not fit, which takes a chain without step boundaries,
        the candidates are shown behind the whole chain as they are. Raises Stop.
        """
        context, texts = self._contexts[model.role], offered_texts(candidates)
        question = prompts.step_choice_question(model.tokenizer, [context.open_text + t for t in texts], self.wording)
        chain_ids = context.whole_steps()
        if len(chain_ids) + len(question.ids) >= model.engine.context_tokens:
            question = prompts.step_choice_question(model.tokenizer, texts, self.wording)
            chain_ids = context.ids
        return await self._ask(model, chain_ids, question, "choice")

    async def score_each(
        self, model: Model, candidates: Sequence[Candidate], completions: Sequence[Completion], author: Model
    ) -> list[Verdict]:
        """Return a score for each distinct candidate, in the order of their options; all are asked in parallel.

        Each candidate is judged in place, right after the chain, so that the cache of the accepted one is the next
        context. Raises Stop.
        """
        question = prompts.short_score_question(model.tokenizer, self.wording)
        context, prompt_ids = self._contexts[model.role], []
        for option in range(len(offered_texts(candidates))):
            proposed = completions[next(i for i, c in enumerate(candidates) if c.option == option)]
            judged = context.read(proposed.token_ids, proposed.text, author.tokenizer)
            prompt_ids.append([*context.ids, *judged, *question.ids])
        self.check_fits(model, max(map(len, prompt_ids)))
        choices = await model.choose_each(prompt_ids, question.option_ids, step=len(self.steps))
        return [_verdict("score", question, choice) for choice in choices]

    async def reward_each(self, candidates: Sequence[Completion], author: Model) -> list[float]:
        """Return the reward model's probability, from 0 to 1, that each of these next steps is right.

        For methods whose `roles` have a reward model. Each candidate is read right after the chain, with the wording's
        `reward` question behind it; all are asked in parallel. Raises Stop.
        """
        model = self._models["reward"]
        question, context = prompts.reward_question(model.tokenizer, self.wording), self._contexts["reward"]
        asked = [
            replace(question, ids=(*context.ids, *context.read(c.token_ids, c.text, author.tokenizer), *question.ids))
            for c in candidates
        ]
        return [choice.probabilities[0] for choice in await self.ask_each(model, asked)]

    async def reward(self, candidate: Completion, author: Model) -> float:
        """Return the reward of one candidate for the next step (see `reward_each`). Raises Stop."""
        [value] = await self.reward_each([candidate], author)
        return value

    async def ask_each(self, model: Model, questions: Sequence[prompts.Question]) -> list[Choice]:
        """Return the answers to whole prompts, which do not follow the chain by themselves; all are asked in parallel.

        Recorded as one call. Raises Stop where a prompt does not fit.
        """
        self.check_fits(model, max(len(question.ids) for question in questions))
        options = {question.option_ids for question in questions}
        if len(options) != 1:
            raise ValueError("questions that are asked together have the same options")
        prompt_ids = [question.ids for question in questions]
        return list(await model.choose_each(prompt_ids, options.pop(), step=len(self.steps)))

    async def log_probabilities(
        self, model: Model, candidates: Sequence[Completion], author: Model
    ) -> list[tuple[float, ...]]:
        """Return the model's log-probability (nats) of each token of each candidate as the next step, in one pass.

        The tokens are the model's own. An empty candidate has none. Raises Stop where one does not fit.
        """
        context = self._contexts[model.role]
        texts = [context.read(c.token_ids, c.text, author.tokenizer) for c in candidates]
        self.check_fits(model, max(map(len, texts)) + len(context.ids))
        nonempty = [ids for ids in texts if ids]
        if not nonempty:
            return [() for _ in texts]
        replies = await model.log_probabilities([context.ids] * len(nonempty), nonempty, step=len(self.steps))
        known = iter(replies)
        return [next(known).token_logprobs if ids else () for ids in texts]

    async def choose_chain(self, model: Model, candidates: Sequence[Candidate], *, may_reject: bool) -> Verdict:
        """Return SCoT's verdict: the best chain or "all are wrong", in one forward pass (section 3.4). Raises Stop."""
        texts = offered_texts(candidates)
        question = prompts.chain_choice_question(
            model.tokenizer, self.problem, texts, self.wording, may_reject=may_reject
        )
        return await self._ask(model, [], question, "choice")

    async def _ask(self, model: Model, context: list[int], question: prompts.Question, kind: VerdictKind) -> Verdict:
        prompt = context + list(question.ids)
        self.check_fits(model, len(prompt))
        return _verdict(kind, question, await model.choose(prompt, question.option_ids, step=len(self.steps)))


def _verdict(kind: VerdictKind, question: prompts.Question, choice: Choice) -> Verdict:
    return Verdict(
        kind=kind,
        question=question.text,
        options=question.labels,
        logprobs=choice.logprobs,
        decision=choice.best,
        score=None,
        accepted=False,
    )
