"""A budget of GPU-hours: refused above the estimate, kept while samples are run, and resumed under a higher one."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click
import pytest
from rich.console import Console

from harness.engine import Role
from harness.engines import factory
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from jobs import costs, launching, nightly, suite
from jobs.nights import recovery
from jobs.run import budget, submissions
from jobs.run.budget import Budget, Meter
from jobs.run.device_time import DeviceTimes
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder, run_folders
from jobs.run.submissions import Submission
from jobs.submission import dispatch
from jobs.timing import folder as timings
from jobs.watch.listing import listed
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, plan, planned_ids
from tests.jobs.slurm.fake import FakeSlurm

FLAGS = ("--method", "vanilla", "--dataset", "demo", "--limit", "4", "--samples", "4", "--engine", "scripted")
SECOND = 1 / 3600
"""One second, in hours."""


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call of a scripted engine in this process take 100 ms."""
    quick = factory._scripted

    def slowly(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = quick(role, settings)
        assert isinstance(engine, ScriptedEngine)
        engine.seconds_per_call = 0.1
        return engine

    monkeypatch.setattr(factory, "_scripted", slowly)


def launched(folder: Path, *further: str) -> tuple[int, RunFolder]:
    """Launch in this process, one sample at a time; returns the exit code and the run."""
    from harness.launch import main

    flags = [*FLAGS, "--output", str(folder), "--cluster", "debug", "--concurrency", "1", *further]
    code = _exit_code(main, flags)
    [run] = run_folders([folder])
    return code, run


def _exit_code(command: click.Command, words: list[str]) -> int:
    try:
        command.main(words)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.usefixtures("slow")
def test_a_run_that_its_budget_stopped_says_so_and_goes_on_under_a_higher_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = str(0.8 * SECOND)
    code, run = launched(tmp_path, "--max-gpu-hours", few)
    told = capsys.readouterr()
    begun = len(finished_ids(run))
    assert (code, 0 < begun < 16) == (1, True)
    assert "STOPPED BY ITS BUDGET: --max-gpu-hours 0.000222222 was used up" in told.out
    assert f"INCOMPLETE RUN: {16 - begun} of 16 samples have not been run" in told.out
    assert "worker-hours without a GPU" in told.err
    assert launched(tmp_path, "--max-gpu-hours", few)[0] == 2, "the same budget is used up"
    assert "its budget is used up" in capsys.readouterr().err
    assert launched(tmp_path, "--max-gpu-hours", "1") == (0, run), "more than the run's own samples say it needs"
    told = capsys.readouterr()
    assert "estimate: " in told.out
    assert f"(history: the {begun} finished samples of this run)" in told.out
    assert "STOPPED" not in told.out
    assert finished_ids(run) == planned_ids(run)
    assert "STOPPED" not in run.results_path.read_text()


@pytest.mark.usefixtures("slow")
def test_without_the_flag_a_stopped_run_goes_on_to_its_end(tmp_path: Path) -> None:
    assert launched(tmp_path, "--max-gpu-hours", str(0.3 * SECOND))[0] == 1
    code, run = launched(tmp_path)
    assert (code, num_unfinished(run), budget.read(run)) == (0, 0, None)


def test_a_launch_without_the_flag_leaves_workers_that_are_at_work_their_budget(tmp_path: Path) -> None:
    code, run = launched(tmp_path, "--max-gpu-hours", "1")
    assert code == 0
    with run.shard_lock(0):
        launched(tmp_path)
        kept = budget.read(run)
    assert kept is not None
    assert kept.max_gpu_hours == 1
    launched(tmp_path)
    assert budget.read(run) is None


@pytest.mark.usefixtures("slow")
def test_the_list_of_runs_says_what_a_budget_stopped(tmp_path: Path) -> None:
    _, run = launched(tmp_path, "--max-gpu-hours", str(0.3 * SECOND))
    assert [one.state for one in listed([run])] == ["stopped by its budget"]
    launched(tmp_path)
    assert [one.state for one in listed([run])] == ["finished"]


def test_a_budget_is_no_part_of_a_runs_identity_and_a_run_without_one_has_no_file(tmp_path: Path) -> None:
    code, run = launched(tmp_path)
    assert (code, budget.path_of(run).exists()) == (0, False)
    assert launched(tmp_path, "--max-gpu-hours", "1") == (0, run)


def test_what_is_left_by_history_is_refused_above_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.launch import main
    from jobs.after import warehouse

    known = budget.Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100")
    monkeypatch.setattr(warehouse, "forecast", lambda *_: known)
    flags = [*FLAGS, "--output", str(tmp_path / "runs"), "--max-gpu-hours", "7.9"]
    for further in ([], ["--dry-run"]):
        with pytest.raises(SystemExit) as refused:
            main.main([*flags, *further])
        assert refused.value.code == 2
        told = capsys.readouterr()
        sentence = "--max-gpu-hours 7.9 is below the estimate: 8.0 GPU-hours left (history: earlier on 4 × H100; 7.0 to"
        assert sentence in told.err
    assert "estimate: 8.0 GPU-hours left" in told.out, "a dry run shows what it is that is refused"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "many"])
