"""The Slurm checks of `harness.doctor`: each problem is one line that names the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checks.finding import Question
from jobs.submission.on_node import check_slurm
from tests.harness.checks.question import asked
from tests.jobs.slurm.fake import SACCT_DOWN, FakeSlurm

UP = "case $1 in ping) echo 'Slurmctld(primary) at c is UP';; show) echo 'MaxArraySize = 101';; esac"


def question(**fields: Any) -> Question:
    return asked(engine="scripted", output="/runs", **{"cluster": "slurm", **fields})


def statuses(question: Question) -> dict[str, tuple[str, str]]:
    return {check.subject: (check.status, check.text) for check in check_slurm(question)}


@pytest.fixture
def cluster(slurm: FakeSlurm) -> FakeSlurm:
    slurm.prints(sbatch="slurm 24.11.3", squeue="", sacct="", scancel="")
    slurm.answers(scontrol=UP)
    return slurm


def test_a_cluster_that_answers_is_ok(cluster: FakeSlurm) -> None:
    sbatch = {"partition": "gpu", "exclusive": True, "setup": ["x"], "gpu-memory": "80GB"}
    answers = statuses(question(sbatch=sbatch))
    assert {status for status, _ in answers.values()} == {"ok"}
    tested = cluster.calls()[-1]
    assert "--test-only --time=240 --partition=gpu --exclusive --requeue --wrap=true" in tested


def test_options_that_sbatch_would_reject_are_a_failure(cluster: FakeSlurm) -> None:
    cluster.answers(sbatch="echo 'sbatch: error: invalid partition specified: moon' >&2; exit 1")
    status, text = statuses(question(sbatch={"partition": "moon"}))["sbatch"]
    assert status == "failure"
    assert "moon; see --partition" in text


def test_accounting_that_is_down_or_not_installed_is_a_warning(cluster: FakeSlurm) -> None:
    cluster.answers(sacct=SACCT_DOWN)
    status, text = statuses(question())["slurm accounting"]
    assert status == "warning"
    assert text.startswith("sacct: ")
    (cluster.folder / "sacct").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(cluster.folder))  # and nothing else, whatever this machine has installed
        cluster_statuses = statuses(question(cluster="local"))
    assert cluster_statuses["slurm accounting"][0] == "warning", cluster_statuses
