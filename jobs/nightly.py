"""A night: a suite launched with the date as its tag, and one verdict when all its runs have ended.

Nothing polls: Slurm starts the verdict job after the last jobs of the runs. If workers died, the verdict job resubmits
their unfinished shards and then submits another verdict job (jobs.recovery). If results are suspicious, it launches
their runs again with another tag, and a second verdict decides.

    <output>/nights/<date>.md       the verdict, missing results with reasons, recoveries
    <output>/nights/<date>.jsonl    the events: launches, verdict jobs, resubmissions

A standby job replaces a verdict job that dies or fails. It has the same name and depends on the failure of the verdict
job (`afternotok`); if the verdict job succeeds, Slurm drops it (`--kill-on-invalid-dep`). A job that gives a verdict
cancels the standby job, whatever exit code follows. The third job that fails cancels it too, and the night has no
verdict.
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
"""Exit code if no verdict was possible; for verdicts see warehouse.nightly.judge.EXIT_CODES."""
_MOST_FAILURES = 3
"""Number of failed verdict jobs after which a night ends without a verdict; earlier failures may be temporary."""
_PER_TASK = ("shards_per_task", "workers_per_task")
_LEAST_MINUTES = 60
_MOST_STARTS = 50
"""Number of started verdict jobs of one night after which no further standby job is submitted."""
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
    """Launch the runs of a night. If they are on this machine, judge them at once.

    On Slurm, a job gives the verdict; with `waits` or `junit`, wait for that job. `junit`: path of the JUnit file to
    write. Fills in `known`. Raises the errors of `launch`.
    """
    if junit is not None and not is_dry:
        junit.unlink(missing_ok=True)  # the file of an earlier night is no verdict on this one
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
        print(f"night of {day}: {counted(len(known.runs), 'run')}; job {job} will report the verdict")
        if not waits and junit is None:
            return
        night.wait()
    else:
        conclude(night)
    concluded = night.record.last("concluded")
    if concluded is None:
        ended = f"its verdict jobs exited without a verdict; logs: {night.folder}/logs"
        concluded = {"exit_code": NO_VERDICT, "found": {"error": f"no verdict for the night of {day}: {ended}"}}
        print(concluded["found"]["error"])
    known.exit_code = concluded["exit_code"]
    known.found |= {**concluded["found"], "page": f"{night.page}" if night.page.exists() else None}
    if junit is not None:
        error, since = concluded["found"].get("error"), night.suite.nightly.since
        write_atomically(junit, after.junit(night.database, day, since, error, known.exit_code).encode())


@dataclass(frozen=True)
class Night:
    """A suite on one night, with the files of that night."""

    file: Path
    """The suite file."""
    day: date
    suite: Suite
    is_confirming: bool = False
    """True in the second round, which launches the suspicious runs again to confirm them."""

    @classmethod
    def read(cls, file: Path, night: date, overrides: Mapping[str, Any] | None = None) -> Night:
        """Read a night's suite. Raises suite.BadSuite."""
        return cls(file, night, suite.read(file, suite.NIGHTLY_OUTPUT, overrides))

    @property
    def folder(self) -> Path:
        """Folder of the pages, records and verdict-job logs."""
        return self.suite.output.resolve() / "nights"

    @property
    def page(self) -> Path:
        """Markdown page with the verdict."""
        return self.folder / f"{self.day}.md"

    @property
    def database(self) -> Path:
        """Database of all nights."""
        return self.suite.output / "warehouse.duckdb"

    @property
    def record(self) -> NightRecord:
        """Events of the night."""
        return NightRecord(self.folder / f"{self.day}.jsonl")

    def runs(self) -> list[RunFolder]:
        """Return the night's run folders, including confirmation runs."""
        names = [*self.record.names("launched").values(), *self.record.names("confirming").values()]
        return [RunFolder(self.suite.output.resolve() / name) for name in dict.fromkeys(names)]

    def submit_verdict(self, jobs: Sequence[str]) -> str:
        """Submit the verdict job, to start once `jobs` have ended; return its id. Raises SlurmError.

        The new job replaces pending verdict jobs of earlier launches, and waits for those that are not pending.
        """
        with RunFolder(self.folder).lock("submission"):
            others = self._others()
            waits_for = [*jobs, *(task.job_id for task in others if task.state != "PENDING")]
            job = self._submit({"dependency": f"afterany:{':'.join(waits_for)}"} if waits_for else {})
            # Another user's verdict job cannot be canceled from here, and will run as well.
            client.cancel_tasks([task for task in others if task.state == "PENDING" and not task.colleague])
            self._stand_by(job)
        return job

    def ensure_successor(self) -> None:
        """Submit a standby job for this verdict job, unless one exists, or too many verdict jobs have started."""
        job, starts = client.this_job(), len(self.record.events("started"))
        if job is not None and starts < _MOST_STARTS and not self._others():
            self._stand_by(job)

    def dismiss_successors(self) -> None:
        """Cancel the standby job: this verdict job is done, whatever its exit code."""
        if client.this_job() is not None:
            with contextlib.suppress(client.SlurmError):
                client.cancel_tasks([task for task in self._others() if task.state == "PENDING"])

    def _stand_by(self, job: str) -> None:
        try:
            self._submit({"dependency": f"afternotok:{job}"}, **{"kill-on-invalid-dep": "yes"})
        except (client.SlurmError, trust.NotTrusted) as error:
            print(f"could not submit a standby job for verdict job {job}: {error}", flush=True)

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
        """The tag of this night's runs."""
        return f"{self.day}{'.confirm' * self.is_confirming}"

    @property
    def _job_name(self) -> str:
        return f"{self.suite.name}.{self.tag}.verdict"

    def wait(self) -> None:
        """Wait until the night has a verdict or no verdict job is left. An interrupt does not affect the jobs.

        Each poll queries Slurm's queue once, for the verdict jobs only.
        """
        names = [self._job_name, replace(self, is_confirming=True)._job_name]

        def look() -> Look:
            if self.record.last("concluded"):
                return "ended"
            # Jobs of other folders may have the same names.
            own = {event["job"] for event in self.record.events("verdict job")}
            try:
                return "at work" if own & {task.job_id for task in client.queue(names) if task.is_active} else "idle"
            except client.SlurmError:
                return "at work"

        drive.until_ended(look)

    def write_page(self, verdict: str, gaps: Sequence[Gap], notes: Sequence[str] = ()) -> None:
        """Write the page. `verdict`: Markdown text that starts with a line for the verdict."""
        opening, _, rest = verdict.partition("\n")
        lines = [opening, rest.rstrip("\n")]
        if gaps:
            runs, missing = {gap.run for gap in gaps}, sum(gap.num_missing for gap in gaps)
            samples = f"; {counted(missing, 'sample')} missing" if missing else ""
            lines.insert(1, f"\n**PARTIAL NIGHT: {counted(len(runs), 'run is', 'runs are')} incomplete{samples}**")
            lines += ["\n## Missing\n", *(f"- {_escaped(str(gap))}" for gap in gaps)]
        if happened := [*_recoveries(self.record), *notes]:
            lines += ["\n## Recovered\n", *(f"- {_escaped(line)}" for line in happened)]
        write_atomically(self.page, ("\n".join(lines) + "\n").encode())


