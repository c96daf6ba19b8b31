"""The job on Slurm that looks at a comparison after a wave, and submits the next one with itself behind it.

    <output>/waves/<suite>.jsonl    what happened: launches, looks, what was submitted again

What died is submitted again as in a night (jobs.nights.recovery), and a job that is killed has a successor that looks
in its place (jobs.nights.verdict_job).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import Any

from rich.console import Console

from jobs.after import warehouse
from jobs.after.conclude import report
from jobs.launching import LaunchFailed
from jobs.nights import awaited, completing, recovery
from jobs.nights.record import NightRecord
from jobs.nights.verdict_job import VerdictJobs
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.submission import snapshot
from jobs.submission.together import dispatch_together
from jobs.waves import looking, turns

FOLDER = "waves"
"""Below the output of a suite: the records of its looks, and the logs of their jobs."""
_RECOVERIES = 5
"""How often the jobs of a run that died are submitted again between a launch and its end."""
_WAIT_SECONDS = 600.0
"""How long a look waits for a launch that is just submitting the same runs."""
_MOST_FAILURES = 3
"""Looks that end in an error before the comparison is given up."""


def record_of(folder: Path, name: str) -> NightRecord:
    """Return the record of a comparison."""
    return NightRecord(folder / f"{name}.jsonl")


def jobs_of(folder: Path, name: str) -> VerdictJobs:
    """Return the jobs that look at a comparison."""
    record = record_of(folder, name)
    options: Mapping[str, Any] = next((request["options"] for request in reversed(record.requests.values())), {})
    return VerdictJobs(folder, f"{name}.look", record, options, look, (str(folder), name))


def wait(path: Path) -> str:
    """Wait until the comparison with this record has its result; returns in words what became of it.

    Interrupted, the jobs go on. Raises LaunchFailed where they ended without one.
    """
    record, name, idle_looks = NightRecord(path), path.stem, 0
    while (concluded := record.last("concluded")) is None:
        idle_looks = idle_looks + 1 if awaited.has_no_job([f"{name}.look"], record) else 0
        if idle_looks >= awaited.LOOKS_WITHOUT_JOB:
            raise LaunchFailed(
                f"{name}: its jobs ended before the comparison was decided; logs: {path.parent}/logs. "
                "Nothing finished is lost: run the same command again to resume"
            )
        sleep(awaited.LOOK_SECONDS)
    return str(concluded["verdict"])


def look(folder: str, name: str) -> None:
    """Look at a comparison in a job of its own; a look that fails is made again by the job's successor."""
    record = record_of(Path(folder), name)
    try:
        _look(Path(folder), name)
    except Exception as error:  # noqa: BLE001 whatever it is, a successor tries again, a bounded number of times
        traceback.print_exc()
        record.append("failed", error=f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
        if len(record.events("failed")) >= _MOST_FAILURES:
            record.append("concluded", verdict="given up")
            jobs_of(Path(folder), name).dismiss_successors()
        sys.exit(1)


def _look(folder: Path, name: str) -> None:
    snapshot.require()
    record, jobs = record_of(folder, name), jobs_of(folder, name)
    if record.is_concluded:
        print("the comparison has its result already")
        return None
    launched = record.last("launched")
    assert launched is not None, "a job that looks is submitted after a launch"
    runs = [RunFolder(folder.parent / run) for run in record.names.values()]
    named = launched.get("baseline")
    baseline = None if named is None else RunFolder(folder.parent / named)
    record.append("started", job=client.this_job())
    jobs.ensure_successor()
    found = recovery.recover(runs, record, _RECOVERIES)
    if found.waiting_for:
        return _hand_on(record, jobs, found.waiting_for)
    database = warehouse.database_of(runs[0])
    gaps = [*found.gaps, *completing.complete(runs, database, record)]
    if gaps:
        print(f"not decided: {'; '.join(map(str, gaps))}", flush=True)
        stop = looking.stopped_within_a_wave(runs)
        if stop is None:
            return _conclude(record, jobs, "not finished")
        try:  # what is finished has its report, although runs without a finished sample cannot be compared
            warehouse.compare_and_report(runs, Path(launched["page"]), launched["margin"], baseline)
        except warehouse.WarehouseFailed as error:
            print(error, flush=True)
        return _conclude(record, jobs, looking.undecided_because(stop))
    verdict = "decided"
    with turns.alone(runs, _WAIT_SECONDS):
        looked = looking.look(runs, database, launched["margin"], baseline)
    if looked:
        record.append("looked", wave=looked.wave, decided=dict(looked.decided))
        print("\n".join(looking.lines(looked)), flush=True)
        if looked.further:
            dispatch_together([recovery.request_of(run, record) for run in looked.further])
            active = recovery.active_jobs(runs)
            return _hand_on(record, jobs, sorted({job for of_run in active.values() for job in of_run}))
        if looked.stop is not None:
            verdict = looking.undecided_because(looked.stop)
        elif looking.open_runs(runs):  # runs that a killed look has planned further than these
            return _hand_on(record, jobs, [])
    for run in runs:
        report(run, Console(highlight=False), database)
    print(looking.drawn(runs), flush=True)
    warehouse.compare_and_report(runs, Path(launched["page"]), launched["margin"], baseline)
    return _conclude(record, jobs, verdict)


def _hand_on(record: NightRecord, jobs: VerdictJobs, after: list[str]) -> None:
    job, notice = jobs.behind(after)
    record.append("handed on", job=job)
    print(f"the next look is job {job}{notice}", flush=True)


def _conclude(record: NightRecord, jobs: VerdictJobs, verdict: str) -> None:
    record.append("concluded", verdict=verdict)
    if client.this_job() is not None:
        jobs.dismiss_successors()
