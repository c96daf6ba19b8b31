"""A night: a suite launched with the night's date as its tag, and one verdict on it once every run has ended.

Nothing polls: the verdict is a job that Slurm starts after the last jobs of the runs. If it finds something suspicious,
it launches those runs again with another tag, and a second verdict after them decides.

    <output>/nights/<date>.md       the verdict
    <output>/nights/<date>.json     which run folder each launch of the suite has
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from jobs import suite
from jobs.after import warehouse
from jobs.run import shared_jobs, submissions
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit
from jobs.suite import Suite

_CONFIRMING = ".confirm"
"""The suffix of the tag of runs that confirm a suspicion."""
_VERDICT_MINUTES = 60


class NightFailed(RuntimeError):
    """The verdict is FAIL; the message names its file."""


@dataclass(frozen=True)
class Night:
    """What was launched for a night."""

    runs: dict[int, RunFolder]
    """The run folders by number of the launch in the suite."""
    verdict_job: str | None
    """The Slurm job that will give the verdict; None if the runs ran on this machine."""


def tonight() -> date:
    """Return the date of the night that begins now: today in UTC."""
    return datetime.now(UTC).date()


def launch(path: Path, night: date, only: Sequence[int] | None = None) -> Night:
    """Launch a suite for a night; launched again, it resumes. `only`: the launches to confirm, by number.

    Raises suite.BadSuite and what planning and starting a launch raise (see `jobs.launching`).
    """
    nightly_suite = suite.read(path)
    tag = night.isoformat() + _CONFIRMING * (only is not None)
    numbers = range(len(nightly_suite.launches)) if only is None else only
    runs = dict(zip(numbers, suite.launch(nightly_suite, tag, numbers), strict=True))
    if only is None:
        names = {number: run.path.name for number, run in runs.items()}
        write_atomically(_folder(nightly_suite) / f"{tag}.json", json.dumps(names, indent=2).encode())
    return Night(runs, _submit_verdict(nightly_suite, path, tag, runs))


def conclude(path: str, night: str, confirmed: bool = False) -> None:
    """Print a night's verdict and write it to `nights/<date>.md`.

    Suspicious runs are launched again, and a second verdict follows. Raises NightFailed if the verdict is FAIL, so
    that the job fails, and WarehouseFailed.
    """
    snapshot.require()
    nightly_suite, evening = suite.read(Path(path)), date.fromisoformat(night)
    verdict = warehouse.judged(nightly_suite.output / "warehouse.duckdb", evening)
    report = _folder(nightly_suite) / f"{night}.md"
    warehouse.write_verdict(verdict, report)
    suspicious = {cell.run_id for cell in verdict.to_confirm}
    names = json.loads((_folder(nightly_suite) / f"{night}.json").read_bytes())
    to_confirm = [int(number) for number, name in names.items() if name in suspicious]
    if to_confirm and not confirmed:
        if launch(Path(path), evening, to_confirm).verdict_job is None:
            conclude(path, night, confirmed=True)
    elif verdict.verdict == "FAIL":
        raise NightFailed(f"{report}: FAIL")


def _submit_verdict(nightly_suite: Suite, path: Path, tag: str, runs: dict[int, RunFolder]) -> str | None:
    submitted = [(run, history[-1]) for run in runs.values() if (history := submissions.read(run))]
    if not submitted:
        return None
    name = f"{nightly_suite.name}.{tag}.verdict"
    finalizers = [shared_jobs.finalizer_of(run, last) for run, last in submitted]
    queued = client.queue([name, *finalizers])
    if verdict_jobs := [task.job_id for task in queued if task.name == name]:
        return verdict_jobs[0]
    parameters = {**profiles.light(profiles.submitit_parameters(submitted[-1][1].options)), "time": _VERDICT_MINUTES}
    if queued:
        parameters["dependency"] = f"afterany:{':'.join(task.job_id for task in queued)}"
    night, confirmed = tag.removesuffix(_CONFIRMING), tag.endswith(_CONFIRMING)
    return submit.submit_call(
        _folder(nightly_suite), name, parameters, conclude, str(path.resolve()), night, *([True] if confirmed else [])
    )


def _folder(nightly_suite: Suite) -> Path:
    return nightly_suite.output.resolve() / "nights"
