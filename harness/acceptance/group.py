"""`python -m harness.acceptance.group CHECK…`: make checks of one group, for the process that `harness.acceptance` is.

A process of its own, so that a check that hangs can be ended with everything below it. The plan is the first line of
stdin, whose end ends this process. Events are JSON lines on stdout; whatever else would be printed there goes to
stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from harness.acceptance.outcome import CheckFailed, Measurement, NotApplicable, Outcome, judged
from harness.acceptance.plan import Plan
from harness.acceptance.session import Session

MakeCheck = Callable[[Session], Awaitable[list[Measurement]]]
_OURS = ("harness", "jobs", "grading", "warehouse")


def functions() -> Mapping[str, MakeCheck]:
    """Return how each check is made, by its name in the catalog."""
    from harness.acceptance import calls, rates, speculation, starting

    return {
        "environment": starting.check_environment,
        "start": starting.check_start,
        "purposes": calls.check_purposes,
        "verdicts": calls.check_verdicts,
        "prefix-cache": rates.check_prefix_cache,
        "mixed-load": calls.check_mixed_load,
        "warm-start": starting.check_warm_start,
        "real-sizes": starting.check_real_sizes,
        "verdicts-float32": calls.check_float32_verdicts,
        "lossless-ngram": partial(speculation.check_lossless, proposer="ngram"),
        "lossless-draft": partial(speculation.check_lossless, proposer="draft"),
        "unbiased-draft": speculation.check_unbiased,
        **{name: partial(_check_run, name=name) for name in ("worker-killed", "engine-killed", "preempted")},
    }


async def _check_run(session: Session, name: str) -> list[Measurement]:
    from jobs import acceptance

    if "runs" not in session.found:
        session.found["runs"] = acceptance.Runs(session.plan)
    session.announce_start()  # in the worker
    return await asyncio.to_thread(acceptance.CHECKS[name], session.found["runs"])


async def make_checks(
    names: Sequence[str], plan: Plan, tell: Callable[[dict[str, Any]], None], by_name: Mapping[str, MakeCheck]
) -> None:
    """Make these checks one after the other, and tell when each begins and what came out."""
    session = Session(plan, lambda: tell({"event": "starting"}), lambda text: tell({"event": "say", "text": text}))
    try:
        for name in names:
            tell({"event": "begin", "check": name})
            tell({"event": "end", "outcome": (await outcome(name, by_name[name], session)).data()})
    finally:
        await session.close()
        if runs := session.found.get("runs"):
            runs.close()


async def outcome(name: str, make: MakeCheck, session: Session) -> Outcome:
    """Make one check and return its outcome, whatever it raises."""
    begun = time.monotonic()

    def seconds() -> float:
        return time.monotonic() - begun

    try:
        return judged(name, await make(session), seconds())
    except NotApplicable as reason:
        return Outcome(name, "SKIPPED", str(reason), seconds=seconds())
    except CheckFailed as reason:
        return Outcome(name, "FAIL", str(reason), seconds=seconds())
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package in _OURS:
            raise
        return Outcome(name, "SKIPPED", f"the package {package} is not installed", seconds=seconds())
    except Exception as error:  # noqa: BLE001 one check's trouble must not hide the others' results
        text = " ".join(str(error).split())
        return Outcome(name, "FAIL", f"{type(error).__name__}: {text}"[:500], seconds=seconds())


def _end_with_parent(stdin: TextIO) -> None:
    def wait() -> None:
        while stdin.readline():
            pass
        os._exit(1)  # the engines' processes end with this one

    threading.Thread(target=wait, name="acceptance-parent-watch", daemon=True).start()


def main(names: list[str]) -> None:
    """Read the plan and make the checks."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    plan = Plan.from_json(sys.stdin.readline())
    _end_with_parent(sys.stdin)

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    asyncio.run(make_checks(names, plan, tell, functions()))


if __name__ == "__main__":
    main(sys.argv[1:])
