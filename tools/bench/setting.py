"""The inputs of every section: engines, problems and sizes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.chain import Limits
from harness.methods import METHODS, Method, build, defaults
from harness.problems.problem import Problem
from tools.bench.drive import Engines, Run

MEASURED = tuple(name for name in METHODS if "reward" not in build(name, {}).roles)
"""Methods that can be measured: the built-in methods that use a draft and a target."""


@dataclass
class Bench:
    """One session over one pair of engines."""

    engines: Engines
    problems: Sequence[Problem]
    tokens: int
    """Token budget per sample in sections that run one batch of problems or a single sample."""
    pairs: int
    """Number of repetitions, each with a run through the harness and one on the bare engine."""
    methods: Sequence[str]
    in_flight: Sequence[int]
    flight_tokens: int
    """Token budget per sample in sections that run many samples concurrently."""
    step_tokens: int
    drafts: int
    latency_problems: int
    block_tokens: int
    """Block size of the prefix cache, in tokens."""
    deadline: float = float("inf")
    """`time.monotonic()` after which no further part is started."""
    runs: dict[str, list[Run]] = field(default_factory=lambda: {"latency": [], "throughput": []})
    """Runs through the harness by regime, for the section on the prefix cache."""
    left_out: list[str] = field(default_factory=list)

    def method(self, name: str) -> Method:
        """Build a method with this session's sizes."""
        sizes = {"step_tokens": self.step_tokens, "drafts": self.drafts, "draft_tokens": self.tokens}
        sizes["guidance_tokens"] = self.step_tokens
        return build(name, {key: value for key, value in sizes.items() if key in defaults(name)})

    def limits(self, tokens: int) -> Limits:
        """Return limits with the papers' sampling parameters, to include the cost of sampling."""
        return Limits(temperature=0.6, top_p=0.95, token_budget=tokens)

    def wave(self, size: int) -> list[Problem]:
        """Return `size` problems, repeating the session's problems in order."""
        return [self.problems[i % len(self.problems)] for i in range(size)]

    def late(self, part: str) -> bool:
        """Return True if no time is left for a part; the part is then listed as omitted."""
        if time.monotonic() < self.deadline:
            return False
        self.left_out.append(part)
        say(f"{part}: left out because the time is up")
        return True


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
