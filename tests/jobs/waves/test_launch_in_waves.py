"""One launch in waves against its baseline: by the same code as a suite's, with the same runs, and refused by name."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from harness.launch import main
from jobs import suite
from jobs.run import waves
from jobs.run.folder import RunFolder, run_folders
from tests.jobs.waves.test_waves import ALL_EQUAL_AT_LOOK_1, ALL_EQUAL_AT_LOOK_2, texts, written

COMMON = ("--engine", "scripted", "--cluster", "debug", "--dataset", "demo", "--limit", "6", "--shards", "2")
OWN = ("--method", "speccot", "--drafts", "2", *COMMON)
ALONE = ("--method", "vanilla", *COMMON)
UNTIL_DECIDED = ("--until-decided", "--margin", str(100 * ALL_EQUAL_AT_LOOK_2))


def launched(output: Path, *words: str) -> int:
    try:
        main.main([*words, "--output", str(output)])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def by_method(output: Path) -> dict[str, RunFolder]:
    return {run.spec().method: run for run in run_folders([output])}


@pytest.fixture(scope="module")
def whole_baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the target alone with all of its samples."""
    output = tmp_path_factory.mktemp("whole") / "runs"
    assert launched(output, *ALONE, "--samples", "4") == 0
    return output


def test_a_launch_until_decided_has_the_runs_the_looks_and_the_end_of_a_suite_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    assert launched(output, *OWN, "--samples", "4", *UNTIL_DECIDED) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Look 1: not decided yet" in told
    assert re.search(r"Look 2: demo-speccot\S+: not worse than demo-vanilla\S+ by 52 points", told)
    assert "24 of 48 samples drawn; 24 not needed" in told
    runs = by_method(output)
    for run in runs.values():
        begun = waves.read(run)
        assert begun is not None
        assert (begun.is_stopped, begun.wave, begun.num_looks, run.num_planned()) == (True, 2, 2, 12)
    assert (output / f"{runs['speccot'].path.name}.html").exists()
    same = suite.prepare(suite.read(written(tmp_path)), None)
    assert {prepared.run.path for prepared in same} == {run.path for run in runs.values()}
    before = {method: texts(run) for method, run in runs.items()}
    assert launched(output, *OWN, "--samples", "4", *UNTIL_DECIDED) == 0, "decided stays decided"
    assert {method: texts(run) for method, run in by_method(output).items()} == before
    assert launched(output, *OWN, "--samples", "4") == 0
    assert {method: run.num_planned() for method, run in by_method(output).items()} == {"vanilla": 12, "speccot": 24}


