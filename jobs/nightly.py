"""A night: a suite launched with the night's date as its tag, and one verdict on it once every run has ended.

Nothing polls: the verdict is a job that Slurm starts after the last jobs of the runs. What it finds unfinished, because
a worker died, it submits again with itself behind it (jobs.recovery). If it finds something suspicious, it launches
those runs again with another tag, and a second verdict after them decides.

    <output>/nights/<date>.md       the verdict, what is missing and why, what was recovered
    <output>/nights/<date>.json     which run folder each launch of the suite has
    <output>/nights/<date>.jsonl    what happened: launches, verdict jobs, what was submitted again

A second verdict job takes the place of the first if that dies: it depends on the failure of the first (`afternotok`),
has the same name, and Slurm drops it when the first succeeds (`--kill-on-invalid-dep`). It is what lets a night end
unattended although its verdict job was killed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import exit_codes
from harness.cli.messages import counted
from harness.cli.screen import terminal
from jobs import after, drive, recovery, suite
from jobs.drive import LaunchFailed, Look
from jobs.outcome import NightOutcome
from jobs.preparation import PreparedLaunch, check_engines
from jobs.recovery import Gap, NightRecord
from jobs.run import submissions, trust
from jobs.run.files import RunDamaged, write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import submit
from jobs.suite import Suite

if TYPE_CHECKING:
    from warehouse.nightly.judge import NightVerdict

_CONFIRMING = ".confirm"
"""The suffix of the tag of runs that confirm a suspicion."""
NO_VERDICT = exit_codes.WRONG_INPUT
"""Exit code where no verdict was possible; those of verdicts are warehouse.nightly.judge.EXIT_CODES."""
_MOST_FAILURES = 3
"""Verdict jobs of one night that end in an error (they were not killed) before there is no verdict."""
_LEAST_MINUTES = 60
_MOST_STARTS = 50
"""Starts of verdict jobs of one night after which no further one is submitted."""
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})


def carry_out(
    known: NightOutcome,
    file: Path,
    overrides: Mapping[str, Any],
    *,
    is_dry: bool = False,
    waits: bool = False,
    junit: Path | None = None,
    as_json: bool = False,
    accept_code_change: bool = False,
) -> None:
    """Launch a suite for a night, and judge it where its runs are on this machine.

    With `waits`, or a file for the verdict as `junit`, it waits for the job that judges runs on Slurm. `known` is
    filled as it goes, with the verdict itself if `as_json`. Raises what `launch` raises.
    """
    night = Night.read(file, known.night, overrides)
    if is_dry:
        prepared = suite.prepare(night.suite, str(night.day), accept_code_change=accept_code_change)
        known.runs = [one.run for one in prepared]
        suite.preview(prepared, terminal())
        return
    launched = launch(night, accept_code_change=accept_code_change)
    known.runs, known.verdict_job = list(launched.runs.values()), launched.verdict_job
    if launched.verdict_job:
        num_runs = counted(len(launched.runs), "run")
        print(f"night of {night.day}: {num_runs}; the verdict is job {launched.verdict_job}{launched.notice}")
        if not waits and junit is None:
            return
        known.exit_code = night.awaited()
    else:
        known.exit_code = conclude(night)
    known.page = night.page if night.page.exists() else None
    if as_json or junit is not None:
        tell(known, night, junit)


def tell(known: NightOutcome, night: Night, junit: Path | None) -> None:
    """Add the verdict on a night that was judged to its outcome, and write it as JUnit XML, or the lack of one.

    Where none was possible, the one case in the file is an error. Raises OSError.
    """
    try:
        if known.exit_code == NO_VERDICT:
            raise after.WarehouseFailed(f"no verdict was possible; logs: {night.folder / 'logs'}")
        verdict = night.judged()
        known.verdict, xml = json.loads(after.verdict_as(verdict, "json")), after.verdict_as(verdict, "junit")
    except after.WarehouseFailed as error:
        known.verdict = {"error": str(error)}
        xml = after.junit_of_no_verdict(night.day, str(error), NO_VERDICT)
    if junit is not None:
        write_atomically(junit, xml.encode())


@dataclass(frozen=True)
class Night:
    """A suite on one night, and the files of it."""

    file: Path
    """The suite's file."""
    day: date
    suite: Suite

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
    def record(self) -> NightRecord:
        """The record of what happened."""
        return NightRecord(self.folder / f"{self.day}.jsonl")

    @property
    def database(self) -> Path:
        """The warehouse of all nights."""
        return self.suite.output / "warehouse.duckdb"

    def runs(self) -> list[RunFolder]:
        """Return the run folders of the night, with those that confirm a suspicion."""
        names = [*self.record.names("launched").values(), *self.record.names("confirming").values()]
        return [RunFolder(self.suite.output.resolve() / name) for name in dict.fromkeys(names)]

    def verdict_jobs(self, *, confirmed: bool) -> VerdictJobs:
        """Return the jobs that give the verdict, or that on runs which confirm a suspicion."""
        options: Mapping[str, Any] = next((r["options"] for r in reversed(self.record.requests.values())), {})
        name = f"{self.suite.name}.{self.day}{_CONFIRMING * confirmed}.verdict"
        arguments = (str(self.file.resolve()), str(self.day), *(["confirmed"] if confirmed else []))
        return VerdictJobs(self.folder, name, self.record, options, arguments, self.suite.nightly.slurm)

    def judged(self) -> NightVerdict:
        """Return the verdict against the nights before. Raises after.WarehouseFailed."""
        return after.judged(self.database, self.day, self.suite.nightly.since)

    def awaited(self) -> int:
        """Wait until the night has its verdict; returns the exit code of it, 2 where its jobs ended without one.

        Each look asks Slurm's queue once, for the verdict jobs alone. Interrupted, the jobs go on.
        """
        record = self.record
        names = [self.verdict_jobs(confirmed=confirmed).name for confirmed in (False, True)]

        def look() -> Look:
            if record.last("concluded"):
                return "ended"
            try:
                active = [task.job_id for task in client.queue(names) if task.is_active]
            except client.SlurmError:
                return "at work"
            return "at work" if record.verdict_job(active) else "idle"  # others of this name are of another folder

        drive.until_ended(look)
        concluded = record.last("concluded")
        if concluded is None:
            ended = f"its verdict jobs ended without one; logs: {self.folder}/logs"
            print(f"no verdict on the night of {self.day}: {ended}")
            return NO_VERDICT
        print(f"{concluded['verdict']}: {self.page}")
        return int(concluded["exit_code"])

    def write_page(self, verdict: str, gaps: Sequence[Gap], notes: Sequence[str]) -> None:
        """Write the page; `verdict` is Markdown that begins with a line of its own for the verdict."""
        opening, _, rest = verdict.partition("\n")
        lines = [opening, *([f"\n**{_partial(gaps)}**"] if gaps else []), rest.rstrip("\n")]
        if gaps:
            lines += ["\n## Missing\n", *(f"- {_escaped(str(gap))}" for gap in gaps)]
        if happened := [*_recoveries(self.record), *notes]:
            lines += ["\n## Recovered\n", *(f"- {_escaped(line)}" for line in happened)]
        write_atomically(self.page, ("\n".join(lines) + "\n").encode())


