"""The record of one sample: every step, candidate, verdict and call. Facts only; everything derived is a property.

The recorder (recording.py) writes calls, the method (through chain/) writes steps; totals follow from both, so no
method can forget to count a rejected draft. Field names are the column names of the trace files and of the warehouse.
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
closing: `</think>` that the method set, which nobody generated. answer: the final answer.
Any other word is a method's own, for a step that is neither a draft nor in place of one, such as thought."""
Purpose = Literal["guidance", "draft", "verdict", "fallback", "rethink", "chain", "answer", "lookahead", "probe"] | str
"""The role of the step that a call worked for, or its verdict. probe: what the chain does not keep. lookahead: a draft
that was started early (`--lookahead`) and discarded; one that was used has the purpose draft."""
VerdictKind = Literal["choice", "score", "reward"]
"""choice: one of several options, the last of which may reject all. score: a digit from 0 to 9. reward: a reward
model's probability, from 0 to 1, that a step is good."""
DECIDING_KINDS: frozenset[VerdictKind] = frozenset(("choice", "score"))
"""Kinds that need no `Decision` beside them: the verdict says itself what was compared with what."""
StopReason = Literal["answered", "budget", "repeated", "context", "error"]
"""answered: the model ended its answer. budget: the token budget was spent. repeated: a step had the same text as
the one before. context: the model's context window was full. error: an exception, kept in `error`."""

LogProbability = Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]
"""In nats; JSON has no infinity, so a journal holds null for the log-probability of an impossible token."""


def _check_word(what: str, word: str) -> None:
    if not re.fullmatch("[a-z][a-z0-9_ ]{0,39}", word):
        raise ValueError(f"{what}: {word!r} is not 1 to 40 of a-z, 0-9, space and _, a letter first")


@dataclass(slots=True)
class Call:
    """One request to one engine."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    purpose: Purpose
    model: Role
    step: int
    """Index of the step that this call worked for."""
    n: int
    """Number of completions requested in parallel; 1 for a verdict."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that were read from the prefix cache."""
    output_tokens: int
    """Generated tokens of all n completions together."""
    longest_output_tokens: int
    """Tokens of the longest completion: what a user waits for."""
    submitted_at: float
    """UTC, seconds since the epoch."""
    queued_seconds: float
    first_token_seconds: float
    end_seconds: float
    in_flight: int
    """Requests of this engine that were running or queued at submission, this one included."""
    proposed_tokens: int | None = None
    """Tokens proposed by token-level speculation, of all n completions; None without it, or where it is not counted."""
    confirmed_tokens: int | None = None
    """Proposed tokens that the model confirmed."""
    overlapped_seconds: float = 0.0
    """The part of `end_seconds` during which the sample did not wait for this call: above 0 for a draft that was
    started early, all of `end_seconds` for a lookahead."""

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
    """Index of the verdict's option for this text; equal texts share an option. None: not offered."""
    accepted: bool = False
    verdict_score: float | None = None
    """Score of the candidate's own verdict, 0 to 9 (SpecCoT, `--verdict separate`); None after a joint verdict."""


@dataclass(slots=True)
class Verdict:
    """A model's judgment in one forward pass, with the full probability vector."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: VerdictKind
    question: str
    """The question after the chain, exactly as sent, candidates included."""
    options: tuple[str, ...]
    """The option labels, e.g. ("1", "2", "3") or ("0", …, "9")."""
    logprobs: tuple[LogProbability, ...]
    """Log-probability of each option before any mask (nats)."""
    decision: int
    """Index of the decided option: the chosen candidate or the rejection; else the most probable one."""
    score: float | None
    """The score or reward that was compared with a threshold; None for a choice."""
    accepted: bool
    """True where a candidate was accepted."""
    model: Role = "target"
    """Whose judgment it is."""

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each option, normalized over the options."""
        return normalized(self.logprobs)


@dataclass(slots=True)
class Decision:
    """How a step came to be taken, or its candidates to be refused: by what, at which number, against which threshold.

    A choice or a score says so itself. A method that decides by other means (the draft's own confidence, agreement of
    several drafts, a reward model) records a decision with every step that it decided about; rates, positions,
    calibration and replay count it under its kind like a verdict.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: str
    """What decided, one word or a few: `confidence`, `agreement`, `reward`. `choice` and `score` are verdicts'."""
    value: float | None
    """The number that was decided by; None where there is none."""
    threshold: float | None
    """What it was compared with; None where it was not compared."""
    accepted: bool
    """True where the draft's proposal became the step."""
    accepts_below: bool = False
    """True where values up to the threshold are accepted, as of an entropy; False: values from the threshold on."""

    def __post_init__(self) -> None:
        _check_word("kind of a decision", self.kind)

    @classmethod
    def at_least(cls, kind: str, value: float, threshold: float) -> Decision:
        """Return the decision that accepts a value from the threshold on. Raises ValueError for an invalid kind."""
        return cls(kind, value, threshold, value >= threshold)

    @classmethod
    def at_most(cls, kind: str, value: float, threshold: float) -> Decision:
        """Return the decision that accepts a value up to the threshold. Raises ValueError for an invalid kind."""
        return cls(kind, value, threshold, value <= threshold, accepts_below=True)


@dataclass(slots=True)
class Step:
    """One accepted piece of the chain of thought."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    author: Role
    role: StepRole
    text: str
    num_tokens: int
    """Tokens that the author generated for it (end-of-sequence token included)."""
    token_ids: tuple[int, ...]
    """The ids that entered the author's own context, text forced by the harness included; used to resume."""
    finish: Finish
    candidates: list[Candidate] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    """In the order in which they were asked for; the last one decided."""
    elapsed_seconds: float = 0.0
    """Active time of the sample until this step was accepted, earlier attempts included."""
    decision: Decision | None = None
    """How it was decided about, where the last verdict does not say it; files leave the field out where it is None."""

    def __post_init__(self) -> None:
        _check_word("role of a step", self.role)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that decided; None where no model was asked."""
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
    """UTC, seconds since the epoch, of the first attempt."""
    draft_prompt: str = ""
    """The draft model's prompt before any step."""
    target_prompt: str = ""
    steps: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    stop_reason: StopReason | None = None
    """None while the sample is unfinished."""
    error: str | None = None
    """Class and message (bounded) of what ended the sample, for stop reason `error`."""
    latency_seconds: float = 0.0
    """Wall time during which the sample was running, all attempts together."""
    num_attempts: int = 1
    """Number of worker attempts that took part; above 1 the latency is not comparable."""

    @property
    def output_text(self) -> str:
        """The emitted chain with its answer."""
        return "".join(step.text for step in self.steps)

    @property
    def emitted_tokens(self) -> int:
        """Tokens of the accepted chain."""
        return sum(step.num_tokens for step in self.steps)

    def spent_tokens(self, model: Role | None = None) -> int:
        """Return the output tokens of every call of a model (None: both), rejected candidates and verdicts included."""
        return sum(c.output_tokens for c in self.calls if model in (None, c.model))

    @property
    def critical_path_tokens(self) -> int:
        """Output tokens that a user waits for: of parallel candidates the longest.

        The calls of one sample run one after the other, except for a lookahead, which the sample does not wait for.
        """
        return sum(c.longest_output_tokens for c in self.calls if c.purpose != "lookahead")
