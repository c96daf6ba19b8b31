"""A night: a suite launched with the night's date as its tag, and one verdict on it once every run has ended.

Nothing polls: the verdict is a job that Slurm starts after the last jobs of the runs. What it finds unfinished, because
a worker died, it submits again with itself behind it (jobs.recovery). If it finds something suspicious, it launches
those runs again with another tag, and a second verdict after them decides.

    <output>/nights/<date>.md       the verdict, what is missing and why, what was recovered
    <output>/nights/<date>.jsonl    what happened: launches, verdict jobs, what was submitted again

A second verdict job takes the place of one that dies, killed or by an error: it depends on the failure of the first
(`afternotok`), has the same name, and Slurm drops it when the first succeeds (`--kill-on-invalid-dep`). A job that
gives a verdict, whatever its exit code, cancels it, and so does the third that ends in an error: no verdict follows.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from harness.cli import exit_codes
from harness.cli.messages import counted
from harness.cli.screen import terminal
from jobs import after, drive, recovery, suite
from jobs.drive import Look
from jobs.outcome import LaunchFailed, Outcome
from jobs.preparation import PreparedLaunch, check_budget, check_engines
from jobs.recovery import Gap, NightRecord
from jobs.run import submissions, trust
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import submit
from jobs.suite import Suite

NO_VERDICT = exit_codes.WRONG_INPUT
"""Exit code where no verdict was possible; those of verdicts are warehouse.nightly.judge.EXIT_CODES."""
_MOST_FAILURES = 3
"""Verdict jobs of one night that end in an error before there is no verdict: what failed may be back by then."""
_PER_TASK = ("shards_per_task", "workers_per_task")
_LEAST_MINUTES = 60
_MOST_STARTS = 50
"""Starts of verdict jobs of one night after which no further one is submitted."""
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})


def carry_out(
    known: Outcome,
    file: Path,
    day: date,
    overrides: Mapping[str, Any],
    *,
    is_dry: bool = False,
    waits: bool = False,
    junit: Path | None = None,
    accept_code_change: bool = False,
) -> None:
    """Launch a suite for a night, and judge it where its runs are on this machine.

    With `waits`, or a file for the verdict as `junit`, it waits for the job that judges runs on Slurm. `known` is
    filled as it goes. Raises what `launch` raises.
    """
    night = Night.read(file, day, overrides)
    if is_dry:
        prepared = suite.prepare(night.suite, f"{day}", accept_code_change=accept_code_change)
        known.runs = [one.run for one in prepared]
        suite.preview(prepared, terminal())
        return
    job = launch(night, accept_code_change=accept_code_change)
    known.runs = night.runs()
    known.found["verdict_job"] = job
    if job:
        print(f"night of {day}: {counted(len(known.runs), 'run')}; the verdict is job {job}")
        if not waits and junit is None:
            return
        night.wait()
    else:
        conclude(night)
    concluded = night.record.last("concluded")
    if concluded is None:
        ended = f"its verdict jobs ended without one; logs: {night.folder}/logs"
        concluded = {"exit_code": NO_VERDICT, "found": {"error": f"no verdict on the night of {day}: {ended}"}}
        print(concluded["found"]["error"])
    known.exit_code = concluded["exit_code"]
    known.found |= {**concluded["found"], "page": f"{night.page}" if night.page.exists() else None}
    if junit is not None:
        error, since = concluded["found"].get("error"), night.suite.nightly.since
        write_atomically(junit, after.junit(night.database, day, since, error, known.exit_code).encode())


@dataclass(frozen=True)
class Night:
    """A suite on one night, and the files of it."""

    file: Path
    """The suite's file."""
    day: date
    suite: Suite
    is_confirming: bool = False
    """Whether the suspicious runs have been launched again."""

    @classmethod
    def read(cls, file: Path, night: date, overrides: Mapping[str, Any] | None = None) -> Night:
        """Read the suite of a night. Raises suite.BadSuite."""
        return cls(file, night, suite.read(file, suite.NIGHTLY_OUTPUT, overrides))

    @property
    def folder(self) -> Path:
        """The folder of pages, records and logs of verdict jobs."""
        return self.suite.output.resolve() / "nights"

    @property
    def page(self) -> Path:
        """The page of the verdict."""
        return self.folder / f"{self.day}.md"

    @property
    def database(self) -> Path:
        """The warehouse of all nights."""
        return self.suite.output / "warehouse.duckdb"

    @property
    def record(self) -> NightRecord:
        """The record of what happened."""
        return NightRecord(self.folder / f"{self.day}.jsonl")

    def runs(self) -> list[RunFolder]:
        """Return the run folders of the night, with those that confirm a suspicion."""
        names = [*self.record.names("launched").values(), *self.record.names("confirming").values()]
        return [RunFolder(self.suite.output.resolve() / name) for name in dict.fromkeys(names)]

    def submit_verdict(self, jobs: Sequence[str]) -> str:
        """Submit the job that gives the verdict once these have ended; returns its id. Raises SlurmError.

        It takes the place of one that waits for jobs of an earlier launch, and waits for one that is giving its own.
        """
        with RunFolder(self.folder).lock("submission"):
            others = self._others()
            waits_for = [*jobs, *(task.job_id for task in others if task.state != "PENDING")]
            job = self._submit({"dependency": f"afterany:{':'.join(waits_for)}"} if waits_for else {})
            # A colleague's, which only they can cancel, judges again.
            client.cancel_tasks([task for task in others if task.state == "PENDING" and not task.colleague])
            self._stand_by(job)
        return job

    def ensure_successor(self) -> None:
        """Have a job that takes the place of this verdict job if it is killed, unless there is one."""
        job, starts = client.this_job(), len(self.record.events("started"))
        if job is not None and starts < _MOST_STARTS and not self._others():
            self._stand_by(job)

    def dismiss_successors(self) -> None:
        """Cancel what would take the place of this verdict job, which is done, whatever its exit code is."""
        if client.this_job() is not None:
            with contextlib.suppress(client.SlurmError):
                client.cancel_tasks([task for task in self._others() if task.state == "PENDING"])

    def _stand_by(self, job: str) -> None:
        try:
            self._submit({"dependency": f"afternotok:{job}"}, **{"kill-on-invalid-dep": "yes"})
        except (client.SlurmError, trust.NotTrusted) as error:
            print(f"no job takes the place of verdict job {job} if it dies: {error}", flush=True)

    def _others(self) -> list[client.Task]:
        own = client.this_job()
        return [task for task in client.queue([self._job_name]) if task.job_id != own]

    def _submit(self, dependency: Mapping[str, str], **further: str) -> str:
        folder = RunFolder(self.folder)
        options: Mapping[str, Any] = next((r["options"] for r in reversed(self.record.requests.values())), {})
        trust.require(folder, trust.options(options))
        own = {**options.get(profiles.FINALIZE, {}), **self.suite.nightly.slurm}
        parameters = profiles.finalizer_parameters({**options, profiles.FINALIZE: own})
        passed = {name: value for name, value in parameters["additional_parameters"].items() if name != "dependency"}
        parameters |= {"additional_parameters": {**passed, **further}, **dependency}
        parameters["time"] = max(_LEAST_MINUTES, int(parameters["time"]))
        task = "judge", str(self.file.resolve()), f"{self.day}", *["confirming"] * self.is_confirming
        job = submit.submit_alone(self.folder, self._job_name, parameters, *task)
        self.record.append("verdict job", job=job)
        return job

    @property
    def tag(self) -> str:
        """The tag of the runs."""
        return f"{self.day}{'.confirm' * self.is_confirming}"

    @property
    def _job_name(self) -> str:
        return f"{self.suite.name}.{self.tag}.verdict"

    def wait(self) -> None:
        """Wait until the night has its verdict, or no verdict job is left. Interrupted, the jobs go on.

        Each look asks Slurm's queue once, for the verdict jobs alone.
        """
        names = [self._job_name, replace(self, is_confirming=True)._job_name]

        def look() -> Look:
            if self.record.last("concluded"):
                return "ended"
            own = {event["job"] for event in self.record.events("verdict job")}  # others are of another folder
            try:
                return "at work" if own & {task.job_id for task in client.queue(names) if task.is_active} else "idle"
            except client.SlurmError:
                return "at work"

        drive.until_ended(look)

    def write_page(self, verdict: str, gaps: Sequence[Gap], notes: Sequence[str] = ()) -> None:
        """Write the page; `verdict` is Markdown that begins with a line of its own for the verdict."""
        opening, _, rest = verdict.partition("\n")
        lines = [opening, *([f"\n**{_partial(gaps)}**"] if gaps else []), rest.rstrip("\n")]
        if gaps:
            lines += ["\n## Missing\n", *(f"- {_escaped(str(gap))}" for gap in gaps)]
        if happened := [*_recoveries(self.record), *notes]:
            lines += ["\n## Recovered\n", *(f"- {_escaped(line)}" for line in happened)]
        write_atomically(self.page, ("\n".join(lines) + "\n").encode())