@dataclass(frozen=True)
class Launched:
    """What was launched for a night."""

    runs: dict[int, RunFolder]
    """The run folders by number of the launch in the suite."""
    verdict_job: str | None
    """The Slurm job that will give the verdict; None if the runs ran on this machine."""
    notice: str = ""
    """What became of a verdict job that was there already, as the end of a sentence."""


def launch(night: Night, only: Sequence[int] | None = None, *, accept_code_change: bool = False) -> Launched:
    """Launch a suite for a night; launched again, it resumes. `only`: the launches to confirm, by number.

    Runs that confirm are not estimated again. `accept_code_change`: whether to go on with a night that other code
    began; another night always has runs of its own. Runs on this machine whose workers fail are started again, within
    the same bound as on Slurm, and what is then still missing is left to the verdict. Raises what planning a launch and
    submitting it raise.
    """
    profiles.submitit_parameters(night.suite.nightly.slurm)  # refuses what is wrong before anything is submitted
    tag = f"{night.day}{_CONFIRMING * (only is not None)}"
    numbers = range(len(night.suite.launches)) if only is None else only
    prepared = suite.prepare(night.suite, tag, numbers, accept_code_change=accept_code_change)
    runs = {number: one.run for number, one in zip(numbers, prepared, strict=True)}
    names = {str(number): run.path.name for number, run in runs.items()}
    if only is None:
        drive.check(prepared)
        write_atomically(night.folder / f"{tag}.json", json.dumps(names, indent=2).encode())
    else:
        check_engines(prepared)
    requests = {
        one.run.path.name: {
            "options": dict(one.sbatch),
            "shards_per_task": one.launch.shards_per_task,
            "workers_per_task": one.launch.workers_per_task,
        }
        for one in prepared
        if one.cluster == "slurm"
    }
    night.record.append("launched" if only is None else "confirming", runs=names, requests=requests)
    rejection = _start(night, prepared)
    submitted = [run for run in runs.values() if run.exists() and submissions.read(run)]
    waiting = sorted({job for jobs in recovery.active_jobs(submitted).values() for job in jobs})
    if rejection is not None and not waiting:
        raise rejection
    if not submitted:
        return Launched(runs, None)
    job, notice = night.verdict_jobs(confirmed=only is not None).behind(waiting)
    if rejection is not None:
        notice += f"; it submits what was rejected now ({rejection})"
    return Launched(runs, job, notice)


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


