"""Slurm's cron launches a night: its runs are jobs, and the verdict is a job that depends on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.slurm.conftest import ROOT, Cluster, slurm_output, wait_for

pytestmark = pytest.mark.slurm
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "slurm"
dataset = "demo"
limit = 10
samples = 1
shards = 2
mem = "1G"

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""


@pytest.fixture
def scrontab(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Install a suite that Slurm launches every minute, and return its file."""
    suite = tmp_path / "cron.toml"
    suite.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    line = f"cd {ROOT} && SLURM_CONF={cluster.conf} {sys.executable} -m jobs nightly --suite {suite} --date 2026-01-01"
    table = tmp_path / "scrontab"
    options = [line for line in (ROOT / "slurm" / "nightly.scrontab").read_text().splitlines() if "#SCRON" in line]
    table.write_text("\n".join([*options, f"#SCRON --output={tmp_path}/cron-%j.log", f"* * * * * {line}\n"]))
    subprocess.run(["scrontab", str(table)], check=True)
    yield suite
    subprocess.run(["scrontab", "-r"], check=True)


_FREQUENT_LOOKS = "from jobs import drive; drive.LOOK_SECONDS = 2.0; from jobs.__main__ import main; main()"
"""`python -m jobs` that looks more often for the verdict that it waits for."""


def test_slurms_cron_launches_a_night_and_whoever_waits_for_it_gets_the_verdict(scrontab: Path, tmp_path: Path) -> None:
    assert "harness-nightly" in slurm_output("squeue", "-h", "-o", "%j")
    name = "cron.2026-01-01.verdict"
    try:
        wait_for(lambda: name in slurm_output("squeue", "-h", "-o", "%j"), "the verdict's job", 180)
    except AssertionError:
        logs = "".join(path.read_text() for path in tmp_path.glob("cron-*.log"))
        raise AssertionError(f"no verdict's job; cron's log: {logs}") from None
    file = tmp_path / "night.xml"
    command = [sys.executable, "-c", _FREQUENT_LOOKS, "nightly", "--suite", str(scrontab), "--date", "2026-01-01"]
    done = subprocess.run(
        [*command, "--junit", str(file)], capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )
    assert done.returncode == 4, done.stdout + done.stderr
    [found] = JUnitXml.fromfile(str(file))
    assert [case.is_skipped for case in found] == [True, True]
    page = (tmp_path / "runs" / "nights" / "2026-01-01.md").read_text()
    assert page.startswith("**INCONCLUSIVE: night of 2026-01-01, 2 cells")
    jobs = slurm_output("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "jobname,state").splitlines()
    assert jobs.count(f"{name}|FAILED") == 1, "the night was launched twice, and judged once"
