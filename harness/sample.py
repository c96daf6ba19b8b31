"""Run one sample: the one place that catches, classifies and times.

A sample that fails is data and comes back as a finished trace with stop reason `error`; an engine that dies, or a
mistake in the code, is machinery and goes through to the caller, who crashes and can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from harness.chain import Chain, Limits, Stop
from harness.engine import Engine, RequestRefused, Role
from harness.methods import Method
from harness.problem import Problem
from harness.recording import recorded
from harness.trace import Step, Trace

_ERROR_CHARS = 500


async def run_sample(
    problem: Problem,
    method: Method,
    engines: Mapping[Role, Engine],
    trace: Trace,
    limits: Limits,
    on_step: Callable[[Step], None] = lambda step: None,
    on_start: Callable[[], None] = lambda: None,
) -> Trace:
    """Fill `trace` until its sample ends, going on behind the steps it already holds.

    `on_start` is called once the trace holds its prompts and before the first call, `on_step` is called after each
    accepted step, before the next begins. Raises EngineDied and VerdictUnavailable.
    """
    trace.started_at = trace.started_at or time.time()
    async with recorded(engines, method.roles, trace) as models:
        chain = Chain(problem, list(models.values()), trace, limits, on_step, rubric=method.rubric)
        on_start()
        try:
            chain.check()
            await method(chain, models.get("draft"), models.get("target"))
            trace.stop_reason = "answered"
        except Stop as stop:
            trace.stop_reason = stop.reason
        except RequestRefused as refused:
            trace.stop_reason = "error"
            trace.error = f"{type(refused).__name__}: {refused}"[:_ERROR_CHARS]
        trace.latency_seconds = chain.elapsed_seconds  # nobody waits for a discarded draft that still goes on
    return trace
