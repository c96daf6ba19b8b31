"""The record of one sample: steps, candidates, verdicts and calls. Stores only facts; derived values are properties.

Calls are written by recording.py, steps by the method (through chain/). Totals follow from both, so every rejected
draft is counted. Field names are the column names of trace files and warehouse.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict

from harness.engine import Finish, Role, normalized

StepRole = Literal["guidance", "draft", "fallback", "rethink", "chain", "closing", "answer"] | str
"""guidance: opening written by the target. draft: an accepted draft. fallback: the target's own step after a rejection.
rethink: the target's own chain after "all wrong" (SCoT). chain: a whole chain by one model (vanilla).
closing: `</think>` added by the method, not generated. answer: the final answer.
Methods may use other words for steps that are neither drafts nor fallbacks, such as thought."""
Purpose = Literal["guidance", "draft", "verdict", "fallback", "rethink", "chain", "answer", "lookahead", "probe"] | str
"""verdict: a judgment of a step. probe: text outside the chain. lookahead: a draft that was started early
(`--lookahead`) and then discarded; if used, its purpose is draft. Any other purpose is the role of the step that
the call contributes to."""
VerdictKind = Literal["choice", "score", "reward"]
"""choice: one of several options, the last of which may reject all. score: a digit from 0 to 9. reward: a reward
model's probability, from 0 to 1, that a step is good."""
DECIDING_KINDS: frozenset[VerdictKind] = frozenset(("choice", "score"))
"""Kinds of verdicts that need no separate `Decision`, because the verdict itself records what was decided."""
StopReason = Literal["answered", "budget", "repeated", "context", "error"]
"""answered: the model ended its answer. budget: the token budget was spent. repeated: a step had the same text as
the previous one. context: the model's context window was full. error: an exception, stored in `error`."""

LogProbability = Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]
"""In nats; JSON has no infinity, so a journal stores null for the log-probability of an impossible token."""


def _check_word(what: str, word: str) -> None:
    if not re.fullmatch("[a-z][a-z0-9_ ]{0,39}", word):
        raise ValueError(f"{what}: {word!r}; valid: 1 to 40 characters (a-z, 0-9, space, _), starting with a letter")


@dataclass(slots=True)
class Call:
    """One request to one engine."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    purpose: Purpose
    model: Role
    step: int
    """Index of the step that this call contributes to."""
    n: int
    """Number of completions requested in parallel, or of judgments for a verdict."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens read from the prefix cache."""
    output_tokens: int
    """Generated tokens of all n completions together."""
    longest_output_tokens: int
    """Tokens of the longest completion, which determines the waiting time."""
    submitted_at: float
    """UTC, seconds since the epoch."""
    queued_seconds: float
    first_token_seconds: float
    end_seconds: float
    in_flight: int
    """Requests of this engine that were running or queued at submission, including this one."""
    proposed_tokens: int | None = None
    """Tokens proposed by token-level speculation, for all n completions; None without it, or if not counted."""
    accepted_tokens: int | None = None
    """Proposed tokens accepted by the model."""
    overlapped_seconds: float = 0.0
    """Part of `end_seconds` in which the sample did not wait for the call: positive for a draft started early, all of
    it for a lookahead."""

    def __post_init__(self) -> None:
        _check_word("purpose of a call", self.purpose)


@dataclass(slots=True)
class Candidate:
    """One proposal for a step."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    text: str
    num_tokens: int
    finish: Finish
    mean_logprob: float | None
    option: int | None = None
    """Index of this text among the verdict's options; equal texts share an option. None: not offered as an option."""
    accepted: bool = False
    verdict_score: float | None = None
    """Score of the candidate's own verdict, 0 to 9 (SpecCoT, `--verdict separate`); None after a joint verdict."""


@dataclass(slots=True)
class Verdict:
    """A model's judgment in one forward pass, with the full probability vector."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: VerdictKind
    question: str
    """The text of the question, exactly as sent and including candidates, without the chain before it."""
    options: tuple[str, ...]
    """The option labels, e.g. ("1", "2", "3") or ("0", …, "9")."""
    logprobs: tuple[LogProbability, ...]
    """Log-probability of each option before any mask (nats)."""
    decision: int
    """Index of the most probable option; for a choice, a candidate or the rejection."""
    score: float | None
    """The score or reward that was compared with a threshold; None for a choice."""
    accepted: bool
    """True if a candidate was accepted."""
    model: Role = "target"
    """The model that judged."""

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each option, normalized over the options."""
        return normalized(self.logprobs)


