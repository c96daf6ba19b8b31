"""Run one sample: the only place that catches its errors, classifies them and measures its latency.

A failed sample is data, returned as a finished trace with stop reason `error`. A dead engine or a bug in the code is
not data: the exception reaches the caller, whose process crashes; the run can then be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import cast

from harness.chain import Chain, Limits, Stop
from harness.engine import Engine, EngineError, RequestRefused, Role
from harness.methods import Method
from harness.methods.plugins import failure_in
from harness.problems.problem import Problem
from harness.prompts import BUILT_IN, Prompts
from harness.recording import Model, recording_models
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
    wording: Prompts = BUILT_IN,
) -> Trace:
    """Fill `trace` until the sample ends, resuming after the last step already in it.

    `on_start` is called once the trace has its prompts, before the first call. `on_step` is called after each accepted
    step, before the next one starts. Raises EngineDied, VerdictUnavailable, and MethodFailed for an error of a custom
    method.
    """
    trace.started_at = trace.started_at or time.time()
    async with recording_models(engines, method.roles, trace) as models:
        chain = Chain(
            *(problem, list(models.values()), trace, limits, on_step),
            rubric=method.rubric,
            ends_at_box=method.ends_at_box,
            wording=wording,
        )
        on_start()
        try:
            chain.check()
            draft, target = (cast(Model, models.get(role)) for role in ("draft", "target"))  # None if unused
            await method(chain, draft, target)
            trace.stop_reason = "answered"
        except Stop as stop:
            trace.stop_reason = stop.reason
        except RequestRefused as refusal:
            trace.stop_reason = "error"
            trace.error = f"{type(refusal).__name__}: {refusal}"[:_ERROR_CHARS]
        except (EngineError, OSError):  # a failure of the machine, not of the sample
            raise
        except Exception as error:
            if (failure := failure_in(method, error)) is not None:
                raise failure from error
            raise
        trace.latency_seconds = chain.elapsed_seconds  # without discarded drafts that are still running
    return trace
