"""A night: a suite launched under the night's date as its tag, and one verdict on it when everything has ended.

Nothing polls: the verdict is a job that Slurm starts behind the last jobs of the runs. Where it finds something
suspicious it launches those runs once more under another tag, and a second verdict behind them decides.

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
from jobs.run import submissions
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit
from jobs.suite import Suite

_CONFIRMING = ".confirm"
"""Ends the tag of the runs that confirm a suspicion."""
_VERDICT_MINUTES = 60


class NightFailed(RuntimeError):
    """The verdict is FAIL; the message names its file."""


@dataclass(frozen=True)
class Night:
    """What was launched for a night."""

    runs: dict[int, RunFolder]
    """By their number in the suite."""
    verdict_job: str | None
    """The Slurm job that will give the verdict; None where the runs have ended here."""


def tonight() -> date:
    """The night that begins now: today's date in UTC."""
    return datetime.now(UTC).date()


def launch(path: Path, night: date, only: Sequence[int] | None = None) -> Night:
    """Launch a suite for a night; typed again, it goes on where it was cut. `only`: launches to confirm, by number.

    Raises suite.BadSuite and what planning and starting a launch raise (see `jobs.launching`).
    """
    chosen = suite.read(path)
    tag = night.isoformat() + _CONFIRMING * (only is not None)
    numbers = range(len(chosen.launches)) if only is None else only
    runs = dict(zip(numbers, suite.launch(chosen, tag, numbers), strict=True))
    if only is None:
        names = {number: run.path.name for number, run in runs.items()}
        write_atomically(_folder(chosen) / f"{tag}.json", json.dumps(names, indent=2).encode())
    return Night(runs, _submit_verdict(chosen, path, tag, runs))


def conclude(path: str, night: str, confirmed: bool = False) -> None:
    """Give a night's verdict: printed, and written to `nights/<date>.md`.

    What is suspicious is launched once more, and the verdict given again behind that. Raises NightFailed at FAIL, so
    that the job fails, and WarehouseFailed.
    """
    snapshot.require()
    chosen, evening = suite.read(Path(path)), date.fromisoformat(night)
    verdict = warehouse.judged(chosen.output / "warehouse.duckdb", evening)
    report = _folder(chosen) / f"{night}.md"
    warehouse.write_verdict(verdict, report)
    suspicious = {cell.run_id for cell in verdict.to_confirm}
    launched = json.loads((_folder(chosen) / f"{night}.json").read_bytes())
    again = [int(number) for number, name in launched.items() if name in suspicious]
    if again and not confirmed:
        if launch(Path(path), evening, again).verdict_job is None:
            conclude(path, night, confirmed=True)
    elif verdict.verdict == "FAIL":
        raise NightFailed(f"{report}: FAIL")


def _submit_verdict(chosen: Suite, path: Path, tag: str, runs: dict[int, RunFolder]) -> str | None:
    last = [found[-1] for run in runs.values() if (found := submissions.read(run))]
    if not last:
        return None
    name = f"{chosen.name}.{tag}.verdict"
    finalizers = [submissions.finalizer_name(submission.name) for submission in last]
    queued = client.queue([name, *finalizers])
    if there := [task.job_id for task in queued if task.name == name]:
        return there[0]
    parameters = {**profiles.light(profiles.submitit_parameters(last[-1].options)), "time": _VERDICT_MINUTES}
    if queued:
        parameters["dependency"] = f"afterany:{':'.join(task.job_id for task in queued)}"
    night, confirmed = tag.removesuffix(_CONFIRMING), tag.endswith(_CONFIRMING)
    return submit.submit_call(
        _folder(chosen), name, parameters, conclude, str(path.resolve()), night, *([True] if confirmed else [])
    )


def _folder(chosen: Suite) -> Path:
    return chosen.output.resolve() / "nights"