def launch(night: Night, only: Sequence[int] | None = None, *, accept_code_change: bool = False) -> str | None:
    """Launch the runs of a night and submit the verdict job; return the job's id, or None if no run is on Slurm.

    Launching again resumes the night. `only`: numbers of the launches to include; None: all. `accept_code_change`:
    resume a night that was started with other code. Failed workers on this machine are restarted as often as on Slurm;
    samples that are then still missing are reported with the verdict. Raises the errors of a launch.
    """
    profiles.submitit_parameters(night.suite.nightly.slurm)  # validates the options before anything is submitted
    numbers = range(len(night.suite.launches)) if only is None else only
    prepared = suite.prepare(night.suite, night.tag, numbers, accept_code_change=accept_code_change)
    check_engines(prepared)
    # A confirmation is not checked: it is only one round, and without it the verdict would stay open.
    if not night.is_confirming:
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
        print(f"Slurm rejected further jobs ({rejection}); the verdict job will submit them")
    return night.submit_verdict(waiting) if submitted else None


def _start(night: Night, prepared: Sequence[PreparedLaunch]) -> client.SlurmError | None:
    """Start launches, and restart those that fail on this machine. Return Slurm's error if jobs were not accepted."""
    console, record, runs = terminal(), night.record, [one.run for one in prepared]
    while True:
        try:
            drive.carry_out(prepared, console)  # without the checks of `drive`, which need not be repeated
        except LaunchFailed as failure:
            console.print(str(failure), style="bold red", markup=False, soft_wrap=True)
            refusal = recovery.out_of_rounds(record, runs, night.suite.nightly.recoveries)
            if refusal is not None:
                line = f"Continuing without the unfinished samples: {refusal}."
                console.print(line, style="bold red", soft_wrap=True)
                return None
            record.append("recovered", work={run.path.name: recovery.work_of(run) for run in runs})
        except client.SlurmError as rejection:
            return rejection
        else:
            return None


def give_verdict(path: str, day: str, is_confirming: bool = False) -> None:
    """Run a verdict job, which exits with the verdict's exit code."""
    night = None
    try:
        night = replace(Night.read(Path(path), date.fromisoformat(day)), is_confirming=is_confirming)
        if night.record.last("concluded"):
            sys.exit(0)
        night.record.append("started", job=client.this_job())
        with contextlib.suppress(client.SlurmError):
            night.ensure_successor()
        code = conclude(night)
    except Exception as error:  # noqa: BLE001 exit code 1 would mean the verdict FAIL
        traceback.print_exc()
        code = NO_VERDICT
        if night is not None:
            with contextlib.suppress(OSError):
                _note_failure(night, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    sys.exit(code)


def _note_failure(night: Night, error: str) -> None:
    """Record the error of a verdict job; if it is the last attempt, write the page without a verdict."""
    night.record.append("failed", error=error)
    if len(night.record.events("failed")) >= _MOST_FAILURES:
        try:
            _no_verdict(night, error)
        finally:  # if this job cannot write the page, no other job can
            night.dismiss_successors()


def conclude(night: Night) -> int:
    """Print a night's verdict and write it to `nights/<date>.md`; return its exit code.

    The verdict is left to another job, with exit code 0 here, if unfinished samples are resubmitted or suspicious runs
    are launched again on Slurm. Suspicious runs on this machine are repeated at once.
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
        raise  # retried by the standby job
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
    print(f"no verdict yet: job {job} will report it", flush=True)
    return 0


def _recoveries(record: NightRecord) -> Iterator[str]:
    for event in record.events():
        at = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M} UTC"
        if event["event"] == "recovered":
            yield f"{at}: unfinished shards of {', '.join(sorted(event['work']))} were resubmitted"
        elif event["event"] == "graded":
            yield f"{at}: {event['run']} was graded and loaded by the verdict job"
    starts, expected = len(record.events("started")), 1 + len(record.events("handed on"))
    if starts > expected:
        yield f"the verdict job died or failed and was replaced {counted(starts - expected, 'time')}"


def _escaped(line: str) -> str:
    return "".join(character for character in line if character.isprintable()).translate(_ESCAPED)
