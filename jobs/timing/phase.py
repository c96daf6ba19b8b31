"""The timing of a run: the samples that are drawn run again, one at a time, over engines that do nothing else.

The worker that finishes the last sample of a run times them, over the engines that it has. Every shard has ended by
then: lengths are known for the strata of the whole run, whatever the shards are, no other worker of the run disturbs a
measurement, and all of them come from one machine. A repeat that is killed is repeated from its beginning, because the
time of a resumed one means nothing, and so is one under which an engine was started again; one that has ended is kept.
They are taken in random order, so that a machine that slows down does not slow down a stratum. The engines have
forgotten the prompts of the full batches: they are leased again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from harness.chain import Limits
from harness.engine import Engine, EngineDied, Role
from harness.methods import Method
from harness.problems.problem import Problem
from harness.sample import run_sample
from harness.trace import Trace
from jobs.run import endings
from jobs.run.endings import by_shard, read_endings, wait_for_endings
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import RunSpec, Unit
from jobs.run.trace_files import FAILED, StepRow, counting_records
from jobs.timing import folder
from jobs.timing.draw import Drawn, Ended, draw
from jobs.timing.folder import timing_id
from jobs.work.shard_run import TimeLeft, num_restarts, seed_of

_MOST_REPEATS = 3
"""Repeats of one sample whose engine is started again, or is sent a request again, under each of them."""
_LENGTH, _CALLS = "steps.list.element.num_tokens", "calls.list.element.n"


def is_due(run: RunFolder) -> bool:
    """Return whether all samples of a run have ended, and some are still to be timed."""
    if not folder.progress(run).left:
        return False
    ended = by_shard(run, read_endings(run, whole=False))
    if ended.num_unfinished and not run.are_held(ended.shards_with_samples):
        wait_for_endings(run)  # the others may have ended a moment ago, on other machines
        ended = by_shard(run, read_endings(run, whole=False))
    return not ended.num_unfinished


def samples_left(run: RunFolder, problems: Mapping[str, Problem], seed: int) -> list[Unit]:
    """Return the samples that are still to be timed, in random order; draws them where that has not been done.

    The lock of the timing is held, and all samples of the run have ended.
    """
    drawn = folder.read_draw(run)
    if drawn is None:
        drawn = _draw(run, problems, seed)
    done = folder.finished(run)
    wanted = {one.sample_id for one in drawn if one.is_timed and timing_id(one.sample_id) not in done}
    units = [unit for shard in run.shards() for unit in shard if unit.sample_id in wanted]
    return sorted(units, key=lambda unit: timing_id(unit.sample_id))


def _draw(run: RunFolder, problems: Mapping[str, Problem], seed: int) -> list[Drawn]:
    endings.compact(run)  # what a worker that was killed has left in its journal
    ended = [
        Ended(row["sample_id"], problems[row["problem_id"]].level or "", _length(row["steps"]))
        for row in counting_records(run, ["problem_id", _LENGTH, _CALLS])
        if row["stop_reason"] != FAILED and row["calls"]  # without a request there is nothing to time
    ]
    drawn = draw(ended, folder.num_asked(run), f"{run.spec().run_id} {seed}")
    folder.write_draw(run, drawn)
    return drawn


def _length(steps: Sequence[StepRow] | None) -> int:
    return sum(step["num_tokens"] for step in steps or ())


class TimingRun:
    """Samples that run again, one at a time."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        problems: Mapping[str, Problem],
        engines: Mapping[Role, Engine],
        journal: JournalWriter,
        ends_at: float | None = None,
    ) -> None:
        """Prepare to time samples; `ends_at` is when this job will be ended, in seconds since the epoch."""
        self.spec, self.method, self.problems, self.engines, self.journal = spec, method, problems, engines, journal
        self.limits = Limits(spec.temperature, spec.top_p, spec.token_budget, spec.sampling)
        self.num_timed = 0
        self._time_left = TimeLeft(ends_at)

    async def run_all(self, units: Sequence[Unit]) -> bool:
        """Time samples one after the other; False where the time became too short."""
        for unit in units:
            if not self._time_left.is_enough:
                return False
            await self._time(unit)
        return True

    async def _time(self, unit: Unit) -> None:
        for _ in range(_MOST_REPEATS):
            started_at, restarts = time.monotonic(), num_restarts(self.engines)
            trace = await self._repeat(unit)
            if num_restarts(self.engines) == restarts:
                break
            for engine in self.engines.values():
                await engine.reset_prefix_cache()  # it holds what this repeat has written
        else:
            raise EngineDied(f"an engine failed in each of {_MOST_REPEATS} repeats of a sample, so it has no latency")
        self.journal.end(trace)
        self._time_left.durations.append(time.monotonic() - started_at)
        self.num_timed += 1

    async def _repeat(self, unit: Unit) -> Trace:
        problem = self.problems[unit.problem_id]
        seed = seed_of(self.spec, unit, problem, timing_id)
        trace = Trace(timing_id(unit.sample_id), unit.problem_id, unit.sample_index, seed=seed)
        return await run_sample(
            problem,
            self.method,
            self.engines,
            trace,
            self.limits,
            on_step=lambda step: self.journal.step(trace, step),
            on_start=lambda: self.journal.start(trace),
            wording=self.spec.wording,
        )
