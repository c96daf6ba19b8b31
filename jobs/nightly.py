"""A night: a suite launched with the night's date as its tag, and one verdict on it once every run has ended.

Nothing polls: the verdict is a job that Slurm starts after the last jobs of the runs. What it finds unfinished, because
a worker died, it submits again with itself behind it (jobs.nights.recovery). If it finds something suspicious, it
launches those runs again with another tag, and a second verdict after them decides.

    <output>/nights/<date>.md       the verdict
    <output>/nights/<date>.json     which run folder each launch of the suite has
    <output>/nights/<date>.jsonl    what happened: launches, verdict jobs, what was submitted again
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli import exit_codes
from harness.plural import counted
from jobs import drive, suite
from jobs.after import warehouse
from jobs.drive import LaunchFailed
from jobs.nights import completing, page, recovery
from jobs.nights.record import NightRecord
from jobs.nights.recovery import Gap
from jobs.nights.verdict_job import VerdictJobs
from jobs.preparation import PreparedLaunch, check_engines
from jobs.run import submissions
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import snapshot
from jobs.suite import Suite

_CONFIRMING = ".confirm"
"""The suffix of the tag of runs that confirm a suspicion."""
NO_VERDICT = exit_codes.WRONG_INPUT
"""Exit code where no verdict was possible; those of verdicts are warehouse.nightly.judge.EXIT_CODES."""
_MOST_FAILURES = 3
"""Verdict jobs of one night that end in an error (they were not killed) before there is no verdict."""


class NightFailed(RuntimeError):
    """The verdict is FAIL; the message names its file."""


@dataclass(frozen=True)
class Night:
    """What was launched for a night."""

    runs: dict[int, RunFolder]
    """The run folders by number of the launch in the suite."""
    verdict_job: str | None
    """The Slurm job that will give the verdict; None if the runs ran on this machine."""
    notice: str = ""
    """What became of a verdict job that was there already, as the end of a sentence."""


def tonight() -> date:
    """Return the date of the night that begins now: today in UTC."""
    return datetime.now(UTC).date()


def preview(
    path: Path, night: date, overrides: Mapping[str, Any], *, accept_code_change: bool = False
) -> list[RunFolder]:
    """Print what the runs of a night would do and are likely to take, and return where they would be.

    Writes nothing. Raises what `launch` raises.
    """
    nightly_suite = suite.read(path, suite.NIGHTLY_OUTPUT, overrides)
    prepared = suite.prepare(nightly_suite, night.isoformat(), accept_code_change=accept_code_change)
    suite.preview(prepared, Console(highlight=False))
    return [launch.run for launch in prepared]


def launch(
    path: Path,
    night: date,
    only: Sequence[int] | None = None,
    *,
    accept_code_change: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Night:
    """Launch a suite for a night; launched again, it resumes. `only`: the launches to confirm, by number.

    `overrides`: the limit on GPU-hours and the file for the estimate; runs that confirm are not estimated again.

    `accept_code_change`: whether to go on with a night that other code began; another night always has runs of its own.
    Runs on this machine whose workers fail are started again, within the same bound as on Slurm, and what is then still
    missing is left to the verdict. Raises suite.BadSuite and what planning a launch and submitting it raise.
    """
    nightly_suite = suite.read(path, suite.NIGHTLY_OUTPUT, overrides)
    profiles.submitit_parameters(nightly_suite.nightly.slurm)  # refuses what is wrong before anything is submitted
    tag = night.isoformat() + _CONFIRMING * (only is not None)
    numbers = range(len(nightly_suite.launches)) if only is None else only
    prepared = suite.prepare(nightly_suite, tag, numbers, accept_code_change=accept_code_change)
    record = _record(nightly_suite, night)
    if only is None:
        drive.check(prepared)
    else:
        check_engines(prepared)
    runs = {number: launch.run for number, launch in zip(numbers, prepared, strict=True)}
    names = {str(number): run.path.name for number, run in runs.items()}
    if only is None:
        write_atomically(_folder(nightly_suite) / f"{tag}.json", json.dumps(names, indent=2).encode())
    record.append("launched" if only is None else "confirming", runs=names, requests=_requests(prepared))
    rejection = _start(prepared, record, nightly_suite.nightly.recoveries)
    waiting = _active_jobs(list(runs.values()))
    if rejection is not None and not waiting:
        raise rejection
    if not any(submissions.read(run) for run in runs.values()):
        return Night(runs, None)
    job, notice = _verdict_jobs(nightly_suite, path, night, confirmed=only is not None).behind(waiting)
    if rejection is not None:
        notice += f"; it submits what was rejected now ({rejection})"
    return Night(runs, job, notice)


def conclude(path: str, night: str, confirmed: bool = False) -> int:
    """Print a night's verdict and write it to `nights/<date>.md`; returns its exit code.

    What is unfinished is submitted again first, and suspicious runs are launched again; a second verdict follows, and
    the exit code is 0. Raises NightFailed if the verdict is FAIL.
    """
    code = _conclude(Path(path), date.fromisoformat(night), confirmed=confirmed, is_job=False)
    if code == warehouse.FAILED_NIGHT:
        raise NightFailed(f"{night}: FAIL")
    return code


def give_verdict(path: str, night: str, confirmed: bool = False) -> None:
    """Give a night's verdict in a job of its own, which ends with the verdict's exit code."""
    try:
        code = _conclude(Path(path), date.fromisoformat(night), confirmed=confirmed, is_job=True)
    except suite.BadSuite as error:
        print(f"no verdict: {error}", file=sys.stderr)
        code = NO_VERDICT
    except Exception as error:  # noqa: BLE001 an exit code of 1 would say that the night failed
        traceback.print_exc()
        code = NO_VERDICT
        with contextlib.suppress(Exception):
            _failed(Path(path), date.fromisoformat(night), error, confirmed=confirmed)
    sys.exit(code)


def _failed(path: Path, night: date, error: Exception, *, confirmed: bool) -> None:
    """Record what ended a verdict job, for which another one follows; the last one writes that there is no verdict."""
    nightly_suite = suite.read(path, suite.NIGHTLY_OUTPUT)
    record = _record(nightly_suite, night)
    line = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    record.append("failed", error=line)
    if len(record.events("failed")) >= _MOST_FAILURES:
        words = "NO VERDICT", f"**NO VERDICT: night of {night}**\n\n{line}\n"
        jobs = _verdict_jobs(nightly_suite, path, night, confirmed=confirmed)
        try:
            _end(nightly_suite, night, record, words, [], [], NO_VERDICT, jobs)
        finally:  # where the page cannot be written, a further job could not write it either
            jobs.dismiss_successors()


def _conclude(path: Path, night: date, *, confirmed: bool, is_job: bool) -> int:
    snapshot.require()
    nightly_suite = suite.read(path, suite.NIGHTLY_OUTPUT)
    record = _record(nightly_suite, night)
    if is_job and record.is_concluded:
        print("the night has its verdict already")
        return 0
    jobs = _verdict_jobs(nightly_suite, path, night, confirmed=confirmed)
    record.append("started", job=client.this_job())
    if is_job:
        jobs.ensure_successor()
    runs = _runs(nightly_suite, night, record)
    found = recovery.recover(runs, record, nightly_suite.nightly.recoveries)
    for name, tasks in found.resumed.items():
        print(f"{name}: {counted(tasks, 'task')} submitted again")
    if found.waiting_for:
        return _hand_on(record, *jobs.behind(found.waiting_for))
    database = nightly_suite.output / "warehouse.duckdb"
    gaps = [*found.gaps, *completing.complete(runs, database, record)]
    notes: list[str] = []
    try:
        verdict = warehouse.judged(database, night, nightly_suite.nightly.since)
    except warehouse.WarehouseFailed as error:
        words = "NO VERDICT", f"**NO VERDICT: night of {night}**\n\n{error}\n"
        return _end(nightly_suite, night, record, words, gaps, notes, NO_VERDICT, jobs)
    if to_confirm := [] if confirmed else _suspicious(nightly_suite, night, record, verdict.to_confirm):
        try:
            page.write(_page(nightly_suite, night), warehouse.markdown_of(verdict), gaps, record, notes)
            launched = launch(path, night, to_confirm)
        except (client.SlurmError, ValueError, OSError) as error:
            notes.append(f"suspicious runs could not be launched again: {error}")
        else:
            if launched.verdict_job is not None:
                return _hand_on(record, launched.verdict_job, launched.notice)
            record.append("handed on", job=None)
            return _conclude(path, night, confirmed=True, is_job=is_job)
    warehouse.print_verdict(verdict)
    words = verdict.verdict, warehouse.markdown_of(verdict)
    return _end(nightly_suite, night, record, words, gaps, notes, verdict.exit_code, jobs)


def _end(
    nightly_suite: Suite,
    night: date,
    record: NightRecord,
    words: tuple[str, str],
    gaps: Sequence[Gap],
    notes: Sequence[str],
    code: int,
    jobs: VerdictJobs,
) -> int:
    """Write the page and return the exit code. What died in between is done again by a successor."""
    verdict, text = words
    file = _page(nightly_suite, night)
    page.write(file, text, gaps, record, notes)
    if verdict == "NO VERDICT":
        print(text)
    for line in (page.partial(gaps), *map(str, gaps), *notes):
        if line:
            print(line)
    record.append("concluded", verdict=verdict, exit_code=code, missing=sum(gap.missing for gap in gaps))
    if client.this_job() is not None:
        jobs.dismiss_successors()
    print(f"{verdict}: {file}", flush=True)
    return code


def _hand_on(record: NightRecord, job: str, notice: str) -> int:
    record.append("handed on", job=job)
    print(f"no verdict yet: the verdict is job {job}{notice}", flush=True)
    return 0


def _start(prepared: Sequence[PreparedLaunch], record: NightRecord, recoveries: int) -> client.SlurmError | None:
    """Start launches; those on this machine are started again where workers fail. Returns why Slurm rejected jobs."""
    console = Console(highlight=False)
    runs = [launch.run for launch in prepared]
    while True:
        try:
            drive.carry_out(prepared, console)  # checked once: what dies is begun again
        except LaunchFailed as failure:
            console.print(str(failure), style="bold red", markup=False, soft_wrap=True)
            refusal = recovery.out_of_rounds(record, runs, recoveries)
            if refusal is not None:
                console.print(f"The night goes on without the rest: {refusal}.", style="bold red", soft_wrap=True)
                return None
            record.append("recovered", work={run.path.name: recovery.work_of(run) for run in runs})
        except client.SlurmError as rejection:
            return rejection
        else:
            return None


def _requests(prepared: Sequence[PreparedLaunch]) -> dict[str, Mapping[str, Any]]:
    """Return how each launch is submitted to Slurm, by the name of its run; none where it runs on this machine."""
    return {
        launch.run.path.name: {
            "options": dict(launch.sbatch),
            "shards_per_task": launch.launch.shards_per_task,
            "workers_per_task": launch.launch.workers_per_task,
        }
        for launch in prepared
        if launch.cluster == "slurm"
    }


def _active_jobs(runs: Sequence[RunFolder]) -> list[str]:
    submitted = [run for run in runs if run.exists() and submissions.read(run)]
    return sorted({job for jobs in recovery.active_jobs(submitted).values() for job in jobs})


def _suspicious(nightly_suite: Suite, night: date, record: NightRecord, cells: Sequence[Any]) -> list[int]:
    """Return the numbers of the launches whose runs are suspicious. Raises ValueError if a file of names is damaged."""
    suspicious = {cell.run_id for cell in cells}
    if not suspicious:
        return []
    return [number for number, name in record.names.items() if name in suspicious]


def _runs(nightly_suite: Suite, night: date, record: NightRecord) -> list[RunFolder]:
    """Return the run folders of a night, with those that confirm a suspicion."""
    names = dict.fromkeys([*record.names.values(), *record.confirming.values()])
    return [RunFolder(nightly_suite.output.resolve() / name) for name in names]


def _verdict_jobs(nightly_suite: Suite, path: Path, night: date, *, confirmed: bool) -> VerdictJobs:
    record = _record(nightly_suite, night)
    options: Mapping[str, Any] = next((r["options"] for r in reversed(record.requests.values())), {})
    name = f"{nightly_suite.name}.{night}{_CONFIRMING * confirmed}.verdict"
    arguments = (str(path.resolve()), night.isoformat(), *([True] if confirmed else []))
    own = {**options.get(profiles.FINALIZE, {}), **nightly_suite.nightly.slurm}
    options = {**options, profiles.FINALIZE: own}
    return VerdictJobs(_folder(nightly_suite), name, record, options, give_verdict, arguments)


def _record(nightly_suite: Suite, night: date) -> NightRecord:
    return NightRecord(_folder(nightly_suite) / f"{night}.jsonl")


def _page(nightly_suite: Suite, night: date) -> Path:
    return _folder(nightly_suite) / f"{night}.md"


def _folder(nightly_suite: Suite) -> Path:
    return nightly_suite.output.resolve() / "nights"
