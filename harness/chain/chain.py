"""One sample's growing chain of thought: the models' contexts, the end of the chain, and its record.

The method decides and the chain executes. The chain holds each model's context in token ids and appends accepted steps
to all contexts: the author's ids if the tokenizers agree, otherwise the text, encoded again. Budget, context,
repetition and completion are checked only here, so they mean the same for every method.
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
    """Ends a sample for a regular reason, which is recorded and is not an error."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


Proposal = tuple[Model, Completion]
"""A model, and a step that it proposes and that is not in the chain yet."""


@dataclass(frozen=True)
class Limits:
    """Sampling and length limits, equal for all methods in a comparison."""

    temperature: float
    top_p: float
    token_budget: int
    """Maximum number of tokens that a sample may emit, including the final answer."""
    by_role: Mapping[Role, Mapping[str, float]] = field(default_factory=dict)
    """Sampling parameters of single models (fields of `Sampling`); they override `temperature` and `top_p`."""


class ModelContext:
    """A growing chain as one model reads it, with the position where the last whole step ends.

    A chain may end inside a step: guidance has a fixed number of tokens, a step may reach its token limit, and a token
    may extend past the separator that ends a step.
    """

    def __init__(
        self, tokenizer: Tokenizer, problem: Problem, wording: Prompts = BUILT_IN, *, rubric: bool = False
    ) -> None:
        """Start the context with the prompt; with `rubric` the prompt explains the score."""
        self.tokenizer = tokenizer
        self.ids, self.prompt = prompts.opening(tokenizer, problem, wording, rubric=rubric)
        self._separator = wording.step_separator
        self.open_text = ""
        """The text after the last step separator: the beginning of an unfinished step."""
        self._last_boundary = len(self.ids), ""
        """For the last text with a separator: number of ids before it, and its part up to the last separator."""

    def read(self, ids: Sequence[int], text: str, author: Tokenizer) -> Sequence[int]:
        """Return a text by `author` as ids for this model; without `</think>` if this is not a reasoning model."""
        reader, tag = self.tokenizer, prompts.THINK_END
        if not reader.thinks and tag in text:
            return reader.encode(text.replace(tag, ""))
        is_own_tag = tag not in text or (author.thinks and author.encode(tag) == reader.encode(tag))
        return ids if author.fingerprint == reader.fingerprint and is_own_tag else reader.encode(text)

    def append(self, ids: Sequence[int], text: str, author: Tokenizer) -> None:
        joined = self.open_text + text
        head, separator, self.open_text = joined.rpartition(self._separator)
        if separator:
            num_known = len(joined) - len(text)
            self._last_boundary = len(self.ids), text[: len(head) + len(separator) - num_known]
        self.ids += self.read(ids, text, author)

    def whole_steps(self) -> list[int]:
        """Return the ids up to the end of the last whole step; all ids if the chain ends with a whole step.

        Unless a token extends past the end of the step, these ids are a prefix of the context and in the prefix cache.
        """
        if not self.open_text.strip():
            return self.ids
        start, text = self._last_boundary
        ids, decode = self.ids[start:], self.tokenizer.decode
        # More ids never decode to a shorter text, so bisection finds the smallest sufficient number of ids.
        count = bisect_left(range(len(ids) + 1), len(text), key=lambda n: len(decode(ids[:n])))
        return self.ids[:start] + (ids[:count] if decode(ids[:count]) == text else self.tokenizer.encode(text))


@dataclass(frozen=True)
class _Place:
    """The ids that a model continues, and the steps among them that are not in the chain yet."""

    model: Model
    ids: list[int]
    ahead: Sequence[Step] = ()


