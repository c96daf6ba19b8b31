"""A worker's sample loop: runs concurrent samples on the run's engines, admitting new ones while memory and time allow.

Timing samples are a later round of the same loop: randomly drawn samples are rerun one at a time. The worker that
finishes the last sample of a run reruns them with its engines. By then all shards have ended, so all chain lengths are
known for stratification, no other worker of the run disturbs the measurements, and all measurements come from one
machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, TypeAlias

from harness.chain import Limits
from harness.engine import Engine, EngineDied, Role
from harness.engines.admission import Admission, Admitted, Cache
from harness.methods import Method
from harness.problems.problem import Problem
from harness.prompts import opening
from harness.sample import run_sample
from harness.trace import Step, Trace
from jobs.run import timing as timings
from jobs.run.endings import RunState, by_shard, compact, read_endings, wait_for_endings
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import RunSpec, Unit
from jobs.run.timing import timing_id
from jobs.run.trace_files import FAILED, counting_records

_DURATIONS = 256
"""Number of recent samples used to estimate the duration of the next one."""
_MANY = 1 << 20
"""Placeholder for an unknown number of further samples."""
_MOST_REPEATS = 3
"""Maximum number of attempts to time a sample without an engine restart or repeated request."""
_LENGTH, _CALLS = "steps.list.element.num_tokens", "calls.list.element.n"


TakenShard: TypeAlias = tuple[int, list[Unit], RunState]
"""A shard locked by this worker: its number, its unfinished samples, and their progress."""


class ShardRun:
    """Concurrent samples of shards on one engine per role."""

    most_in_flight: ClassVar[int | None] = None
    """Maximum number of samples in flight; None: the concurrency of the run's specification."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        problems: Mapping[str, Problem],
        engines: Mapping[Role, Engine],
        journal: JournalWriter,
        state: RunState,
        ends_at: float | None = None,
    ) -> None:
        """Prepare to run samples; `ends_at`: time by which samples should have ended, in seconds since the epoch."""
        self.spec, self.method, self.problems = spec, method, problems
        self.engines, self.journal, self.state = engines, journal, state
        self.limits = Limits(spec.temperature, spec.top_p, spec.token_budget, spec.sampling)
        self.num_asked = self.num_ended = self.num_steps = 0
        self.ends_at = ends_at
        self._durations: deque[float] = deque(maxlen=_DURATIONS)
        self._prompts: dict[str, dict[str, int]] = {}
        self.admission = Admission(
            caches(method, engines, spec.token_budget), self.most_in_flight or spec.concurrency, spec.token_budget
        )

    async def run_all(self, units: list[Unit], further: Callable[[], TakenShard | None] | None = None) -> None:
        """Run samples as memory and time allow. The first infrastructure failure cancels all other samples.

        `further` is called for another shard whenever all samples have begun and there is room for one more.
        Returns once all samples have ended. If the remaining time becomes shorter than a sample's likely duration, no
        more samples are started, and it returns once the running ones have ended.
        """
        async with asyncio.TaskGroup() as group:
            has_time = await self._begin_all(units, group, are_last=further is None)
            while has_time and further is not None:
                await self.admission.wait_for_room()
                if (taken := further()) is None:
                    break
                _, todo, state = taken
                self.state.unfinished |= state.unfinished
                has_time = await self._begin_all(todo, group, are_last=False)

    async def _begin_all(self, units: list[Unit], group: asyncio.TaskGroup, *, are_last: bool) -> bool:
        """Begin samples as memory allows; return False if the remaining time is too short."""
        self.num_asked += len(units)
        for number, unit in enumerate(units, 1):
            begun = self.state.unfinished.get(unit.sample_id)
            admitted = await self.admission.admit(
                unit.problem_id,
                self._prompt_tokens(unit.problem_id),
                begun.emitted_tokens if begun else 0,
                num_later=len(units) - number if are_last else _MANY,
            )
            if not self._has_time_for_another():
                self.admission.release(admitted, None)
                return False
            group.create_task(self._run_sample(unit, admitted))
        return True

    def _prompt_tokens(self, problem_id: str) -> dict[str, int]:
        """Return the prompt lengths for a problem, by role."""
        if problem_id not in self._prompts:
            problem, lengths = self.problems[problem_id], dict[str, int]()
            for role, engine in self.engines.items():
                rubric = self.method.rubric and role == "target"
                lengths[role] = len(opening(engine.tokenizer, problem, self.spec.wording, rubric=rubric)[0])
            self._prompts[problem_id] = lengths
        return self._prompts[problem_id]

    async def _run_sample(self, unit: Unit, admitted: Admitted) -> None:
        emitted: int | None = None
        started_at = time.monotonic()
        try:
            trace = await self._ended(unit, admitted)
            self.journal.end(trace)
            self.num_ended += 1
            self._durations.append(time.monotonic() - started_at)
            emitted = trace.emitted_tokens
        finally:
            self.admission.release(admitted, emitted)

    async def _ended(self, unit: Unit, admitted: Admitted) -> Trace:
        """Run a sample from its last accepted step to its end and return its trace."""
        trace = self.state.unfinished.get(unit.sample_id) or self._begun(unit, str)
        trace.num_attempts += bool(trace.steps)
        trace.num_attempts += await self._run_to_its_end(trace, admitted)  # the latency includes an engine start
        return trace

    def _begun(self, unit: Unit, renamed: Callable[[str], str]) -> Trace:
        seed = seed_of(self.spec, unit, self.problems[unit.problem_id], renamed)
        return Trace(renamed(unit.sample_id), unit.problem_id, unit.sample_index, seed=seed)

    async def _run_to_its_end(self, trace: Trace, admitted: Admitted) -> bool:
        """Run a sample; return whether an engine was restarted meanwhile."""
        restarts = sum(engine.restarts for engine in self.engines.values())

        def record(step: Step) -> None:
            self.journal.step(trace, step)
            held = step_tokens(self.method, trace, admitted.prompt_tokens)
            self.admission.grew(admitted, trace.emitted_tokens, held)
            self.num_steps += 1

        problem, starts = self.problems[trace.problem_id], partial(self.journal.start, trace)
        wording = self.spec.wording
        await run_sample(problem, self.method, self.engines, trace, self.limits, record, starts, wording)
        return sum(engine.restarts for engine in self.engines.values()) > restarts

    def _has_time_for_another(self) -> bool:
        """Return whether the remaining time exceeds the 90th percentile of recent sample durations."""
        if self.ends_at is None or not self._durations:
            return True
        likely = sorted(self._durations)[int(0.9 * (len(self._durations) - 1))]
        return time.time() + likely < self.ends_at


