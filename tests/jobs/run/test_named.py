"""A run is named by its folder, its run id or a unique beginning of it, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from grading.regrade import main as regrade
from jobs.__main__ import main as jobs
from jobs.run.folder_name import NoSuchRun, run_path, run_paths
from tests.jobs.runs import plan
from warehouse.load import main as load


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two planned runs in the folder `runs` of the working directory; returns their ids."""
    monkeypatch.chdir(tmp_path)
    return [plan(Path("runs")).path.name, plan(Path("runs"), samples=2).path.name]


def test_a_path_an_id_and_a_unique_beginning_name_the_same_run(runs: list[str]) -> None:
    first, second = runs
    beginning = next(first[:n] for n in range(1, len(first)) if not second.startswith(first[:n]))
    for text in (f"runs/{first}", f"runs/{first}/", first, beginning, f"runs/{beginning}"):
        assert run_path(text) == Path("runs") / first, text
    assert run_paths("runs/") == [Path("runs") / name for name in sorted(runs)]


def test_a_beginning_of_several_runs_and_of_none_is_refused_with_their_names(runs: list[str]) -> None:
    with pytest.raises(NoSuchRun, match="demo is the beginning of 2 runs: runs/demo-") as several:
        run_path("demo")
    assert all(name in str(several.value) for name in runs)
    with pytest.raises(NoSuchRun, match=f"nothing is not a run folder: it does not exist, .* runs/{min(runs)}"):
        run_path("nothing")


@pytest.mark.parametrize("text", ["", ".", "..", "runs/", "./"])
def test_what_has_no_letter_of_a_name_means_no_run_even_where_there_is_only_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = plan(Path("runs"))
    result = CliRunner().invoke(jobs, ["finalize", text])
    assert (result.exit_code, "is not a run folder" in result.stderr) == (2, True), result.output
    assert not list(run.grades_dir.iterdir())


def test_a_run_in_the_working_directory_is_found_by_its_beginning(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "runs")
    assert run_path(runs[0][:-1]) == Path(runs[0])


def test_a_whole_name_comes_before_longer_ones_and_a_path_before_names(runs: list[str]) -> None:
    longer = Path("runs") / f"{runs[0]}-copy"
    (Path("runs") / runs[1]).rename(longer)
    assert run_path(runs[0]) == Path("runs") / runs[0]
    Path("other").mkdir()
    assert run_path("other") == Path("other"), "a command says itself that this is no run folder"


@pytest.mark.parametrize("words", [["status"], ["logs"], ["cancel"], ["finalize"]])
def test_the_commands_on_a_run_take_its_id(runs: list[str], words: list[str]) -> None:
    result = CliRunner().invoke(jobs, [*words, runs[0][:-1]])
    assert "is not a run folder" not in result.output
    result = CliRunner().invoke(jobs, [*words, "nothing"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: nothing is not a run folder: it does not exist")


def test_grading_and_loading_take_the_id_of_a_run(runs: list[str]) -> None:
    result = CliRunner().invoke(regrade, ["--versions", runs[0]])
    assert (result.exit_code, result.output) == (0, f"{runs[0]}: not graded yet\n")
    assert CliRunner().invoke(regrade, ["--versions", "nothing"]).exit_code == 2
    result = CliRunner().invoke(load, [runs[0]])
    assert result.exit_code == 0, result.output
    assert Path("runs/warehouse.duckdb").is_file()
    result = CliRunner().invoke(load, ["demo"])
    assert (result.exit_code, result.stderr) == (2, "error: demo: the beginning of 2 runs\n")