class Chain:
    """The steps of a sample, the models' contexts, and requests to the models.

    Requests for text use the model's context, the limits and a seed per request. A judgment (verdict, reward or
    log-probabilities) is one forward pass and adds nothing to the chain.
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
        """Start all models' contexts and append the steps already in the trace.

        `rubric`: whether the target's prompt explains the score, for `score_each`. `ends_at_box`: whether the chain
        ends with the first step that contains an answer, even inside a thought; no other step then ends the thought.
        `wording`: all texts shown to the models besides the problem and the chain.
        """
        self.problem = problem
        self.wording = wording
        self.limits = limits
        self._ends_at_box = ends_at_box
        self.trace = trace
        self.steps = trace.steps
        """The accepted steps; a resumed sample starts with those of its earlier attempts."""
        self.reasoning = True
        """False once the chain is closed, by `</think>` or by its author's end of sequence."""
        self.answered = False
        """True once the chain contains a final answer; nothing more is written."""
        self._on_step = on_step
        self._models = {m.role: m for m in models}
        self._contexts: dict[Role, ModelContext] = {}
        self._started = time.monotonic() - (trace.steps[-1].elapsed_seconds if trace.steps else 0.0)
        self.thinks = any(m.tokenizer.thinks for m in models if m.role != "reward")
        """True if any writing model reasons: the chain is a thought, closed by `</think>` before the answer."""
        for role, model in self._models.items():
            self._contexts[role] = ModelContext(model.tokenizer, problem, wording, rubric=rubric and role == "target")
            if role != "reward":  # a reward model writes nothing, and reads the same prompt in its own chat template
                setattr(trace, f"{role}_prompt", self._contexts[role].prompt)
        for step in trace.steps:
            self._enter(step)

    def model(self, role: Role) -> Model:
        """Return the model of a role. Raises KeyError if the method does not use the role."""
        return self._models[role]

    def room(self, model: Model) -> int:
        """Return the number of tokens left in the model's context after the chain."""
        return model.engine.context_tokens - len(self._contexts[model.role].ids)

    def check_fits(self, model: Model, num_tokens: int) -> None:
        """Raise Stop if a prompt of this length leaves no room for a token."""
        if num_tokens >= model.engine.context_tokens:
            raise Stop("context")

    @property
    def at_separator(self) -> bool:
        """True if the last step ends with the step separator, even if its last token continues past it."""
        last = self.steps[-1] if self.steps else None
        return last is not None and (last.finish == "stop" or last.text.endswith(self.wording.step_separator))

    @property
    def elapsed_seconds(self) -> float:
        """Active time of this sample, including that of earlier attempts up to their last step."""
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
        """Append a step to all contexts and to the trace; with `closing`, the thought ends after the step.

        `verdict`: the verdict on the candidates, or several in order; the last one decided. `decision`: the reason for
        accepting or rejecting the candidates, if no verdict contains it. Raises Stop if the chain cannot continue
        after the step, TypeError for candidates without a record (see `as_candidates`), and ValueError for a decision
        of kind `choice` or `score` without a verdict of this kind.
        """
        if not all(isinstance(candidate, Candidate) for candidate in candidates):
            raise TypeError("candidates: pass the records made by as_candidates(…), not completions")
        step = self._step(author, role, completion, closing=closing)
        step.verdicts = [verdict] if isinstance(verdict, Verdict) else list(verdict or ())
        if (
            decision
            and decision.kind in DECIDING_KINDS
            and (step.verdict is None or step.verdict.kind != decision.kind)
        ):
            raise ValueError(f"a decision of kind {decision.kind!r} needs a verdict of the same kind")
        step.candidates, step.decision = list(candidates), decision
        self._enter(step)
        self.steps.append(step)
        self._on_step(step)
        self.check()

    def check(self) -> None:
        """Raise Stop if the chain cannot continue after the last step. Also called when a sample resumes."""
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

        `behind`: proposed steps that are not in the chain yet; the model continues after the last of them.
        `token_logprobs` and `entropies`: whether to request these values (see Completion).
        """
        place = self._behind(model, behind)
        sampling = self._sampling(place, purpose, max_tokens, stop=stop, n=n, temperature=temperature)
        sampling = replace(sampling, token_logprobs=token_logprobs, entropies=entropies)
        return await self._written(place, sampling, purpose)

    async def propose_each(
        self, model: Model, prefixes: Sequence[Sequence[Proposal]], *, max_tokens: int, purpose: Purpose
    ) -> list[Completion]:
        """Return one model's next step after each of several prefixes (see `propose`), generated in parallel.

        Recorded as one call, because the sample waits only once. Raises Stop if one of the prefixes leaves no room.
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
        """Return a truncated proposal joined with its author's continuation: one step from two requests.

        `max_tokens` limits the continuation. The proposal is returned unchanged if it is not truncated, or if it uses
        up the budget or fills the context. Raises Stop if it is truncated and has no generated tokens, and no budget or
        context is left.
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
        # Not the seed of the first request, which would give the same random numbers again.
        seed = mixed_seed(f"{self._seed(purpose, len(self.steps))}/{len(begun.token_ids)}")
        sampling = replace(
            sampling, seed=seed, token_logprobs=begun.token_logprobs is not None, entropies=begun.entropies is not None
        )
        [more] = await self._written(place, sampling, purpose, len(self.steps))
        return joined(begun, more, model.tokenizer)

    def may_continue(self, behind: Sequence[Proposal], *models: Model) -> bool:
        """Return whether another step may follow the chain extended by these proposals.

        No step may follow if the extended chain contains the answer, repeats a step within the thought, has used up the
        budget, or fills the context of one of `models`.
        """
        steps, reasoning, answered = self._as_steps(behind)
        repeats = any(is_repeat(step, before) for before, step in pairwise([*self.steps[-1:], *steps]))
        has_room = all(len(self._behind(m, behind).ids) < m.engine.context_tokens for m in models)
        return not answered and not (repeats and reasoning) and self._budget(steps) > 0 and has_room

    def propose_behind(self, candidate: Completion, model: Model, *, max_tokens: int) -> None:
        """Start the request that `propose` will send if this candidate of the model becomes the next step.

        `propose` uses the request only if prompt, limits and seed match, so an early start does not change the chain.
        Nothing is started if the candidate ends the chain, repeats the previous step, or leaves no budget or context.
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
        """Let one model write the next step, which is not judged. Raises Stop.

        Recorded with the step: the rejected candidates (`refused`), and the `verdict` or `decision` that rejected them
        (see `accept`). `opening`: text added at the beginning of the step, not generated. `stop`: by default, the step
        separator, or nothing for roles that end the chain.
        """
        if stop is None and role in WHOLE_REPLY_ROLES:
            stop = ()
        for other in self._models.values():
            other.discard()  # a draft that was started early may follow a candidate that is now rejected
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
        is_plain = not model.tokenizer.thinks  # without `</think>`, the context does not ask for an answer
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
        """Close the thought after the last step with the closing text of `author`, so that `answer` can follow.

        Does nothing if the thought is already closed. Otherwise recorded as a step with the role `closing` and no
        generated tokens, with the candidates and the decision that closed the thought (see `accept`).
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
        """Return `n` continuations of the chain followed by this text, such as trial answers; the chain is unchanged.

        The tokens count as spent (purpose `probe`), not as emitted, and are not limited by the token budget. The seed
        depends on sample and step, so equal requests give equal continuations. Raises Stop if there is no room.
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

        If the chain ends inside a step, as it usually does after guidance, the model still judges whole steps: it reads
        the chain up to the last whole step, and the unfinished step is repeated at the beginning of each candidate. A
        model that sees only the second half of a formula would reject even its own text. If the repetitions do not fit
        in the context (a chain without step separators), the candidates follow the whole chain unchanged. Raises Stop.
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
        """Return a score for each distinct candidate, in the order of their options, requested in parallel.

        Each candidate directly follows the chain, so the accepted one is already in the prefix cache. Raises Stop.
        """
        question = prompts.short_score_question(model.tokenizer, self.wording)
        context, judged = self._contexts[model.role], []
        for option in range(len(offered_texts(candidates))):
            proposed = completions[next(i for i, c in enumerate(candidates) if c.option == option)]
            judged.append([*context.ids, *context.read(proposed.token_ids, proposed.text, author.tokenizer)])
        return await self._verdicts(model, judged, question, "score")

    async def reward(self, candidate: Completion, author: Model) -> Verdict:
        """Return the reward model's verdict on a candidate; its `score` is the probability that the step is right.

        For methods with a reward model in `roles`. The candidate directly follows the chain. After the candidate, the
        model reads the wording's `reward` question or, if the model has a rating head, the wording's `mark`. Raises
        Stop.
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
        """Return the rating that a model's head gives each candidate as the next step, requested in parallel.

        `mark`: text after the candidate, with control tokens; the head is read at the last token. Recorded as one call
        without tokens. Raises Stop if a candidate does not fit, and ValueError for a model without a head.
        """
        if not model.engine.has_head:
            raise ValueError(f"the {model.role} model has no rating head: use `score`")
        context, behind = self._contexts[model.role], model.tokenizer.encode_template(mark)
        texts = [[*context.ids, *context.read(c.token_ids, c.text, author.tokenizer), *behind] for c in candidates]
        self.check_fits(model, max(map(len, texts)))
        return list(await model.rate_each(texts, step=len(self.steps)))

    async def ask_each(self, model: Model, questions: Sequence[prompts.Question]) -> list[Choice]:
        """Return the answers to whole prompts, requested in parallel; the chain is not added to the prompts.

        Recorded as one call. Raises Stop if a prompt does not fit, and ValueError if the options differ.
        """
        self.check_fits(model, max(len(question.ids) for question in questions))
        options = {question.option_ids for question in questions}
        if len(options) != 1:
            raise ValueError("questions asked together must have the same options")
        prompt_ids = [question.ids for question in questions]
        return list(await model.choose_each(prompt_ids, options.pop(), step=len(self.steps)))

    async def log_probabilities(
        self, model: Model, candidates: Sequence[Completion], author: Model
    ) -> list[tuple[float, ...]]:
        """Return the model's log-probability (nats) of each token of each candidate as the next step.

        Candidates are split into this model's tokens; an empty candidate has no log-probabilities. Requested in
        parallel and recorded as one call. Raises Stop if a candidate does not fit.
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
        """Return the sampling parameters for the next step at a place. Raises Stop if no budget or context is left.

        `temperature` overrides the run's. `budget`: maximum number of tokens; None: the rest of the chain's budget.
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
        step = len(self.steps) + len(place.ahead) if step is None else step
        drawn = await place.model.generate(place.ids, sampling, purpose=purpose, step=step)
        return await self._whole(place, sampling, purpose, drawn)

    async def _whole(
        self, place: _Place, sampling: Sampling, purpose: Purpose, drawn: Sequence[Completion]
    ) -> list[Completion]:
        """Return the completions without unfinished last characters; a lone unfinished character is completed."""
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
            raise Stop("context")  # no room for one character
        return whole

    async def _verdicts(
        self, model: Model, contexts: Sequence[list[int]], question: prompts.Question, kind: VerdictKind
    ) -> list[Verdict]:
        asked = [replace(question, ids=(*context, *question.ids)) for context in contexts]
        return [
            Verdict(kind, question.text, question.labels, choice.logprobs, choice.best, None, False, model.role)
            for choice in await self.ask_each(model, asked)
        ]

    def _as_steps(self, behind: Sequence[Proposal]) -> tuple[list[Step], bool, bool]:
        """Return proposals as steps, and the values of `reasoning` and `answered` after them."""
        steps: list[Step] = []
        reasoning, answered = self.reasoning, self.answered
        for author, completion in behind:
            steps.append(self._step(author, "draft", completion, reasoning=reasoning))
            ends = self._ends(steps[-1], reasoning=reasoning)
            answered |= ends.chain
            reasoning &= not ends.thought
        return steps, reasoning, answered

    def _behind(self, model: Model, behind: Sequence[Proposal]) -> _Place:
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

        `reasoning`: whether the chain reasons before the step; None: its current state.
        """
        reasoning = self.reasoning if reasoning is None else reasoning
        text, ids = completion.text, completion.token_ids
        if self._ends_at_box:
            open_text = kept_open(text, completion.finish, self.wording.step_separator)
            text, ids = open_text, ids if open_text == text else tuple(author.tokenizer.encode(open_text))
        ends = closing or (completion.finish == "eos" and not self._ends_at_box)
        if ends and self.thinks and reasoning and prompts.THINK_END not in text:
            bridge = author.tokenizer.thought.closing  # the author stopped or was truncated inside its thought
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
        return self.limits.token_budget - self.trace.emitted_tokens - sum(step.num_tokens for step in ahead)

    def _seed(self, purpose: Purpose, num_steps: int) -> int:
        """Return the seed of a call. It depends on sample, step and purpose, but not on scheduling or attempts."""
        return mixed_seed(f"{self.trace.seed}/{num_steps}/{purpose}")


def mixed_seed(text: str) -> int:
    """Return a 31-bit seed from a text that identifies the request."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