def launch(night: Night, only: Sequence[int] | None = None, *, accept_code_change: bool = False) -> str | None:
    """Launch a suite for a night, and submit the job that judges it; returns its id, None where the runs are here.

    Launched again, it resumes. `only`: some launches, by number. `accept_code_change`: whether to go on with
    a night that other code began; another night always has runs of its own. Runs on this machine whose workers fail are
    started again, within the same bound as on Slurm, and what is then still missing is left to the verdict. Raises what
    planning a launch and submitting it raise.
    """
    profiles.submitit_parameters(night.suite.nightly.slurm)  # refuses what is wrong before anything is submitted
    numbers = range(len(night.suite.launches)) if only is None else only
    prepared = suite.prepare(night.suite, night.tag, numbers, accept_code_change=accept_code_change)
    check_engines(prepared)
    if not night.is_confirming:  # which a refusal would leave open, and it is one round
        check_budget(prepared)
    requests = {
        one.run.path.name: {"options": dict(one.sbatch), **{name: getattr(one.launch, name) for name in _PER_TASK}}
        for one in prepared
        if one.cluster == "slurm"
    }
    names = {str(number): one.run.path.name for number, one in zip(numbers, prepared, strict=True)}
    night.record.append("confirming" if night.is_confirming else "launched", runs=names, requests=requests)
    rejection = _start(night, prepared)
    submitted = [one.run for one in prepared if one.run.exists() and submissions.read(one.run)]
    waiting = sorted({job for jobs in recovery.active_jobs(submitted).values() for job in jobs})
    if rejection is not None:
        if not waiting:
            raise rejection
        print(f"Slurm rejected further jobs, which the verdict job submits again: {rejection}")
    return night.submit_verdict(waiting) if submitted else None


