"""Simulation of samples in flight in one KV cache, with the current and the former admission rule of the harness.

    python -m tools.simulate.cache      prints the table in tools/simulate/README.md

Time is counted in tokens: all running samples grow by the same number of tokens per tick. If the cache is too small,
the youngest samples are preempted until there is room, as in vLLM, and are computed again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.engines.admission import Admission, Admitted, Cache

TICK_TOKENS = 64
TOKENS_PER_SECOND = 40.0
PROMPT_TOKENS = 250
BUDGET = 8192


@dataclass(frozen=True)
class Sample:
    """A sample to run: its final length, and its length at the start, which is above 0 if it is resumed."""

    final_tokens: int
    first_tokens: int = 0
    problem: str = ""


class Policy(Protocol):
    """Decides whether one more sample starts."""

    def start(self, sample: Sample, num_later: int, now: float) -> object | None: ...
    def grow(self, ticket: object, tokens: int) -> None: ...
    def end(self, ticket: object, tokens: int) -> None: ...


class Reserving:
    """The former policy: a sample reserves the 90th percentile of the finished samples' lengths, or a quarter of the
    budget if no sample has finished.
    """

    def __init__(self, capacity: int, concurrency: int) -> None:
        self.capacity, self.concurrency, self.held, self.running = capacity, concurrency, 0, 0
        self.lengths: deque[int] = deque(maxlen=256)

    def start(self, sample: Sample, num_later: int, now: float) -> object | None:
        ordered = sorted(self.lengths)
        expected = min(BUDGET, ordered[int(0.9 * (len(ordered) - 1))]) if ordered else BUDGET // 4
        tokens = PROMPT_TOKENS + expected
        if self.running and (self.running >= self.concurrency or self.held + tokens > self.capacity):
            return None
        self.running, self.held = self.running + 1, self.held + tokens
        return tokens

    def grow(self, ticket: object, tokens: int) -> None:
        pass

    def end(self, ticket: object, tokens: int) -> None:
        assert isinstance(ticket, int)
        self.running, self.held = self.running - 1, self.held - ticket
        self.lengths.append(tokens)


class Forecasting:
    """The harness's current policy. `reports`: whether samples report their growth, as they do after each step in a
    run.
    """

    def __init__(self, capacity: int, concurrency: int, *, reports: bool = True) -> None:
        self.now, self.reports = 0.0, reports
        self.admission = Admission({"target": Cache(capacity)}, concurrency, BUDGET, clock=lambda: self.now)

    def start(self, sample: Sample, num_later: int, now: float) -> object | None:
        self.now = now
        return self.admission.try_admit(sample.problem, {"target": PROMPT_TOKENS}, sample.first_tokens, num_later)

    def grow(self, ticket: object, tokens: int) -> None:
        assert isinstance(ticket, Admitted)
        if self.reports:
            self.admission.grew(ticket, tokens)

    def end(self, ticket: object, tokens: int) -> None:
        assert isinstance(ticket, Admitted)
        self.admission.release(ticket, tokens)


@dataclass
class _Running:
    ticket: object
    tokens: int
    sample: Sample
    preempted: bool = False


@dataclass
class Outcome:
    """Results of a simulation. `in_flight` and `held` cover only the ticks in which samples were waiting to start, or
    the first tick if there were none.
    """

    in_flight: list[int] = field(default_factory=list)
    """Number of running samples at each tick, without preempted ones."""
    held: list[float] = field(default_factory=list)
    capacity: int = 0
    recomputed_tokens: int = 0
    emitted_tokens: int = 0
    all_seconds: float = 0.0

    @property
    def mean_in_flight(self) -> float:
        return sum(self.in_flight) / len(self.in_flight)

    @property
    def utilization(self) -> float:
        """Mean share of the cache that is in use; an overflow counts as 1."""
        return sum(min(1.0, held / self.capacity) for held in self.held) / len(self.held)

    @property
    def overflow(self) -> float:
        """Share of the time in which the samples need more tokens than the cache has."""
        return sum(held > self.capacity for held in self.held) / len(self.held)

    @property
    def recomputed(self) -> float:
        """Recomputed tokens as a share of the emitted tokens."""
        return self.recomputed_tokens / self.emitted_tokens


def simulate(policy: Policy, samples: Sequence[Sample], capacity: int) -> Outcome:
    """Run samples in order. A preempted sample stops growing, and is recomputed once there is room."""
    waiting, running, outcome, now = deque(samples), list[_Running](), Outcome(capacity=capacity), 0.0
    while waiting or running:
        while waiting and (ticket := policy.start(waiting[0], len(waiting) - 1, now)) is not None:
            sample = waiting.popleft()
            running.append(_Running(ticket, sample.first_tokens, sample))
        wanted = float(sum(PROMPT_TOKENS + r.tokens for r in running))
        is_recorded, total = bool(waiting) or not outcome.held, 0
        for r in running:  # the oldest sample first
            total += PROMPT_TOKENS + r.tokens + TICK_TOKENS
            fits = total <= capacity or r is running[0]
            if r.preempted and fits:
                outcome.recomputed_tokens += PROMPT_TOKENS + r.tokens
            r.preempted = not fits
            if fits:
                r.tokens += TICK_TOKENS
                outcome.emitted_tokens += TICK_TOKENS
                policy.grow(r.ticket, r.tokens)
        if is_recorded:
            outcome.in_flight.append(sum(not r.preempted for r in running))
            outcome.held.append(wanted)
        for r in [r for r in running if r.tokens >= r.sample.final_tokens]:
            running.remove(r)
            policy.end(r.ticket, r.sample.final_tokens)
        now += TICK_TOKENS / TOKENS_PER_SECOND
    outcome.all_seconds = now
    return outcome


def long_tailed(draw: random.Random) -> Sample:
    """Draw a length as for a reasoning model on GSM8K or MATH-500: log-normal, median 2000, 6 % at the budget."""
    return Sample(min(BUDGET, int(draw.lognormvariate(7.6, 0.9))))


def mostly_at_budget(draw: random.Random) -> Sample:
    """Draw a length as for a reasoning model on AIME: 70 % at the budget."""
    return Sample(BUDGET if draw.random() < 0.7 else int(draw.uniform(2000, BUDGET)))


def at_budget(draw: random.Random) -> Sample:
    """Return a sample that is cut off at the budget."""
    return Sample(BUDGET)


def short(draw: random.Random) -> Sample:
    """Draw a length as for a model without reasoning: a few hundred tokens."""
    return Sample(int(draw.lognormvariate(5.7, 0.5)))


def resumed(draw: random.Random) -> Sample:
    """Draw a sample of a resumed run: a long-tailed length, of which a random part is already emitted."""
    final = long_tailed(draw).final_tokens
    return Sample(final, int(final * draw.random()))


def samples(kind: Callable[[random.Random], Sample], number: int, seed: int = 0) -> list[Sample]:
    """Draw samples, one per problem."""
    draw = random.Random(seed)
    drawn = [kind(draw) for _ in range(number)]
    return [Sample(s.final_tokens, s.first_tokens, f"problem {i}") for i, s in enumerate(drawn)]


KINDS = (long_tailed, mostly_at_budget, at_budget, short, resumed)


def main() -> None:
    """Print the table."""
    policies: dict[str, Callable[[int], Policy]] = {
        "before": lambda capacity: Reserving(capacity, 256),
        "now": lambda capacity: Forecasting(capacity, 256),
    }
    print("| cache | lengths | policy | in flight | cache held | overflow | recomputed | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for capacity in (165_000, 690_000):
        for kind in KINDS:
            for name, make in policies.items():
                out = simulate(make(capacity), samples(kind, 800), capacity)
                shares = f"{out.utilization:.0%} | {out.overflow:.0%} | {out.recomputed:.1%}"
                label = f"{capacity:,} | {kind.__name__.replace('_', ' ')} | {name}"
                print(f"| {label} | {out.mean_in_flight:.0f} | {shares} | {out.all_seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