@dataclass(slots=True)
class Decision:
    """Why a step was accepted or its candidates were rejected: criterion, value and threshold.

    Choices and scores need no decision. Methods with other criteria (the draft's confidence, agreement of several
    drafts, a reward model) record a decision with every step decided that way. Reports on rates, positions, calibration
    and replay treat it like a verdict of that kind.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    """The criterion in a few words, such as `confidence` or `reward`. `choice` and `score` also need a verdict."""
    value: float | None
    """The value compared with the threshold, if any."""
    threshold: float | None
    """The threshold; None if there was no comparison."""
    accepted: bool
    """True if the draft's proposal became the step."""
    accepts_below: bool = False
    """True if values up to the threshold are accepted, as for an entropy; False: values from the threshold on."""

    def __post_init__(self) -> None:
        _check_word("kind of a decision", self.kind)

    @classmethod
    def at_least(cls, kind: str, value: float, threshold: float) -> Decision:
        """Return a decision that accepts values at or above the threshold. Raises ValueError for an invalid kind."""
        return cls(kind, value, threshold, value >= threshold)

    @classmethod
    def at_most(cls, kind: str, value: float, threshold: float) -> Decision:
        """Return a decision that accepts values at or below the threshold. Raises ValueError for an invalid kind."""
        return cls(kind, value, threshold, value <= threshold, accepts_below=True)


@dataclass(slots=True)
class Step:
    """One accepted piece of the chain of thought."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    author: Role
    role: StepRole
    text: str
    num_tokens: int
    """Tokens generated by the author, including the end-of-sequence token."""
    token_ids: tuple[int, ...]
    """Ids of the step in the author's context, including text added by the harness; needed to resume."""
    finish: Finish
    candidates: list[Candidate] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    """In the order of the requests; the last one was decisive."""
    elapsed_seconds: float = 0.0
    """Active time of the sample until this step was accepted, including earlier attempts."""
    decision: Decision | None = None
    """None if the last verdict is the decision or nothing was decided; omitted from files if None."""

    def __post_init__(self) -> None:
        _check_word("role of a step", self.role)

    @property
    def verdict(self) -> Verdict | None:
        """The decisive verdict, if any."""
        return self.verdicts[-1] if self.verdicts else None


@dataclass(slots=True)
class Trace:
    """All steps and calls of one sample."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    sample_id: str
    """Hash of problem, method with parameters, models, sampling and seed: the unit of resumption."""
    problem_id: str
    sample_index: int
    seed: int
    started_at: float = 0.0
    """Start of the first attempt: UTC, seconds since the epoch."""
    draft_prompt: str = ""
    """The draft model's prompt before any step."""
    target_prompt: str = ""
    steps: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    stop_reason: StopReason | None = None
    """None while the sample is unfinished."""
    error: str | None = None
    """Class and message (limited length) of the error, for stop reason `error`."""
    latency_seconds: float = 0.0
    """Wall time during which the sample was running, over all attempts."""
    num_attempts: int = 1
    """Number of worker attempts; above 1 the latency is not comparable."""

    @property
    def output_text(self) -> str:
        """The emitted chain, including the answer."""
        return "".join(step.text for step in self.steps)

    @property
    def emitted_tokens(self) -> int:
        """Tokens of the accepted chain."""
        return sum(step.num_tokens for step in self.steps)

    def spent_tokens(self, model: Role | None = None) -> int:
        """Return the output tokens of all calls of a model (None: any), including rejected candidates and verdicts."""
        return sum(c.output_tokens for c in self.calls if model in (None, c.model))

    @property
    def critical_path_tokens(self) -> int:
        """Output tokens that a user waits for: of parallel candidates, only the longest counts.

        The calls of one sample are sequential, except for a lookahead, which the sample does not wait for.
        """
        return sum(c.longest_output_tokens for c in self.calls if c.purpose != "lookahead")