def give_verdict(path: str, night: str, confirmed: bool = False) -> None:
    """Give a night's verdict in a job of its own, which ends with the verdict's exit code."""
    try:
        code = conclude(Night.read(Path(path), date.fromisoformat(night)), confirmed=confirmed, is_job=True)
    except (suite.BadSuite, RunDamaged, trust.NotTrusted) as error:
        print(f"no verdict: {error}", file=sys.stderr)
        code = NO_VERDICT
    except Exception as error:  # noqa: BLE001 an exit code of 1 would say that the night failed
        traceback.print_exc()
        code = NO_VERDICT
        with contextlib.suppress(Exception):
            _note_failure(Night.read(Path(path), date.fromisoformat(night)), error, confirmed=confirmed)
    sys.exit(code)


def _note_failure(night: Night, error: Exception, *, confirmed: bool) -> None:
    """Record what ended a verdict job, for which another one follows; the last one writes that there is no verdict."""
    line = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    night.record.append("failed", error=line)
    if len(night.record.events("failed")) >= _MOST_FAILURES:
        try:
            _end(night, "NO VERDICT", _no_verdict(night, line), [], [], NO_VERDICT, confirmed=confirmed)
        finally:  # where the page cannot be written, a further job could not write it either
            night.verdict_jobs(confirmed=confirmed).dismiss_successors()


def conclude(night: Night, *, confirmed: bool = False, is_job: bool = False) -> int:
    """Print a night's verdict and write it to `nights/<date>.md`; returns its exit code.

    What is unfinished is submitted again first, and suspicious runs are launched again; a second verdict follows, and
    the exit code is 0.
    """
    record, jobs = night.record, night.verdict_jobs(confirmed=confirmed)
    if is_job and record.last("concluded"):
        print("the night has its verdict already")
        return 0
    record.append("started", job=client.this_job())
    if is_job:
        jobs.ensure_successor()
    runs = night.runs()
    found = recovery.recover(runs, record, night.suite.nightly.recoveries)
    for name, tasks in found.resumed.items():
        print(f"{name}: {counted(tasks, 'task')} submitted again")
    if found.waiting_for:
        return _hand_on(record, *jobs.behind(found.waiting_for))
    gaps = [*found.gaps, *recovery.complete(runs, night.database, record)]
    try:
        verdict = night.judged()
    except after.WarehouseFailed as error:
        return _end(night, "NO VERDICT", _no_verdict(night, str(error)), gaps, [], NO_VERDICT, confirmed=confirmed)
    notes: list[str] = []
    text, suspicious = after.verdict_as(verdict, "markdown"), {cell.run_id for cell in verdict.to_confirm}
    to_confirm = [number for number, name in record.names("launched").items() if name in suspicious]
    if to_confirm and not confirmed:
        try:
            night.write_page(text, gaps, notes)
            launched = launch(night, to_confirm)
        except (client.SlurmError, ValueError, OSError) as error:
            notes.append(f"suspicious runs could not be launched again: {error}")
        else:
            if launched.verdict_job is not None:
                return _hand_on(record, launched.verdict_job, launched.notice)
            record.append("handed on", job=None)
            return conclude(night, confirmed=True, is_job=is_job)
    after.print_verdict(verdict)
    return _end(night, verdict.verdict, text, gaps, notes, verdict.exit_code, confirmed=confirmed)


def _no_verdict(night: Night, reason: str) -> str:
    """Return the page of a night on which no verdict was possible, which is printed too."""
    text = f"**NO VERDICT: night of {night.day}**\n\n{reason}\n"
    print(text)
    return text


def _end(
    night: Night, verdict: str, text: str, gaps: Sequence[Gap], notes: Sequence[str], code: int, *, confirmed: bool
) -> int:
    """Write the page and return the exit code. What died in between is done again by a successor."""
    night.write_page(text, gaps, notes)
    for line in (_partial(gaps), *map(str, gaps), *notes):
        if line:
            print(line)
    night.record.append("concluded", verdict=verdict, exit_code=code, missing=sum(gap.missing for gap in gaps))
    if client.this_job() is not None:
        night.verdict_jobs(confirmed=confirmed).dismiss_successors()
    print(f"{verdict}: {night.page}", flush=True)
    return code


def _hand_on(record: NightRecord, job: str, notice: str) -> int:
    record.append("handed on", job=job)
    print(f"no verdict yet: the verdict is job {job}{notice}", flush=True)
    return 0