def test_a_named_baseline_keeps_its_samples_and_its_results_are_loaded_where_they_are_missing(
    tmp_path: Path, whole_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    [base] = run_folders([whole_baseline])
    shutil.copytree(base.path, output / base.path.name)
    again = RunFolder(output / base.path.name)
    words = ("--until-decided", "--baseline", str(again.path), "--margin", str(100 * ALL_EQUAL_AT_LOOK_1))
    assert launched(output, *OWN, "--samples", "4", *words) == 0
    assert f"not worse than {again.path.name}" in " ".join(capsys.readouterr().out.split())
    own = by_method(output)["speccot"]
    assert (waves.read(again), again.num_planned(), own.num_planned()) == (None, 24, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*ALONE, "--until-decided"), "this run is the target alone"),
        ((*OWN, "--samples", "3", "--until-decided"), "samples 3; valid: one number for all runs, at least 4"),
        ((*OWN, "--samples", "4", "--temperature", "0", "--until-decided"), "at temperature 0 every sample"),
        ((*OWN, "--latency-sample", "2", "--until-decided"), "latency-sample is for runs with all their samples"),
        ((*OWN, "--margin", "3"), "--margin belongs to --until-decided"),
        ((*OWN, "--baseline", "some"), "--baseline belongs to --until-decided"),
        ((*OWN, "--until-decided", "--margin", "0"), "--margin"),
        ((*OWN, "--until-decided", "--baseline", "nowhere"), "nowhere is not a run folder"),
        ((*OWN, "--until-decided", "--tracker", "mlflow", "--cluster", "slurm"), "mlflow"),
    ],
)
def test_what_cannot_be_drawn_in_waves_is_refused_by_name_before_anything_is_written(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launched(tmp_path / "runs", *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*OWN, "--samples", "8"), "it has 4 samples per problem; valid: 8 or more, as this run"),
        ((*OWN, "--samples", "4", "--limit", "5"), "its problems are not those of this run"),
        ((*ALONE, "--samples", "4"), "it is this run itself; valid: another run"),
        ((*OWN, "--samples", "4", "--temperature", "0.2"), "its temperature is 0.6, and this run's 0.2; valid: a run"),
        ((*OWN, "--samples", "4", "--token-budget", "100"), "its token budget is"),
    ],
)
def test_a_run_that_cannot_be_the_baseline_is_refused_with_the_reason(
    words: tuple[str, ...], message: str, whole_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [base] = run_folders([whole_baseline])
    assert launched(whole_baseline, *words, "--until-decided", "--baseline", str(base.path)) == 2
    assert f"--baseline {base.path.name}: {message}" in " ".join(capsys.readouterr().err.split())
    assert len(run_folders([whole_baseline])) == 1


def test_a_baseline_of_another_folder_is_refused(
    tmp_path: Path, whole_baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [base] = run_folders([whole_baseline])
    assert launched(tmp_path / "runs", *OWN, "--samples", "4", "--until-decided", "--baseline", str(base.path)) == 2
    assert "whose database has the comparison" in " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a launch that its first look decided, and stopped with the target alone."""
    output = tmp_path_factory.mktemp("decided") / "runs"
    margin = str(100 * ALL_EQUAL_AT_LOOK_1)
    assert launched(output, *OWN, "--samples", "4", "--until-decided", "--margin", margin) == 0
    return output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*OWN, "--margin", "3"), "was decided with a margin of"),
        ((*OWN[:2], *COMMON, "--margin", str(100 * ALL_EQUAL_AT_LOOK_1)), "was stopped when its earlier comparisons"),
    ],
)
def test_a_decision_stands_and_says_so_to_who_asks_for_another(
    words: tuple[str, ...], message: str, decided: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for dry in ((), ("--dry-run",)):
        assert launched(decided, *words, "--samples", "4", "--until-decided", *dry) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert len(run_folders([decided])) == 2


def test_a_decided_launch_is_decided_when_it_is_launched_again(
    decided: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    margin = str(100 * ALL_EQUAL_AT_LOOK_1)
    assert launched(decided, *OWN, "--samples", "4", "--until-decided", "--margin", margin) == 0
    assert "12 of 48 samples drawn; 36 not needed" in " ".join(capsys.readouterr().out.split())
    state = waves.read(by_method(decided)["speccot"])
    assert state is not None
    assert (state.margin, state.baseline) == (ALL_EQUAL_AT_LOOK_1, by_method(decided)["vanilla"].path.name)


def test_a_dry_run_says_the_waves_the_looks_and_the_most_that_it_takes_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launched(tmp_path / "runs", *OWN, "--until-decided", "--dry-run") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 runs in waves of 4, 8, 12, 16 samples per problem, with a look after each wave: at most 4 looks" in told
    assert re.search(r"Compared with demo-vanilla\S+", told)
    assert "All waves, unless it is decided earlier: GPU-hours unknown for 2 runs." in told
    assert not (tmp_path / "runs").exists()


def test_the_outcome_as_json_is_that_of_the_method_and_says_that_it_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--until-decided", "--margin", str(100 * ALL_EQUAL_AT_LOOK_1), "--json")
    assert launched(tmp_path / "runs", *OWN, "--samples", "4", *words) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["method"], found["stopped_by_decision"], found["exit_code"]) == ("speccot", True, 0)


def test_too_few_problems_to_show_it_are_named_before_samples_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*OWN, "--samples", "4", "--until-decided", "--dry-run", "--margin")
    assert launched(tmp_path / "runs", *words, "20") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "6 problems cannot show that a run is not worse by 20 points, even if none differed" in told
    assert launched(tmp_path / "runs", *words, str(100 * ALL_EQUAL_AT_LOOK_2)) == 0
    assert "cannot show" not in capsys.readouterr().out
