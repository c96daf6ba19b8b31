"""A failure on this machine names exception, place and log, in the launch, `jobs status` and `jobs logs` alike."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from jobs import __main__ as commands
from jobs.outcome import LaunchFailed
from jobs.watch.exit_reasons import explained
from jobs.watch.status import status
from tests.harness.test_launch import launch
from tests.jobs.runs import plan

METHOD = """
from dataclasses import dataclass

from harness.chain import Chain
from harness.methods import Method, Model


@dataclass(frozen=True)
class Rule(Method):
    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        {}["verdict"]
"""
NO_OUTPUT = LaunchFailed("")


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_a_method_that_raises_is_named_with_line_and_log_everywhere(tmp_path: Path, cluster: str) -> None:
    (tmp_path / "rule.py").write_text(METHOD)
    flags = ["--dataset", "demo", "--limit", "2", "--engine", "scripted", "--cluster", cluster]
    ended = launch("--method", "rule.py:Rule", *flags, cwd=tmp_path)
    [log] = [
        path for path in tmp_path.glob("runs/*/logs/jobs/*") if path.stat().st_size and path.suffix in {".err", ".log"}
    ]
    why = "the method raised KeyError: 'verdict' (rule.py:11)"
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        f"error: 1 of 1 workers failed: {why}. Log: {log.relative_to(tmp_path)}. "
    )
    assert "Pdb" not in ended.stdout + ended.stderr
    run = str(log.parents[2])
    shown = CliRunner().invoke(commands.main, ["status", run], env={"COLUMNS": "80"}).output
    assert shown.splitlines()[-1] == f"log: {log}"
    assert "KeyError: 'verdict'" in shown
    printed = CliRunner().invoke(commands.main, ["logs", run]).output
    assert printed.splitlines()[-2:] == [f"== worker on this machine: {why}", f"== log: {log}"]


def test_a_worker_that_was_killed_is_named_in_its_log(tmp_path: Path) -> None:
    run = plan(tmp_path)
    log = run.logs_dir / "jobs" / "7_0_log.err"
    log.parent.mkdir(parents=True)
    why = "ended without an error message: killed, canceled or out of memory"
    assert explained(run, NO_OUTPUT, log) == f"{why} (dmesg may say more). Log: {log}"
    [shard] = status(run).shards
    assert (shard.last_error, shard.log) == (why, str(log))


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_worker_that_could_not_write_its_error_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 20, 1 << 20, 4096))
    said = explained(run, NO_OUTPUT, run.logs_dir / "jobs" / "7_0_log.err")
    assert said.startswith("the disk is full: 4 KiB free")
