"""A budget of a comparison in waves: what it stops is drawn no further, stays undecided, says so, and goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from jobs import launching_several, suite
from jobs.__main__ import main
from jobs.preparation import PreparedLaunch
from jobs.run import budget, waves
from jobs.run.budget import Budget
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder, run_folders
from jobs.submission import snapshot
from jobs.submission.together import Request
from jobs.watch.status import status
from jobs.waves import comparison, look_job
from jobs.waves.planned import of_suite
from tests.jobs.slurm.fake import FakeSlurm
from tests.jobs.waves.test_waves import ALL_EQUAL_AT_LOOK_1, ALL_EQUAL_AT_LOOK_2, written

TOO_LITTLE = 1e-9
MACHINE = """
name = "mine"
source = "made up"
gpus = 2
[draft]
output_tokens_per_second = 50
prompt_tokens_per_second = 1000
[target]
output_tokens_per_second = 50
prompt_tokens_per_second = 1000
"""


def exit_code(*words: str) -> int:
    try:
        main.main(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def use_up(runs: Sequence[RunFolder]) -> None:
    for run in runs:
        budget.record(run, Budget(TOO_LITTLE))


@pytest.fixture
def used_up_after_a_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first wave of a comparison end with the last of its budget."""
    carry_out = launching_several.carry_out_several

    def started(launches: Sequence[PreparedLaunch], console: Console) -> list[RunFolder]:
        runs = carry_out(launches, console)
        use_up(runs)
        return runs

    monkeypatch.setattr(launching_several, "carry_out_several", started)


def assert_stopped_after_the_first_wave(runs: Sequence[RunFolder]) -> None:
    for run in runs:
        begun = waves.read(run)
        assert begun is not None
        assert (begun.wave, begun.num_looks, begun.decision, run.num_planned()) == (1, 1, None, 6)
        assert num_unfinished(run) == 0, "no sample is planned that would count as missing"
        result = json.loads(run.results_path.read_bytes())
        assert result["verdicts"]["not_run"] == 0
        assert any("STOPPED BY ITS BUDGET" in line for line in result["warnings"])
        assert any("NOT ALL SAMPLES DRAWN" in line for line in result["warnings"])
        assert status(run).stopped_by_budget.startswith("its budget is used up")


@pytest.mark.usefixtures("used_up_after_a_wave")
def test_after_the_last_of_a_budget_a_wave_is_looked_at_and_none_is_drawn_until_there_is_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["suite", str(written(tmp_path)), "--until-decided", "--margin", str(100 * ALL_EQUAL_AT_LOOK_2)]
    assert exit_code(*words, "--max-gpu-hours", "1") == 1
    told = capsys.readouterr()
    runs = run_folders([tmp_path / "runs"])
    assert "Look 1: undecided: its budget is used up" in told.out
    assert "12 of 48 samples drawn; 0 not needed; 36 left, because nothing is decided without them" in told.out
    assert "is not finished: its budget is used up" in told.err
    assert_stopped_after_the_first_wave(runs)
    assert "STOPPED BY ITS BUDGET" in (tmp_path / "runs" / "small.html").read_text(encoding="utf-8")
    monkeypatch.undo()
    assert exit_code(*words, "--max-gpu-hours", "1") == 0
    told = capsys.readouterr()
    assert "24 of 48 samples drawn; 24 not needed" in told.out
    assert all((begun := waves.read(run)) and begun.is_stopped and begun.num_looks == 2 for run in runs)
    assert not any("BUDGET" in line for run in runs for line in json.loads(run.results_path.read_bytes())["warnings"])


@pytest.mark.usefixtures("used_up_after_a_wave")
def test_what_the_last_wave_of_a_budget_decides_is_decided(tmp_path: Path) -> None:
    words = ["suite", str(written(tmp_path)), "--until-decided", "--margin", str(100 * ALL_EQUAL_AT_LOOK_1)]
    assert exit_code(*words) == 0
    for run in run_folders([tmp_path / "runs"]):
        begun = waves.read(run)
        assert begun is not None
        assert begun.is_stopped
        assert status(run).stopped_by_budget == ""
        assert "BUDGET" not in run.results_path.read_text(encoding="utf-8")