def _start(night: Night, prepared: Sequence[PreparedLaunch]) -> client.SlurmError | None:
    """Start launches; those on this machine are started again where workers fail. Returns why Slurm rejected jobs."""
    console, record, runs = terminal(), night.record, [one.run for one in prepared]
    while True:
        try:
            drive.carry_out(prepared, console)  # checked once: what dies is begun again
        except LaunchFailed as failure:
            console.print(str(failure), style="bold red", markup=False, soft_wrap=True)
            refusal = recovery.out_of_rounds(record, runs, night.suite.nightly.recoveries)
            if refusal is not None:
                console.print(f"The night goes on without the rest: {refusal}.", style="bold red", soft_wrap=True)
                return None
            record.append("recovered", work={run.path.name: recovery.work_of(run) for run in runs})
        except client.SlurmError as rejection:
            return rejection
        else:
            return None


def give_verdict(path: str, day: str, is_confirming: bool = False) -> None:
    """Give a night's verdict in a job of its own, which ends with the verdict's exit code."""
    night = None
    try:
        night = replace(Night.read(Path(path), date.fromisoformat(day)), is_confirming=is_confirming)
        if night.record.last("concluded"):
            sys.exit(0)
        night.record.append("started", job=client.this_job())
        with contextlib.suppress(client.SlurmError):
            night.ensure_successor()
        code = conclude(night)
    except Exception as error:  # noqa: BLE001 an exit code of 1 would say that the night failed
        traceback.print_exc()
        code = NO_VERDICT
        if night is not None:
            with contextlib.suppress(OSError):
                _note_failure(night, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    sys.exit(code)


def _note_failure(night: Night, error: str) -> None:
    """Record what ended a verdict job, whose place another one takes; the last one writes that there is no verdict."""
    night.record.append("failed", error=error)
    if len(night.record.events("failed")) >= _MOST_FAILURES:
        try:
            _no_verdict(night, error)
        finally:  # where the page cannot be written, a further job could not write it either
            night.dismiss_successors()


def conclude(night: Night) -> int:
    """Print a night's verdict and write it to `nights/<date>.md`; returns its exit code.

    What is unfinished is submitted again first, and suspicious runs are launched again; a second verdict follows, and
    the exit code is 0.
    """
    record, runs = night.record, night.runs()
    found = recovery.recover(runs, record, night.suite.nightly.recoveries)
    for name, tasks in found.resumed.items():
        print(f"{name}: {counted(tasks, 'task')} submitted again")
    if found.waiting_for:
        return _hand_on(record, night.submit_verdict(found.waiting_for))
    unreadable = {gap.run for gap in found.gaps if not gap.what}  # or never launched
    to_complete = [run for run in runs if run.path.name not in unreadable]
    gaps = [*found.gaps, *recovery.complete(to_complete, night.database, record)]
    try:
        verdict = after.judged(night.database, night.day, night.suite.nightly.since)
    except after.WarehouseBusy:
        raise  # a later try finds it free
    except after.WarehouseError as error:
        return _no_verdict(night, str(error), gaps)
    notes: list[str] = []
    suspicious = [number for number, name in record.names("launched").items() if name in verdict.to_confirm]
    if suspicious and not night.is_confirming:
        try:
            night.write_page(verdict.markdown, gaps)
            again = replace(night, is_confirming=True)
            job = launch(again, suspicious)
        except (client.SlurmError, ValueError, OSError) as error:
            notes.append(f"suspicious runs could not be launched again: {error}")
        else:
            return _hand_on(record, job) if job else conclude(again)
    night.write_page(verdict.markdown, gaps, notes)
    return _end(night, verdict.verdict, verdict.exit_code, verdict.record, [*gaps, *notes])


def _no_verdict(night: Night, reason: str, gaps: Sequence[Gap] = ()) -> int:
    """Write the page of a night on which no verdict was possible."""
    print(reason)
    night.write_page(f"**NO VERDICT: night of {night.day}**\n\n{reason}\n", gaps)
    return _end(night, "NO VERDICT", NO_VERDICT, {"error": reason}, gaps)


def _end(night: Night, verdict: str, code: int, found: Mapping[str, Any], missing: Sequence[object]) -> int:
    for line in missing:
        print(line)
    night.record.append("concluded", verdict=verdict, exit_code=code, found=found)
    night.dismiss_successors()
    print(f"{verdict}: {night.page}", flush=True)
    return code


def _hand_on(record: NightRecord, job: str | None) -> int:
    record.append("handed on", job=job)
    print(f"no verdict yet: the verdict is job {job}", flush=True)
    return 0


def _partial(gaps: Sequence[Gap]) -> str:
    """Return one line that says that a night is partial."""
    runs, missing = counted(len({gap.run for gap in gaps}), "run is", "runs are"), sum(gap.num_missing for gap in gaps)
    return f"PARTIAL NIGHT: {runs} not whole" + (f"; {counted(missing, 'sample')} missing" if missing else "")


def _recoveries(record: NightRecord) -> Iterator[str]:
    """Yield one line for everything that the night did to become whole."""
    for event in record.events():
        at = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M} UTC"
        if event["event"] == "recovered":
            yield f"{at}: unfinished shards of {', '.join(sorted(event['work']))} were submitted again"
        elif event["event"] == "graded":
            yield f"{at}: {event['run']} was graded and loaded by the verdict job"
    starts, expected = len(record.events("started")), 1 + len(record.events("handed on"))
    if starts > expected:
        yield f"the verdict job was started again {counted(starts - expected, 'time')} after it had died"


def _escaped(line: str) -> str:
    return "".join(character for character in line if character.isprintable()).translate(_ESCAPED)
