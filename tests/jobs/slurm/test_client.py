"""Reading of Slurm's answers, and reports of its failures in one line each, also by `harness.doctor`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from harness.checks.finding import Question
from jobs.slurm import client
from jobs.slurm.client import SlurmError, Task, resolve
from jobs.submission.on_node import check_slurm
from tests.harness.checks.question import asked
from tests.jobs.slurm.fake import SACCT_DOWN, SQUEUE_DOWN, FakeSlurm

HELD = "launch failed requeued held"


def test_the_queue_lists_array_tasks_and_single_jobs(slurm: FakeSlurm) -> None:
    slurm.prints(
        squeue=f"""run.0|3|41|40|RUNNING|n1|None
run.0|4|42|40|PENDING||{HELD}
run.0.finalize|N/A|43|43|PENDING||Dependency"""
    )
    running, held, finalizer = client.queue(["run.0", "run.0.finalize"])
    assert running == Task("run.0", 3, "40_3", "RUNNING", "n1", "None")
    assert held == Task("run.0", 4, "40_4", "PENDING", "", HELD)
    assert finalizer == Task("run.0.finalize", 0, "43", "PENDING", "", "Dependency")
    assert [task.is_active for task in (running, held, finalizer)] == [True, False, True]
    assert held.is_held
    assert "--name=run.0,run.0.finalize" in slurm.calls()[0]
    assert len(slurm.calls()) == 1, "one call for all jobs"


def test_accounting_lists_every_start_with_its_gpu_hours(slurm: FakeSlurm) -> None:
    slurm.prints(
        sacct="""run.0|40_0|REQUEUED|n1|1800|billing=4,cpu=4,gres/gpu=2,node=1
run.0|40_0|CANCELLED by 1000|n2|3600|billing=4,cpu=4,gres/gpu=2,node=1|0:15
run.0|40_[1-9]|PENDING|None assigned|||0:0
run.0.finalize|41|FAILED|n1|60|billing=1,cpu=1,node=1|7:0"""
    )
    submitted_at = datetime(2026, 11, 20, 0, 30).timestamp()  # noqa: DTZ001 Slurm's is local
    tasks = client.accounts(["40", "41"], submitted_at)
    assert [(task.job_id, task.state, task.gpu_hours) for task in tasks] == [
        ("40_0", "REQUEUED", 1.0),
        ("40_0", "CANCELLED", 2.0),
        ("41", "FAILED", 0.0),
    ]
    assert [(task.exit_code, task.exit_signal) for task in tasks] == [(0, 0), (0, 15), (7, 0)]
    assert client.latest(tasks)["run.0", 0].node == "n2"
    assert "--jobs=40,41" in slurm.calls()[0]
    assert "-S 2026-11-19" in slurm.calls()[0], "from the day of the submission on; clocks may differ by an hour"


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("billing=4,cpu=4,gres/gpu:a100=4,gres/gpu=4,node=1", 4),
        ("billing=4,cpu=4,gres/gpu:a100=4,node=1", 4),
        ("cpu=4,gres/gpu:a100=4,gres/gpu:h100=2,node=2", 6),
        ("cpu=4,gres/shard=3", 0),
    ],
)
def test_gpus_are_counted_once_however_a_site_accounts_for_them(slurm: FakeSlurm, resources: str, gpus: int) -> None:
    slurm.prints(sacct=f"run.0|40_0|COMPLETED|n1|3600|{resources}")
    [task] = client.accounts(["40"], 0.0)
    assert task.gpus == gpus


def test_an_error_is_the_last_line_of_what_the_command_prints(slurm: FakeSlurm) -> None:
    slurm.answers(sacct=SACCT_DOWN, squeue=SQUEUE_DOWN, scancel="exit 3")
    with pytest.raises(SlurmError) as error:
        client.accounts(["40"], 0.0)
    assert str(error.value) == "sacct: Problem talking to the database: Connection refused"
    with pytest.raises(SlurmError, match=r"^squeue: slurm_load_jobs error: Unable to contact slurm controller"):
        client.queue(["run.0"])
    with pytest.raises(SlurmError, match=r"^scancel: failed without a message$"):
        client.cancel(["run.0"])


def test_a_command_that_is_missing_or_hangs_is_an_error(slurm: FakeSlurm) -> None:
    with pytest.raises(SlurmError, match=r"^no-such-command: No such file or directory$"):
        client.ask("no-such-command")
    slurm.answers(squeue="exec sleep 60")
    started = time.monotonic()
    with pytest.raises(SlurmError, match=r"^squeue: no answer within 0.2 s$"):
        client.ask("squeue", seconds=0.2)
    assert time.monotonic() - started < 30


PING_DOWN = "echo 'Slurmctld(primary) at c is DOWN'; echo '** RESTORE SLURMCTLD DAEMON TO SERVICE **'; exit 1"
PING_WITHOUT_CLUSTER = """cat >&2 <<'EOF'
scontrol: error: fetch_config: DNS SRV lookup failed
scontrol: fatal: Could not establish a configuration source
EOF
exit 1"""


def test_a_run_goes_to_slurm_unless_no_cluster_is_configured(slurm: FakeSlurm) -> None:
    slurm.prints(sbatch="", scontrol="Slurmctld(primary) at c is UP")
    assert resolve("auto") == "slurm"
    slurm.answers(sbatch="", scontrol=PING_WITHOUT_CLUSTER)
    assert resolve("auto") == "local"


@pytest.mark.parametrize(
    ("ping", "why"),
    [
        (PING_DOWN, "scontrol: Slurmctld(primary) at c is DOWN"),
        ("echo Slurmctld at c is DOWN", "scontrol ping: Slurmctld at c is DOWN"),
        ("exit 1", "scontrol: failed without a message"),
    ],
)
def test_a_controller_that_is_away_for_a_moment_sends_no_run_to_the_login_node(
    slurm: FakeSlurm, ping: str, why: str
) -> None:
    slurm.answers(sbatch="", scontrol=ping)
    with pytest.raises(ValueError, match=r"^--cluster auto: .*does not respond") as stopped:
        resolve("auto")
    assert f"({why})" in str(stopped.value)
    assert [resolve(cluster) for cluster in ("slurm", "local", "debug")] == ["slurm", "local", "debug"]


def test_the_end_of_a_job_is_local_time_and_may_be_missing(slurm: FakeSlurm) -> None:
    slurm.prints(squeue="2026-11-23T04:05:06")
    assert client.end_time("40_1") == datetime(2026, 11, 23, 4, 5, 6).timestamp()  # noqa: DTZ001 Slurm's is local
    slurm.prints(squeue="N/A")
    assert client.end_time("40_1") is None


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
