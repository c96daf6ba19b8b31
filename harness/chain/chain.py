"""What a chain of thought holds: its limits, its steps, both models' contexts, and what a step ends."""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness import prompts
from harness.chain.chain_ending import WHOLE_REPLY_ROLES, Ending, ending, is_repeat, kept_open
from harness.engine import Completion, Role, Tokenizer
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts
from harness.recording import Model
from harness.trace import VERDICT_KINDS, Candidate, Decision, Purpose, Step, StepRole, StopReason, Trace, Verdict


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
        reader = self.tokenizer
        if not reader.thinks and prompts.THINK_END in text:
            return reader.encode(text.replace(prompts.THINK_END, ""))
        tagged = prompts.THINK_END in text and not _have_equal_tags(author, reader)
        return ids if author.fingerprint == reader.fingerprint and not tagged else reader.encode(text)

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
        count = _num_ids(self.tokenizer, self.ids[start:], text)
        if count is None:
            return self.ids[:start] + self.tokenizer.encode(text)
        return self.ids[: start + count]


def _have_equal_tags(one: Tokenizer, other: Tokenizer) -> bool:
    return one.thinks == other.thinks and one.encode(prompts.THINK_END) == other.encode(prompts.THINK_END)


def _num_ids(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> int | None:
    """Return how many of the leading ids decode to the text; None where a token straddles its end.

    A decoded prefix never gets shorter by another id, so bisection finds the first that is long enough.
    """
    count = bisect_left(range(len(ids) + 1), len(text), key=lambda n: len(tokenizer.decode(ids[:n])))
    return count if count <= len(ids) and tokenizer.decode(ids[:count]) == text else None


class ChainState:
    """The steps of a chain, and the contexts of the models that read them."""

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

    @property
    def steps(self) -> list[Step]:
        """The accepted steps so far; a resumed sample starts with those of its earlier attempts."""
        return self.trace.steps

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
        verdict: Verdict | None = None,
        *,
        closing: bool = False,
        decision: Decision | None = None,
    ) -> None:
        """Append a step to both contexts and to the trace; `closing` ends the thought after it, whatever its text.

        `decision`: how the candidates were decided about, where the verdict does not say it. Raises Stop where the
        chain cannot continue after the step, and ValueError for a decision by a verdict that there is not.
        """
        if decision and decision.kind in VERDICT_KINDS and (verdict is None or verdict.kind != decision.kind):
            raise ValueError(f"a decision of the kind {decision.kind!r} needs a verdict of this kind")
        step = self._step(author, role, completion, closing=closing)
        step.candidates, step.verdict, step.decision = list(candidates), verdict, decision
        self._enter(step)
        self.steps.append(step)
        self._on_step(step)
        self.check()

    def check(self) -> None:
        """Raise Stop where nothing may follow the last step. Called directly for a resumed sample."""
        if not self.steps:
            return
        last = self.steps[-1]
        if last.finish == "length" and last.role in WHOLE_REPLY_ROLES:
            raise Stop("budget" if self.trace.emitted_tokens >= self.limits.token_budget else "context")
        repeats = len(self.steps) > 1 and is_repeat(last, self.steps[-2])
        if repeats and self.reasoning and not self.answered:
            raise Stop("repeated")

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

    def _behind(self, model: Model, behind: Sequence[Proposal]) -> tuple[list[int], list[Step]]:
        """Return what a model reads after the chain and these proposals, and the proposals as steps."""
        context = self._contexts[model.role]
        if not behind:
            return context.ids, []
        steps, _, _ = self._as_steps(behind)
        ids = [*context.ids]
        for step in steps:
            ids += context.read(step.token_ids, step.text, self._models[step.author].tokenizer)
        return ids, steps

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
