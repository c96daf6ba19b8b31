"""One verdict job waits for what is running now, and one takes its place if it dies."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from jobs.nightly import Night
from jobs.recovery import NightRecord
from jobs.run import trust
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.submission import submit
from tests.jobs.runs import write_suite
from tests.jobs.slurm.fake import FakeSlurm

NAME = "small.2026-01-01.verdict"


class Cluster:
    """What was submitted: ids from 51 on, each with its dependency."""

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, str | None] = {}
        self.parameters: list[dict[str, Any]] = []
        mails = '[nightly.slurm]\nmail-type = "FAIL"\nmail-user = "me@example.org"\n'
        file = write_suite(folder, {"method": "vanilla"}, tables=mails)
        self.night = Night.read(file, date(2026, 1, 1))
        options = {"partition": "gpu", "gpus-per-node": 2, "dependency": "singleton", "mail-type": "END", "time": 30}
        trust.remember(RunFolder(self.night.folder), trust.options(options))
        self.launched(options)

    def launched(self, options: dict[str, Any]) -> None:
        asked = {"options": options, "shards_per_task": 1, "workers_per_task": 1}
        self.night.record.append("launched", runs={}, requests={"RUN": asked})

    def submit_alone(self, folder: Path, name: str, parameters: dict[str, Any], *task: str) -> str:
        self.parameters.append(parameters)
        job = str(51 + len(self.jobs))
        self.jobs[job] = parameters.get("dependency")
        return job


@pytest.fixture
def cluster(tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    slurm.prints(squeue="", scancel="")
    submitted = Cluster(tmp_path)
    monkeypatch.setattr(submit, "submit_alone", submitted.submit_alone)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return submitted


def queued(*jobs: str) -> str:
    return "\n".join(f"{NAME}|N/A|{job}|{job}|PENDING||Dependency" for job in jobs)


def test_the_job_is_light_mails_whom_the_suite_names_and_a_second_one_takes_its_place(cluster: Cluster) -> None:
    assert cluster.night.submit_verdict(["7", "9"]) == "51"
    assert cluster.jobs == {"51": "afterany:7:9", "52": "afternotok:51"}
    first, second = cluster.parameters
    mails = {"mail-type": "FAIL", "mail-user": "me@example.org"}
    passed = {"requeue": True, "partition": "gpu", "mem": "4G", **mails}
    assert first["additional_parameters"] == passed, "no GPUs, and no dependency but its own"
    assert first["time"] == 60, "the least: it may have to grade"
    assert second["additional_parameters"] == {**passed, "kill-on-invalid-dep": "yes"}


def test_launched_again_a_job_that_waits_is_replaced(cluster: Cluster, slurm: FakeSlurm) -> None:
    cluster.night.submit_verdict(["7"])
    slurm.prints(squeue=queued("51", "52"), scancel="")
    assert cluster.night.submit_verdict(["7", "12"]) == "53"
    assert cluster.jobs["53"] == "afterany:7:12"
    assert "scancel 51 52" in slurm.calls()


def test_a_verdict_that_is_being_given_is_waited_for(cluster: Cluster, slurm: FakeSlurm) -> None:
    slurm.prints(squeue=f"{NAME}|N/A|51|51|RUNNING|n1|None", scancel="")
    assert cluster.night.submit_verdict(["12"]) == "51"
    assert cluster.jobs["51"] == "afterany:12:51"


def test_a_job_that_took_anothers_place_has_one_too(
    cluster: Cluster, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "52")
    slurm.prints(squeue=f"{NAME}|N/A|52|52|RUNNING|n1|None")
    cluster.night.ensure_successor()
    assert cluster.jobs == {"51": "afternotok:52"}
    slurm.prints(squeue=f"{NAME}|N/A|52|52|RUNNING|n1|None\n{queued('51')}", scancel="")
    cluster.night.ensure_successor()
    assert len(cluster.jobs) == 1
    cluster.night.dismiss_successors()
    assert slurm.calls()[-1] == "scancel 51", "whatever the exit code says, this verdict stands"


def test_verdict_jobs_that_die_for_ever_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "52")
    for _ in range(50):
        cluster.night.record.append("started", job="52")
    cluster.night.ensure_successor()
    assert cluster.jobs == {}


@pytest.mark.parametrize(
    "harmful", [{"setup": ["touch mark"]}, {"python": "/tmp/python3"}, {"finalize": {"setup": "x"}}]
)
def test_options_that_somebody_else_recorded_are_in_no_verdict_job(
    harmful: dict[str, Any], cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.launched(harmful)
    with pytest.raises(trust.NotTrusted, match="options of sbatch that you did not provide"):
        cluster.night.submit_verdict(["7"])
    monkeypatch.setenv("SLURM_JOB_ID", "52")
    cluster.night.ensure_successor()
    assert capsys.readouterr().out.count("\n") == 1
    assert cluster.jobs == {}


@pytest.mark.parametrize("name", ["/home/victim/private/RUN", "../RUN", "..", "", "a\nb", "it's", 3])
def test_a_record_names_no_folder_elsewhere(name: Any, tmp_path: Path) -> None:
    record = NightRecord(tmp_path / "2026-01-01.jsonl")
    record.append("launched", runs={"9": name}, requests={})
    with pytest.raises(RunDamaged, match="is not the name of a run folder") as damaged:
        record.names("launched")
    assert "\n" not in str(damaged.value)


def test_where_no_second_job_is_taken_the_verdict_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_only(*arguments: Any) -> str:
        if cluster.jobs:
            raise client.SlurmRejected("QOSMaxSubmitJobPerUserLimit")
        return cluster.submit_alone(*arguments)

    monkeypatch.setattr(submit, "submit_alone", one_only)
    assert cluster.night.submit_verdict(["7"]) == "51"
    assert "QOSMaxSubmit" in capsys.readouterr().out