def test_a_wave_that_a_budget_stopped_halfway_is_not_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    assert exit_code("suite", str(path), "--until-decided", "--max-gpu-hours", str(TOO_LITTLE)) == 1
    told = capsys.readouterr()
    assert "Not looked at: undecided: its budget is used up" in told.out
    runs = run_folders([tmp_path / "runs"])
    assert all((begun := waves.read(run)) and begun.num_looks == 0 for run in runs)
    assert any(map(num_unfinished, runs))


class Submitted:
    """What a look submits instead of jobs of Slurm."""

    def __init__(self, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm.prints(squeue="", scancel="", scontrol="MaxArraySize = 4")
        self.requests: list[Request] = []
        self.looks: list[str] = []
        monkeypatch.setattr(snapshot, "require", lambda: None)
        monkeypatch.setattr(look_job, "dispatch_together", self.requests.extend)
        monkeypatch.setattr("jobs.submission.submit.submit_call", self._look)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def _look(self, folder: Path, name: str, *_: object) -> str:
        self.looks.append(name)
        return "51"


@pytest.fixture
def first_wave(tmp_path: Path) -> list[RunFolder]:
    """The finished first wave of a comparison whose next look is that of a job."""
    planned = of_suite(suite.read(written(tmp_path)), None)
    runs = launching_several.start_several(planned.launches, Console(quiet=True))
    planned.record.append("launched", **comparison.launched(planned, ALL_EQUAL_AT_LOOK_2))
    return runs


@pytest.mark.parametrize("is_used_up", [False, True])
def test_a_look_on_slurm_submits_the_next_wave_unless_the_budget_is_used_up(
    is_used_up: bool,
    tmp_path: Path,
    first_wave: list[RunFolder],
    slurm: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submitted = Submitted(slurm, monkeypatch)
    if is_used_up:
        use_up(first_wave)
    look_job.look(str(tmp_path / "runs" / "waves"), "small")
    concluded = look_job.record_of(tmp_path / "runs" / "waves", "small").last("concluded")
    if not is_used_up:
        assert [request.run for request in submitted.requests] == first_wave
        assert (submitted.looks[0], concluded) == ("small.look", None)
        assert all(run.num_planned() > 6 for run in first_wave)
        return
    assert (submitted.requests, submitted.looks) == ([], [])
    assert concluded is not None
    assert concluded["verdict"].startswith("undecided: its budget is used up")
    assert_stopped_after_the_first_wave(first_wave)
    assert "STOPPED BY ITS BUDGET" in (tmp_path / "runs" / "small.html").read_text(encoding="utf-8")


def test_a_look_on_slurm_after_half_a_wave_says_that_the_budget_stopped_it(
    tmp_path: Path, first_wave: list[RunFolder], slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = Submitted(slurm, monkeypatch)
    waves.draw(first_wave[1], {problem.id: 2 for problem in first_wave[1].problems()})
    use_up(first_wave)
    look_job.look(str(tmp_path / "runs" / "waves"), "small")
    concluded = look_job.record_of(tmp_path / "runs" / "waves", "small").last("concluded")
    assert concluded is not None
    assert concluded["verdict"].startswith("undecided: its budget is used up")
    assert submitted.requests == []
    assert (tmp_path / "runs" / "small.html").exists()


def test_a_dry_run_says_what_this_wave_and_all_of_them_take_and_refuses_by_this_wave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text(MACHINE)
    words = ["suite", str(written(tmp_path, 16)), "--until-decided", "--dry-run", "--hardware", str(machine)]
    assert exit_code(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    [one] = [line for line in lines if line.startswith("This wave: ")]
    [every] = [line for line in lines if line.startswith("All waves, unless it is decided earlier: ")]
    hours = [float(line.rpartition(": ")[2].partition(" GPU-hours")[0]) for line in (one, every)]
    assert hours[0] < hours[1]
    assert exit_code(*words, "--max-gpu-hours", str((hours[0] + hours[1]) / 2)) == 0
    capsys.readouterr()
    assert exit_code(*words, "--max-gpu-hours", str(hours[0] / 2)) == 2
    assert "is below the estimate" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