def _partial(gaps: Sequence[Gap]) -> str:
    """Return one line that says that a night is partial; empty where it is whole."""
    if not gaps:
        return ""
    runs, missing = counted(len({gap.run for gap in gaps}), "run"), sum(gap.missing for gap in gaps)
    is_any_unreadable = any(not gap.planned for gap in gaps)
    if is_any_unreadable and not missing:
        return f"PARTIAL NIGHT: {runs} cannot be read or never began"
    samples = f"{counted(missing, 'sample')} of {runs} {'is' if missing == 1 else 'are'} missing"
    return f"PARTIAL NIGHT: {samples}{', and runs that cannot be read or never began' * is_any_unreadable}"


def _recoveries(record: NightRecord) -> Iterator[str]:
    """Yield one line for everything that the night did to become whole."""
    for event in record.events():
        at = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M} UTC"
        if event["event"] == "recovered":
            yield f"{at}: unfinished shards of {', '.join(sorted(event['work']))} were submitted again"
        elif event["event"] == "grading":
            yield f"{at}: {event['run']} was graded and loaded by the verdict job, because its own job had not"
    starts = len(record.events("started"))
    expected = 1 + len(record.events("handed on"))
    if starts > expected:
        yield f"the verdict job was started again {counted(starts - expected, 'time')} after it had died"


def _escaped(line: str) -> str:
    return "".join(character for character in line if character.isprintable()).translate(_ESCAPED)


@dataclass(frozen=True)
class VerdictJobs:
    """The verdict jobs of one night."""

    folder: Path
    """The folder of the night's page, record and logs."""
    name: str
    record: NightRecord
    options: Mapping[str, Any]
    """Options of sbatch as recorded, of which the job has what a job that grades has (`profiles.finalizer_parameters`).

    They are used only where this user trusts them, as whoever launched the night does.
    """
    arguments: tuple[str, ...]
    """Those of `give_verdict`."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Options of the suite for these jobs, which go before."""

    def behind(self, jobs: Sequence[str]) -> tuple[str, str]:
        """Have a verdict after these jobs; returns the verdict job's id, and a notice that says what became of others.

        One that is queued is kept if it waits for all of them, and replaced otherwise. Raises SlurmError.
        """
        with RunFolder(self.folder).lock("submission"):
            queued = self._others()
            waiting = [task for task in queued if not task.is_held and task.state == "PENDING" and not task.colleague]
            last = self.record.verdict_job([task.job_id for task in waiting])
            if last and not set(jobs) - set(last["after"]):
                return last["job"], ", which was waiting for them already"
            running = [task.job_id for task in queued if task.state != "PENDING"]
            job = self._submit({"dependency": f"afterany:{':'.join([*jobs, *running])}"} if [*jobs, *running] else {})
            self.record.append("verdict job", job=job, after=list(jobs))
            # A colleague's, which only they can cancel, finds the verdict and judges again.
            client.cancel_tasks([task for task in queued if task.state == "PENDING" and not task.colleague])
            self._submit_successor(job)
            notice = f" (instead of job {last['job']}, which did not wait for all of them)" if last else ""
            return job, notice + (f"; job {', '.join(running)} was giving one" if running else "")

    def ensure_successor(self) -> None:
        """Have a job that takes this one's place if it dies, unless there is one; this is one of the verdict jobs."""
        job = client.this_job()
        if job is None or len(self.record.events("started")) >= _MOST_STARTS:
            return
        with contextlib.suppress(client.SlurmError):
            if not any(task.state == "PENDING" for task in self._others()):
                self._submit_successor(job)

    def dismiss_successors(self) -> None:
        """Cancel what would take this job's place; this job is done, whatever its exit code is."""
        with contextlib.suppress(client.SlurmError):
            client.cancel_tasks([task for task in self._others() if task.state == "PENDING"])

    def _others(self) -> list[client.Task]:
        own = client.this_job()
        return [task for task in client.queue([self.name]) if task.job_id != own]

    def _submit_successor(self, job: str) -> None:
        try:
            self._submit({"dependency": f"afternotok:{job}"}, **{"kill-on-invalid-dep": "yes"})
        except (client.SlurmError, trust.NotTrusted) as error:
            print(f"no job takes the place of verdict job {job} if it dies: {error}", flush=True)

    def _submit(self, dependency: Mapping[str, str], **further: str) -> str:
        trust.require(RunFolder(self.folder), trust.options(self.options))
        own = {**self.options.get(profiles.FINALIZE, {}), **self.own}
        parameters = profiles.finalizer_parameters({**self.options, profiles.FINALIZE: own})
        passed = {key: value for key, value in parameters["additional_parameters"].items() if key != "dependency"}
        parameters |= {"additional_parameters": {**passed, **further}, **dependency}
        parameters["time"] = max(_LEAST_MINUTES, int(parameters["time"]))
        return submit.submit_alone(self.folder, self.name, parameters, "judge", *self.arguments)
