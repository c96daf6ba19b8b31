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
    suite = tmp_path / "small.toml"
    suite.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    line = f"cd {ROOT} && SLURM_CONF={cluster.conf} {sys.executable} -m jobs nightly --suite {suite} --date 2026-01-01"
    table = tmp_path / "scrontab"
    options = [line for line in (ROOT / "slurm" / "nightly.scrontab").read_text().splitlines() if "#SCRON" in line]
    table.write_text("\n".join([*options, f"#SCRON --output={tmp_path}/cron-%j.log", f"* * * * * {line}\n"]))
    subprocess.run(["scrontab", str(table)], check=True)
    yield suite
    subprocess.run(["scrontab", "-r"], check=True)


def test_slurms_cron_launches_a_night_and_a_verdict_follows(scrontab: Path, tmp_path: Path) -> None:
    assert "harness-nightly" in slurm_output("squeue", "-h", "-o", "%j")
    verdict = tmp_path / "runs" / "nights" / "2026-01-01.md"
    try:
        wait_for(verdict.exists, "the verdict", 300)
    except AssertionError:
        logs = "".join(path.read_text() for path in tmp_path.glob("cron-*.log"))
        raise AssertionError(f"no verdict; cron's log: {logs}; {slurm_output('squeue', '-o', '%j %T %r %E')}") from None
    wait_for(lambda: verdict.read_text().startswith("**INCONCLUSIVE: night of 2026-01-01, 2 cells**"), "its content")
    names = slurm_output("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "jobname").split()
    assert "small.2026-01-01.verdict" in names


def test_a_night_that_is_waited_for_ends_with_the_verdict_as_exit_code_and_junit(tmp_path: Path) -> None:
    suite, file = tmp_path / "small.toml", tmp_path / "night.xml"
    suite.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    command = [sys.executable, "-m", "jobs", "nightly", "--suite", str(suite), "--date", "2026-01-01"]
    done = subprocess.run(
        [*command, "--junit", str(file)], capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )
    assert done.returncode == 4, done.stdout + done.stderr
    [found] = JUnitXml.fromfile(str(file))
    assert [case.is_skipped for case in found] == [True, True]