def test_a_wrong_budget_is_refused(tmp_path: Path, hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.launch import main

    with pytest.raises(SystemExit) as refused:
        main.main([*FLAGS, "--output", str(tmp_path / "runs"), "--max-gpu-hours", hours])
    assert refused.value.code == 2
    assert "--max-gpu-hours" in capsys.readouterr().err


def attempts_of(run: RunFolder) -> float:
    return Meter(run).used(Budget(1.0)).device_hours


@pytest.mark.usefixtures("slow")
def test_workers_count_what_others_have_used(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=3)
    budget.record(run, Budget(0.5 * SECOND))
    run_shard(str(run.path), 0)
    used, finished = attempts_of(run), len(finished_ids(run))
    assert used >= 0.5 * SECOND
    assert run_shard(str(run.path), 1) == 0, "the engines are not even started"
    assert (attempts_of(run), len(finished_ids(run))) == (used, finished)
    budget.record(run, Budget(1.0))
    for shard in range(3):
        run_shard(str(run.path), shard)
    assert finished_ids(run) == planned_ids(run)
    assert attempts_of(run) > used, "earlier attempts count on"


def test_what_an_attempt_used_counts_although_it_finished_nothing_and_left_no_file(tmp_path: Path) -> None:
    run = plan(tmp_path)
    budget.record(run, Budget(1.0))
    run_shard(str(run.path), 0)
    by_files = attempts_of(run)
    [file] = run.trace_files()
    file.unlink()
    assert not DeviceTimes(run).read()
    assert attempts_of(run) == pytest.approx(by_files, rel=0.2)


@pytest.mark.usefixtures("slow")
def test_samples_that_are_timed_again_count_and_are_within_the_budget(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    before = attempts_of(run)
    timings.request(run, 6)
    budget.record(run, Budget(before + 0.25 * SECOND))
    run_shard(str(run.path), 0)
    assert timings.progress(run).left > 0
    assert set(costs.stopped_runs([run])) == {run.path.name}
    assert attempts_of(run) >= before + 0.25 * SECOND
    assert finished_ids(run) == planned_ids(run)
    budget.record(run, None)
    run_shard(str(run.path), 0)
    assert (timings.progress(run).left, costs.stopped_runs([run])) == (0, {})


def test_gpus_of_an_attempt_count_as_often_as_there_are(tmp_path: Path) -> None:
    run = plan(tmp_path)
    now = time.time()
    line = {"event": "attempt", "attempt_id": "a-deal0-shard0", "run_id": run.path.name, "shard": 0, "hostname": "n"}
    line |= {"pid": 1, "started_at": now, "git_commit": None, "device": "H100", "num_devices": 4}
    line |= {"engines": {"startup_seconds": 600.0}}
    call = {"submitted_at": now + 1000, "queued_seconds": 0, "first_token_seconds": 1, "end_seconds": 2000.0}
    journal = run.journal_dir / "a-deal0-shard0.jsonl"
    journal.write_text(f"{json.dumps(line, separators=(',', ':'))}\n{json.dumps(call, separators=(',', ':'))}\n")
    used = Meter(run).used(Budget(1.0))
    assert (round(used.device_hours, 6), used.has_gpu) == (4.0, True)
    assert str(used) == "4.0 GPU-hours"


def test_nothing_is_submitted_where_the_budget_is_used_up(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="", scontrol="MaxArraySize = 4")
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    budget.record(run, Budget(1e-9))
    with pytest.raises(ValueError, match=r"its budget is used up.*run its launch command again with a higher"):
        dispatch.dispatch(run, {})
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    from jobs.nights.record import NightRecord

    record = NightRecord(tmp_path / "nights" / "2026-01-01.jsonl")
    asked = {"options": {}, "shards_per_task": 1, "workers_per_task": 1}
    record.append("launched", runs={"0": run.path.name}, requests={run.path.name: asked})
    [gap] = recovery.recover([run], record, 5).gaps
    assert gap.why.startswith("its budget is used up")


SUITE = """
output = "{output}"
engine = "scripted"
cluster = "{cluster}"
dataset = "demo"
limit = 4
samples = 3
concurrency = 1
shards = 2
{budget}

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""


def suite_file(folder: Path, cluster: str = "debug", of_suite: str = "") -> Path:
    path = folder / "small.toml"
    path.write_text(SUITE.format(output=folder / "runs", cluster=cluster, budget=of_suite), encoding="utf-8")
    return path


def ran(words: Sequence[str]) -> int:
    from jobs.__main__ import main

    return _exit_code(main, list(words))


def test_workers_in_processes_of_their_own_keep_the_budget_of_a_suite(tmp_path: Path) -> None:
    runs = suite.launch(suite.read(suite_file(tmp_path, "local", "max-gpu-hours = 1e-9")), None)
    assert set(costs.stopped_runs(runs)) == {run.path.name for run in runs}
    assert [len(finished_ids(run)) for run in runs] == [0, 0]


@pytest.mark.usefixtures("slow")
def test_a_budget_of_a_suite_is_for_all_of_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = suite_file(tmp_path, of_suite=f"max-gpu-hours = {0.4 * SECOND}")
    assert ran(["suite", str(file)]) == 1
    told = capsys.readouterr()
    assert "of 2 runs together" in told.err
    runs = run_folders([tmp_path / "runs"])
    assert len({read.budget_id for run in runs if (read := budget.read(run))}) == 1
    assert sum(num_unfinished(run) for run in runs) > 12, "the second run was not begun"
    assert told.out.count("STOPPED BY ITS BUDGET") >= 2, "both runs say so"
    assert "small.html" in told.out
    assert "STOPPED BY ITS BUDGET" in (tmp_path / "runs" / "small.html").read_text(encoding="utf-8")
    assert ran(["suite", str(file), "--max-gpu-hours", "1"]) == 0
    assert all(num_unfinished(run) == 0 for run in runs)


def test_a_dry_run_of_a_suite_adds_up_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = suite_file(tmp_path)
    machine = tmp_path / "machine.toml"
    speeds = "output_tokens_per_second = 50\nprompt_tokens_per_second = 1000\n"
    machine.write_text(f'name = "mine"\nsource = "made up"\ngpus = 2\n[draft]\n{speeds}[target]\n{speeds}')
    flags = ["suite", str(file), "--hardware", str(machine), "--dry-run"]
    assert ran(flags) == 0
    told = capsys.readouterr().out
    assert told.count("estimate: ") == 2
    assert "half of the token budget, a guess; " in told
    [line] = [line for line in told.splitlines() if line.startswith("Total: ")]
    assert line.endswith("left.")
    assert "GPU-hours (" in line
    assert ran([*flags, "--max-gpu-hours", "0.01"]) == 2
    assert "--max-gpu-hours 0.01 is below the estimate: " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "place", ["max-gpu-hours = -1", 'max-gpu-hours = "many"', "max-gpu-hours = 2\nmax_gpu_hours = 3"]
)
def test_a_wrong_budget_of_a_suite_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(suite.BadSuite, match="max-gpu-hours"):
        suite.read(suite_file(tmp_path, of_suite=place))
    for table in ("", "[latency]\n"):
        file = suite_file(tmp_path)
        file.write_text(f"{file.read_text()}{table}max-gpu-hours = 3\n")
        with pytest.raises(suite.BadSuite, match="set max-gpu-hours once at the top"):
            suite.read(file)


@pytest.mark.usefixtures("slow")
def test_a_night_keeps_its_budget_and_is_not_begun_again_for_what_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, night = suite_file(tmp_path), date(2026, 1, 1)
    assert ran(["nightly", "--suite", str(file), "--date", "2026-01-01", "--dry-run"]) == 0
    assert "Total: GPU-hours unknown for 2 runs." in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    code = ran(["nightly", "--suite", str(file), "--date", "2026-01-01", "--max-gpu-hours", str(0.4 * SECOND)])
    page = (tmp_path / "runs" / "nights" / "2026-01-01.md").read_text()
    assert (code, "its budget is used up" in page) == (4, True)
    assert nightly.launch(file, night).verdict_job is None, "launched again without a budget, it goes on"
    assert all(num_unfinished(run) == 0 for run in run_folders([tmp_path / "runs"]))


@pytest.mark.usefixtures("slow")
def test_a_command_from_python_raises_where_a_budget_stopped_the_run(tmp_path: Path) -> None:
    prepared = launching.prepare(
        suite.read(suite_file(tmp_path)).launches[0].changed(max_gpu_hours=0.3 * SECOND, shards=1)
    )
    launching.start(prepared, Console(quiet=True))
    with pytest.raises(launching.LaunchFailed, match="is not finished: its budget is used up"):
        launching.check_budgets([prepared.run])
    with pytest.raises(costs.OverBudget):
        launching.start(prepared, Console(quiet=True))
