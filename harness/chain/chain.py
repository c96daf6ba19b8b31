"""One sample's chain of thought while it grows: both models' contexts, what ends it, and what is recorded of it.

The method decides and the chain executes: it holds the prompt of each model in token ids, appends accepted steps to
both (as ids where the tokenizers agree, as text where they do not), and is the only place where budget, context,
repetition and completion are checked, so that these mean the same for every method.
"""

from __future__ import annotations

import hashlib
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from harness import prompts
from harness.chain.chain_ending import (
    WHOLE_REPLY_ROLES,
    Ending,
    ending,
    is_repeat,
    joined,
    kept_open,
    num_cut,
    whole_completion,
)
from harness.chain.step_candidates import offered_texts
from harness.engine import Choice, Completion, Rating, Role, Sampling, Tokenizer
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts
from harness.recording import Model
from harness.trace import (
    DECIDING_KINDS,
    Candidate,
    Decision,
    Purpose,
    Step,
    StepRole,
    StopReason,
    Trace,
    Verdict,
    VerdictKind,
)


class Stop(Exception):
    """Ends a sample for a reason that is data, not an error."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


Proposal = tuple[Model, Completion]
"""A step that the chain does not hold, with its author."""


@dataclass(frozen=True)
class Limits:
    """Sampling and length limits, which are the same for every method of a comparison."""

    temperature: float
    top_p: float
    token_budget: int
    """Most tokens that a sample may emit, final answer included."""
    by_role: Mapping[Role, Mapping[str, float]] = field(default_factory=dict)
    """What a model draws by instead (fields of `Sampling`), where it differs from the other one or from vLLM's
    defaults."""


class ModelContext:
    """One model's reading of a growing chain. It also knows where the last whole step ends.

    A chain may end inside a step: guidance is a fixed number of tokens, a step may reach its token limit, and a token
    may carry text past the separator that ends a step.
    """

    def __init__(
        self, tokenizer: Tokenizer, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False
    ) -> None:
        """Open the context with the prompt; `rubric` lets the prompt explain what a score is."""
        self.tokenizer = tokenizer
        self.ids, self.prompt = prompts.opening(tokenizer, problem, wording, rubric=rubric)
        self._separator = wording.step_separator
        self.open_text = ""
        """The text behind the last step separator: the beginning of the unfinished step that the chain ends in."""
        self._last_boundary = len(self.ids), ""
        """How many ids stand before the piece with the last separator, and the text of that piece up to it."""

    def read(self, ids: Sequence[int], text: str, author: Tokenizer) -> Sequence[int]:
        """Return the ids under which this model reads what `author` wrote; a plain model is not shown `</think>`."""
        reader, tag = self.tokenizer, prompts.THINK_END
        if not reader.thinks and tag in text:
            return reader.encode(text.replace(tag, ""))
        is_own_tag = tag not in text or (author.thinks and author.encode(tag) == reader.encode(tag))
        return ids if author.fingerprint == reader.fingerprint and is_own_tag else reader.encode(text)

    def append(self, ids: Sequence[int], text: str, author: Tokenizer) -> None:
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
        ids, decode = self.ids[start:], self.tokenizer.decode
        # A decoded prefix never gets shorter by another id, so bisection finds the first that is long enough.
        count = bisect_left(range(len(ids) + 1), len(text), key=lambda n: len(decode(ids[:n])))
        return self.ids[:start] + (ids[:count] if decode(ids[:count]) == text else self.tokenizer.encode(text))


@dataclass(frozen=True)
class _Place:
    """What a model reads before it writes, and the steps in it that the chain does not hold yet."""

    model: Model
    ids: list[int]
    ahead: Sequence[Step] = ()


class Chain:
    """The steps that models share, the contexts that they read, and what is asked of the models about them.

    Requests for text are sent in the chain's context, within its limits, with a seed of their own. A judgement (a
    verdict, a reward, log-probabilities) is one forward pass, and adds nothing to the chain.
    """

    def __init__(
        self,
        problem: Problem,
        models: Sequence[Model],
        trace: Trace,
        limits: Limits,
        on_step: Callable[[Step], None] = lambda step: None,
        *,
        rubric: bool = False,
        ends_at_box: bool = False,
        wording: Prompts = BUILT_IN,
    ) -> None:
        """Open both models' contexts and enter the steps that the trace holds already.

        `rubric`: the target's prompt explains what a score is, for `score_each`. `ends_at_box`: the chain ends with the
        first step that holds an answer, also inside a thought; nothing else closes the thought. `wording`: every text
        that the models are given beside the problem.
        """
        self.problem = problem
        self.wording = wording
        self.limits = limits
        self._ends_at_box = ends_at_box
        self.trace = trace
        self.steps = trace.steps
        """The accepted steps so far; a resumed sample starts with those of its earlier attempts."""
        self.reasoning = True
        """False once the chain is closed: by `</think>`, or by its author's end of sequence."""
        self.answered = False
        """True once the chain holds a final answer, so that nothing more is written."""
        self._on_step = on_step
        self._models = {m.role: m for m in models}
        self._contexts: dict[Role, ModelContext] = {}
        self._started = time.monotonic() - (trace.steps[-1].elapsed_seconds if trace.steps else 0.0)
        self.thinks = any(m.tokenizer.thinks for m in models if m.role != "reward")
        """True where any writing model reasons: the chain is a thought, which `</think>` closes before the answer."""
        for role, model in self._models.items():
            self._contexts[role] = ModelContext(model.tokenizer, problem, wording, rubric=rubric and role == "target")
            if role != "reward":  # it writes nothing; its prompt is the same in its own template
                setattr(trace, f"{role}_prompt", self._contexts[role].prompt)
        for step in trace.steps:
            self._enter(step)

    def model(self, role: Role) -> Model:
        """Return the model of a role; raises KeyError where the method has none."""
        return self._models[role]

    def room(self, model: Model) -> int:
        """Return how many tokens the model's context has left behind the chain."""
        return model.engine.context_tokens - len(self._contexts[model.role].ids)

    def check_fits(self, model: Model, num_tokens: int) -> None:
        """Raise Stop where a prompt of so many tokens leaves no room for a token of the model's."""
        if num_tokens >= model.engine.context_tokens:
            raise Stop("context")

    @property
    def at_separator(self) -> bool:
        """True where the last step ends with the step separator, also inside its last token."""
        last = self.steps[-1] if self.steps else None
        return last is not None and (last.finish == "stop" or last.text.endswith(self.wording.step_separator))

    @property
    def elapsed_seconds(self) -> float:
        """Active time of this sample, including earlier attempts up to their last step."""
        return time.monotonic() - self._started

    def accept(
        self,
        author: Model,
        role: StepRole,
        completion: Completion,
        candidates: Sequence[Candidate] = (),
        verdict: Verdict | Sequence[Verdict] | None = None,
        *,
        closing: bool = False,
        decision: Decision | None = None,
    ) -> None:
        """Append a step to both contexts and to the trace; `closing` ends the thought after it, whatever its text.

        `verdict`: the verdict on the candidates, or all of them in the order in which they were asked for; the last one
        decided. `decision`: how the candidates were decided about, where that verdict does not say it. Raises Stop
        where the chain cannot continue after the step, and ValueError for a decision by a verdict that there is not.
        """
        step = self._step(author, role, completion, closing=closing)
        step.verdicts = [verdict] if isinstance(verdict, Verdict) else list(verdict or ())
        if (
            decision
            and decision.kind in DECIDING_KINDS
            and (step.verdict is None or step.verdict.kind != decision.kind)
        ):
            raise ValueError(f"a decision of the kind {decision.kind!r} needs a verdict of this kind")
        step.candidates, step.decision = list(candidates), decision
        self._enter(step)
        self.steps.append(step)
        self._on_step(step)
        self.check()

    def check(self) -> None:
        """Raise Stop where nothing may follow the last step. Called directly for a resumed sample."""
        before, last = [None, None, *self.steps][-2:]
        if last and last.finish == "length" and last.role in WHOLE_REPLY_ROLES:
            is_full = self._budget() > 0 and self.room(self._models[last.author]) <= 0
            raise Stop("context" if is_full else "budget")
        if before and last and is_repeat(last, before) and self.reasoning and not self.answered:
            raise Stop("repeated")

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
        place = self._behind(model, behind)
        sampling = self._sampling(place, purpose, max_tokens, stop=stop, n=n, temperature=temperature)
        sampling = replace(sampling, token_logprobs=token_logprobs, entropies=entropies)
        return await self._written(place, sampling, purpose)

    async def propose_each(
        self, model: Model, prefixes: Sequence[Sequence[Proposal]], *, max_tokens: int, purpose: Purpose
    ) -> list[Completion]:
        """Return one model's next step behind each of several prefixes (see `propose`), all generated in parallel.

        They count as one call, because a sample waits once. Raises Stop where there is no room behind one of them.
        """
        places = [self._behind(model, prefix) for prefix in prefixes]
        requests = [(place.ids, self._sampling(place, purpose, max_tokens)) for place in places]
        drawn = await model.generate_each(requests, purpose=purpose, step=len(self.steps))
        return [
            (await self._whole(place, sampling, purpose, [completion]))[0]
            for place, (_, sampling), completion in zip(places, requests, drawn, strict=True)
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
        spent = Step(model.role, "draft", begun.text, begun.num_tokens, begun.token_ids, begun.finish)
        place = _Place(model, [*self._contexts[model.role].ids, *begun.token_ids], [spent])
        try:
            sampling = self._sampling(place, purpose, max_tokens, stop=stop, temperature=temperature)
        except Stop:
            if begun.num_tokens:
                return begun
            raise
        # Another seed than that of the beginning, whose random numbers would be drawn again.
        seed = mixed_seed(f"{self._seed(purpose, len(self.steps))}/{len(begun.token_ids)}")
        sampling = replace(
            sampling, seed=seed, token_logprobs=begun.token_logprobs is not None, entropies=begun.entropies is not None
        )
        [more] = await self._written(place, sampling, purpose, len(self.steps))
        return joined(begun, more, model.tokenizer)

    def may_continue(self, behind: Sequence[Proposal], *models: Model) -> bool:
        """Return False where nothing may follow these proposals: they hold the answer or repeat a step.

        The same where they leave no budget, or one of the models no room in its context.
        """
        steps, reasoning, answered = self._as_steps(behind)
        repeats = any(is_repeat(step, before) for before, step in pairwise([*self.steps[-1:], *steps]))
        has_room = all(len(self._behind(m, behind).ids) < m.engine.context_tokens for m in models)
        return not answered and not (repeats and reasoning) and self._budget(steps) > 0 and has_room

    def propose_behind(self, candidate: Completion, model: Model, *, max_tokens: int) -> None:
        """Start the request that `propose` will send if this candidate of the model becomes the next step.

        `propose` uses the started request where prompt, limits and seed are those that it would send, so the chain is
        the same with and without it. Nothing is started where `propose` would not be called: after a step that ends the
        chain, repeats the previous one, or leaves no budget or context.
        """
        behind = [(model, candidate)]
        if self.may_continue(behind, model):
            place = self._behind(model, behind)
            model.begin(place.ids, self._sampling(place, "draft", max_tokens), step=len(self.steps) + 1)

    async def write(
        self,
        model: Model,
        role: StepRole,
        *,
        max_tokens: int,
        stop: tuple[str, ...] | None = None,
        refused: Sequence[Candidate] = (),
        verdict: Verdict | Sequence[Verdict] | None = None,
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

    async def answer(self, model: Model, temperature: float | None = None, *, max_tokens: int | None = None) -> None:
        """Let the model write the final answer after the finished reasoning, within the budget. Raises Stop."""
        is_plain = not model.tokenizer.thinks  # nothing in its context tells it to answer now
        forced = model.tokenizer.encode(self.wording.answer_bridge) if is_plain else []
        stop = ("\n",) if is_plain else ()
        place = _Place(model, self._contexts[model.role].ids + forced)
        limit = self.limits.token_budget if max_tokens is None else max_tokens
        sampling = self._sampling(place, "answer", limit, stop=stop, temperature=temperature)
        [completion] = await self._written(place, sampling, "answer")
        whole = replace(
            completion,
            token_ids=(*forced, *completion.token_ids),
            text=(self.wording.answer_bridge if forced else "") + completion.text,
        )
        self.accept(model, "answer", whole)

    def close(self, author: Model, candidates: Sequence[Candidate] = (), *, decision: Decision | None = None) -> None:
        """Close the thought behind the last step, as `author` writes it, so that `answer` may follow.

        Recorded as a step of the role `closing`, without a token, with the candidates and the decision that closed it
        (see `accept`). A chain that reasons no more stays as it is.
        """
        if self.reasoning:
            nothing = Completion((), "", "stop", num_tokens=0)
            self.accept(author, "closing", nothing, candidates, closing=True, decision=decision)

    async def probe(
        self,
        model: Model,
        text: str = "",
        *,
        max_tokens: int,
        n: int = 1,
        stop: tuple[str, ...] = (),
        temperature: float | None = None,
        token_logprobs: bool = False,
        entropies: bool = False,
    ) -> list[Completion]:
        """Return `n` continuations of the chain and this text that the chain does not keep, such as a trial answer.

        They count as spent (purpose `probe`), not as emitted, and the token budget does not limit them. Behind the
        same chain and text the same is drawn again, with a seed of their own. Raises Stop where there is no room.
        """
        place = _Place(model, [*self._contexts[model.role].ids, *model.tokenizer.encode(text)])
        drawn = self._sampling(place, "probe", max_tokens, stop=stop, n=n, temperature=temperature, budget=max_tokens)
        drawn = replace(drawn, token_logprobs=token_logprobs, entropies=entropies)
        return list(await model.generate(place.ids, drawn, purpose="probe", step=len(self.steps)))

    async def score(self, model: Model, candidate: Completion, author: Model) -> Verdict:
        """Return SpecReason's verdict on a candidate: one token, 0 to 9, in one forward pass (section 4.1).

        Raises Stop.
        """
        question = prompts.score_question(model.tokenizer, self.wording)
        context = self._contexts[model.role]
        proposed = context.read(candidate.token_ids, candidate.text, author.tokenizer)
        [verdict] = await self._verdicts(model, [[*context.ids, *proposed]], question, "score")
        return verdict

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
        [verdict] = await self._verdicts(model, [chain_ids], question, "choice")
        return verdict

    async def score_each(
        self, model: Model, candidates: Sequence[Candidate], completions: Sequence[Completion], author: Model
    ) -> list[Verdict]:
        """Return a score for each distinct candidate, in the order of their options; all are asked in parallel.

        Each candidate is judged in place, right after the chain, so that the cache of the accepted one is the next
        context. Raises Stop.
        """
        question = prompts.short_score_question(model.tokenizer, self.wording)
        context, judged = self._contexts[model.role], []
        for option in range(len(offered_texts(candidates))):
            proposed = completions[next(i for i, c in enumerate(candidates) if c.option == option)]
            judged.append([*context.ids, *context.read(proposed.token_ids, proposed.text, author.tokenizer)])
        return await self._verdicts(model, judged, question, "score")

    async def reward(self, candidate: Completion, author: Model) -> Verdict:
        """Return the reward model's verdict on this next step; its `score` is the probability that it is right.

        For methods whose `roles` have a reward model. The candidate is read right after the chain, with the wording's
        `reward` question behind it, or its `mark` for a model with a head of its own. Raises Stop.
        """
        model, wording = self._models["reward"], self.wording
        if model.engine.has_head:
            mark, labels = wording.reward.mark or "", (wording.reward.good, wording.reward.bad)
            [rating] = await self.rate(model, [candidate], author, mark)
            good = rating.probability
            logprobs = tuple(math.log(p) if p else -math.inf for p in (good, 1 - good))
            return Verdict("reward", mark, labels, logprobs, int(good < 0.5), good, False, model.role)
        question, context = prompts.reward_question(model.tokenizer, wording), self._contexts["reward"]
        read = context.read(candidate.token_ids, candidate.text, author.tokenizer)
        [verdict] = await self._verdicts(model, [[*context.ids, *read]], question, "reward")
        verdict.score = verdict.probabilities[0]
        return verdict

    async def rate(self, model: Model, candidates: Sequence[Completion], author: Model, mark: str = "") -> list[Rating]:
        """Return what a model's own head says of each candidate as the next step, asked in parallel.

        `mark`: text with control tokens behind the candidate, at whose end the head reads. Recorded as one call that
        writes nothing. Raises Stop where one does not fit.
        """
        if not model.engine.has_head:
            raise ValueError(f"the {model.role} model has no head of its own that could rate: ask it by `score`")
        context, behind = self._contexts[model.role], model.tokenizer.encode_template(mark)
        texts = [[*context.ids, *context.read(c.token_ids, c.text, author.tokenizer), *behind] for c in candidates]
        self.check_fits(model, max(map(len, texts)))
        return list(await model.rate_each(texts, step=len(self.steps)))

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
        if not (nonempty := [ids for ids in texts if ids]):
            return [() for _ in texts]
        known = iter(await model.log_probabilities([context.ids] * len(nonempty), nonempty, step=len(self.steps)))
        return [next(known).token_logprobs if ids else () for ids in texts]

    async def choose_chain(self, model: Model, candidates: Sequence[Candidate], *, may_reject: bool) -> Verdict:
        """Return SCoT's verdict: the best chain or "all are wrong", in one forward pass (section 3.4). Raises Stop."""
        texts = offered_texts(candidates)
        question = prompts.chain_choice_question(
            model.tokenizer, self.problem, texts, self.wording, may_reject=may_reject
        )
        [verdict] = await self._verdicts(model, [[]], question, "choice")
        return verdict

    def _sampling(
        self,
        place: _Place,
        purpose: Purpose,
        max_tokens: int,
        *,
        stop: tuple[str, ...] | None = None,
        n: int = 1,
        temperature: float | None = None,
        budget: int | None = None,
    ) -> Sampling:
        """Return the sampling of the next step at a place. Raises Stop.

        A `temperature` of the method's own takes precedence over the run's. `budget`: the tokens that may be emitted;
        None: what the chain leaves.
        """
        budget = self._budget(place.ahead) if budget is None else budget
        room = place.model.engine.context_tokens - len(place.ids)
        if budget <= 0 or room <= 0:
            raise Stop("budget" if budget <= 0 else "context")
        limits = self.limits
        drawn: dict[str, Any] = {"temperature": limits.temperature, "top_p": limits.top_p}
        drawn |= limits.by_role.get(place.model.role, {})
        drawn |= {} if temperature is None else {"temperature": temperature}
        return Sampling(
            max_tokens=min(max_tokens, budget, room),
            **drawn,
            stop=(self.wording.step_separator,) if stop is None else stop,
            seed=self._seed(purpose, len(self.steps) + len(place.ahead)),
            n=n,
        )

    async def _written(
        self, place: _Place, sampling: Sampling, purpose: Purpose, step: int | None = None
    ) -> list[Completion]:
        """Return completions that do not end inside a character, wherever their limit cut them."""
        step = len(self.steps) + len(place.ahead) if step is None else step
        drawn = await place.model.generate(place.ids, sampling, purpose=purpose, step=step)
        return await self._whole(place, sampling, purpose, drawn)

    async def _whole(
        self, place: _Place, sampling: Sampling, purpose: Purpose, drawn: Sequence[Completion]
    ) -> list[Completion]:
        """Return completions without a character that their limit cut, drawing what a character lacks."""
        step, model, tokenizer = len(self.steps), place.model, place.model.tokenizer
        if not any(num_cut(completion, tokenizer) for completion in drawn):
            return list(drawn)
        budget, room = self._budget(place.ahead), model.engine.context_tokens - len(place.ids)
        whole = []
        for i, completion in enumerate(drawn):

            async def next_token(ids: Sequence[int], seed: int = sampling.seed + i) -> Completion:
                one = replace(sampling, max_tokens=1, stop=(), seed=mixed_seed(f"{seed}/{len(ids)}"), n=1)
                [token] = await model.generate([*place.ids, *ids], one, purpose=purpose, step=step)
                return token

            whole.append(await whole_completion(completion, tokenizer, next_token, min(budget, room)))
        if room < budget and not any(completion.token_ids for completion in whole):
            raise Stop("context")  # there is no room for one character
        return whole

    async def _verdicts(
        self, model: Model, contexts: Sequence[list[int]], question: prompts.Question, kind: VerdictKind
    ) -> list[Verdict]:
        """Return the answers to one question behind each of these contexts, all asked in parallel. Raises Stop."""
        asked = [replace(question, ids=(*context, *question.ids)) for context in contexts]
        return [
            Verdict(kind, question.text, question.labels, choice.logprobs, choice.best, None, False, model.role)
            for choice in await self.ask_each(model, asked)
        ]

    def _as_steps(self, behind: Sequence[Proposal]) -> tuple[list[Step], bool, bool]:
        """Return proposals as steps, and whether the chain would still be reasoning, and be answered, after them."""
        steps: list[Step] = []
        reasoning, answered = self.reasoning, self.answered
        for author, completion in behind:
            steps.append(self._step(author, "draft", completion, reasoning=reasoning))
            ends = self._ends(steps[-1], reasoning=reasoning)
            answered |= ends.chain
            reasoning &= not ends.thought
        return steps, reasoning, answered

    def _behind(self, model: Model, behind: Sequence[Proposal]) -> _Place:
        """Return the place behind the chain and these proposals."""
        context = self._contexts[model.role]
        steps, ids = self._as_steps(behind)[0], [*context.ids] if behind else context.ids
        for step in steps:
            ids += context.read(step.token_ids, step.text, self._models[step.author].tokenizer)
        return _Place(model, ids, steps)

    def _step(
        self,
        author: Model,
        role: StepRole,
        completion: Completion,
        *,
        closing: bool = False,
        reasoning: bool | None = None,
    ) -> Step:
        """Return the completion as the next step, without candidates and verdict.

        `reasoning`: whether the chain reasons before it; None: as it does now.
        """
        reasoning = self.reasoning if reasoning is None else reasoning
        text, ids = completion.text, completion.token_ids
        if self._ends_at_box:
            open_text = kept_open(text, completion.finish, self.wording.step_separator)
            text, ids = open_text, ids if open_text == text else tuple(author.tokenizer.encode(open_text))
        ends = closing or (completion.finish == "eos" and not self._ends_at_box)
        if ends and self.thinks and reasoning and prompts.THINK_END not in text:
            bridge = author.tokenizer.thought.closing  # the author stopped, or was cut off, inside its thought
            text += bridge
            ids += tuple(author.tokenizer.encode(bridge) if author.tokenizer.thinks else ())
        return Step(
            author=author.role,
            role=role,
            text=text,
            num_tokens=completion.num_tokens,
            token_ids=ids,
            finish=completion.finish,
            elapsed_seconds=self.elapsed_seconds,
        )

    def _enter(self, step: Step) -> None:
        """Append a step to both contexts and update what it ends."""
        author = self._models[step.author].tokenizer
        for context in self._contexts.values():
            context.append(step.token_ids, step.text, author)
        ends = self._ends(step)
        self.answered |= ends.chain
        self.reasoning &= not ends.thought

    def _ends(self, step: Step, *, reasoning: bool | None = None) -> Ending:
        reasoning = self.reasoning if reasoning is None else reasoning
        return ending(step, in_thought=self.thinks and reasoning, at_any_answer=self._ends_at_box)

    def _budget(self, ahead: Sequence[Step] = ()) -> int:
        """Return how many tokens may be emitted after `ahead` steps that the chain does not hold yet."""
        return self.limits.token_budget - self.trace.emitted_tokens - sum(step.num_tokens for step in ahead)

    def _seed(self, purpose: Purpose, num_steps: int) -> int:
        """Return the seed of a call, from sample, step and purpose.

        Results so do not depend on scheduling, and a resumed step is drawn as it was.
        """
        return mixed_seed(f"{self.trace.seed}/{num_steps}/{purpose}")


def mixed_seed(text: str) -> int:
    """Return a seed of 31 bits from what sets a request apart."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