class TimingRun(ShardRun):
    """Reruns samples one at a time, with new random numbers.

    A repeat that was interrupted, or during which an engine was restarted, starts again from its beginning, because
    resumed times are meaningless.
    """

    most_in_flight = 1

    async def _ended(self, unit: Unit, admitted: Admitted) -> Trace:
        for _ in range(_MOST_REPEATS):
            trace = self._begun(unit, timing_id)
            if not await self._run_to_its_end(trace, admitted):
                return trace
            for engine in self.engines.values():
                await engine.reset_prefix_cache()  # it contains this repeat's text
        raise EngineDied(f"an engine failed in each of {_MOST_REPEATS} repeats of a timing sample")


def units_to_time(run: RunFolder, problems: Mapping[str, Problem], seed: int) -> list[Unit]:
    """Return the timing samples left, in random order; draws them first if needed.

    Empty until all samples of the run have ended. The caller holds the timing lock. The order is random so that a
    machine that slows down does not affect a single stratum.
    """
    if not timings.progress(run).left:
        return []
    ended = by_shard(run, read_endings(run))
    if ended.num_unfinished and not run.are_held(ended.unfinished_shards):
        wait_for_endings(run)  # other machines may have just finished their samples
        ended = by_shard(run, read_endings(run))
    if ended.num_unfinished:
        return []
    if (drawn := timings.read_draw(run)) is None:
        drawn = _draw(run, problems, seed)
    done = timings.finished(run)
    wanted = {one.sample_id for one in drawn if one.is_timed and timing_id(one.sample_id) not in done}
    units = [unit for shard in run.shards() for unit in shard if unit.sample_id in wanted]
    return sorted(units, key=lambda unit: timing_id(unit.sample_id))


