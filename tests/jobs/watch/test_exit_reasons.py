"""A failure on this machine names exception, place and log, in the launch, `jobs status` and `jobs logs` alike."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from harness.launch import main as launch
from jobs import __main__ as commands
from jobs.outcome import LaunchFailed
from jobs.watch.exit_reasons import explained
from jobs.watch.status import status
from tests.jobs.runs import plan
from tests.own_methods import no_methods

__all__ = ["no_methods"]
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


@pytest.mark.usefixtures("no_methods")
def test_a_method_that_raises_is_named_with_line_and_log_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rule.py").write_text(METHOD)
    flags = ["--dataset", "demo", "--limit", "2", "--engine", "scripted", "--cluster", "local"]
    ended = CliRunner().invoke(launch, ["--method", "rule.py:Rule", *flags])
    [log] = [path for path in Path().glob("runs/*/logs/jobs/*.err") if path.stat().st_size]
    run = str(log.parents[2])
    shown = CliRunner().invoke(commands.main, ["status", run], env={"COLUMNS": "80"}).output
    printed = CliRunner().invoke(commands.main, ["logs", run]).output
    assert ended.exit_code == 1
    for line, place in ((ended.stderr.splitlines()[-1], "(rule.py:11)"), (shown, ""), (printed, "(rule.py:11)")):
        assert "KeyError: 'verdict'" in line
        assert str(log) in line
        assert place in line


def test_a_worker_that_was_killed_is_named_in_its_log(tmp_path: Path) -> None:
    run = plan(tmp_path)
    log = run.logs_dir / "jobs" / "7_0_log.err"
    log.parent.mkdir(parents=True)
    why, _, more = explained(run, NO_OUTPUT, log).partition("; see")
    assert more.endswith(f"Log: {log}")
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
    assert "4 KiB" in explained(run, NO_OUTPUT, run.logs_dir / "jobs" / "7_0_log.err")