def _draw(run: RunFolder, problems: Mapping[str, Problem], seed: int) -> list[timings.Drawn]:
    compact(run)  # journals of killed workers
    ended = [
        timings.Ended(
            row["sample_id"],
            problems[row["problem_id"]].level or "",
            sum(step["num_tokens"] for step in row["steps"] or ()),
        )
        for row in counting_records(run, ["problem_id", _LENGTH, _CALLS])
        if row["stop_reason"] != FAILED and row["calls"]  # without a request there is nothing to time
    ]
    drawn = timings.draw(ended, timings.num_asked(run), f"{run.spec().run_id} {seed}")
    timings.write_draw(run, drawn)
    return drawn


def seed_of(spec: RunSpec, unit: Unit, problem: Problem, renamed: Callable[[str], str]) -> int:
    """Return a sample's seed, derived from its id, which includes the run's seed and the sample index.

    `renamed`: applied to the id before hashing; a different id gives other random numbers.
    """
    sample_id = unit.sample_id
    if spec.selection is not None or spec.reward is not None:
        sample_id = spec.drawn_alike().sample_ids(problem)[unit.sample_index]
    return int(hashlib.sha256(renamed(sample_id).encode()).hexdigest()[:8], 16) >> 1


_STEP_TOKENS = 128
"""Assumed step length before any steps are observed; usually an overestimate."""
_SELECTION_SHARE = 0.1
"""Upper bound for the share of a sample's time spent on selecting among whole chains. The selection prompt is not
reused, so only this share of its tokens counts."""


def caches(method: Method, engines: Mapping[Role, Engine], token_budget: int) -> dict[str, Cache]:
    """Return each engine's KV cache with its estimated use before any step is observed."""
    used: dict[str, Cache] = {}
    for role, engine in engines.items():
        if not method.drafts_whole_chains:
            at_once = method.parallel if role == "draft" else max(method.parallel, method.target_parallel)
            used[role] = Cache(
                engine.kv_tokens, step_tokens=float(at_once * _STEP_TOKENS) if len(method.roles) > 1 else 0.0
            )
        elif role == "draft":
            used[role] = Cache(engine.kv_tokens, width=method.parallel)
        else:
            used[role] = Cache(engine.kv_tokens, step_tokens=_SELECTION_SHARE * method.verdict_tokens(token_budget) / 2)
    return used


def step_tokens(method: Method, trace: Trace, prompt_tokens: Mapping[str, int]) -> dict[str, int]:
    """Return, by role, how many tokens the last step of a trace uses in addition to prompt and previous chain.

    These are the tokens written for the step (the accepted candidate belongs to the chain only from the next step on)
    and, for a judging model, the verdict's question.
    """
    number, step = len(trace.steps) - 1, trace.steps[-1]
    chain_tokens = trace.emitted_tokens - step.num_tokens
    written: dict[Role, int] = {"draft": 0, "target": 0}
    asked: dict[Role, int] = dict.fromkeys(method.roles, 0)
    for call in reversed(trace.calls):
        if call.step < number:
            break
        if call.purpose == "verdict":
            # Parallel verdict requests share the chain, which the prefix cache stores once.
            context_tokens = prompt_tokens.get(call.model, 0) + chain_tokens
            asked[call.model] = max(asked.get(call.model, 0), call.prompt_tokens - call.n * context_tokens)
        else:
            written[call.model] += call.output_tokens
    if method.drafts_whole_chains:
        choice = asked.get("target", 0)
        return {"target": int(_SELECTION_SHARE * choice)} if choice else {}
    return {role: written.get(role, 0) + asked.get(role, 0) for role in dict.fromkeys([*written, *asked])}
