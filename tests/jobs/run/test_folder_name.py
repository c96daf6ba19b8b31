"""A run folder's name says method, dataset and models; its hash alone decides which is resumed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grading.regrade import main as regrade
from harness.launch import main as launch
from jobs.__main__ import main as jobs
from jobs.run.folder import NoSuchRun, RunFolder, folder_name, meant_by, run_path, run_paths
from jobs.run.spec import ModelSpec, RunSpec
from tests.jobs.runs import plan
from warehouse.load import main as load

FLAGS = {"method": "speccot", "dataset": "demo", "engine": "scripted", "samples": "1", "limit": "2"}
COMMAND = [word for name, value in FLAGS.items() for word in (f"--{name}", value)]


def spec(tmp_path: Path, draft: str | None = "demo-draft", target: str = "demo-target", **changes: Any) -> RunSpec:
    drawn = None if draft is None else ModelSpec(model=draft, path="/d", revision=None, fingerprint="d")
    return replace(
        plan(tmp_path / "any").spec(),
        draft=drawn,
        target=ModelSpec(model=target, path="/t", revision=None, fingerprint="t"),
        reward=None,
        **changes,
    )


def test_the_name_says_dataset_method_and_models(tmp_path: Path) -> None:
    both = spec(tmp_path)
    assert folder_name(both) == f"demo-speccot-demo-draft_demo-target-{both.digest}"
    alone = [spec(tmp_path, None, name, method="vanilla") for name in ("demo-target", "org/demo-draft")]
    assert [folder_name(one).rpartition("-")[0] for one in alone] == [
        "demo-vanilla-demo-target",
        "demo-vanilla-demo-draft",
    ]
    rated = replace(both, reward=ModelSpec(model="org/judge", path="/r", revision=None, fingerprint="r"))
    assert folder_name(rated) == f"demo-speccot-demo-draft_demo-target_judge-{rated.digest}"


@pytest.mark.parametrize("model", ["x" * 300, "org/Ünïcödé +$(touch x)", "..", "-rf", "", "a/b/", "A_B__C"])
def test_any_name_of_a_model_is_short_and_safe_in_a_shell_and_a_file_system(tmp_path: Path, model: str) -> None:
    name = folder_name(spec(tmp_path, model, model))
    assert re.fullmatch(r"demo-speccot-[A-Za-z0-9.-]+_[A-Za-z0-9.-]+-[0-9a-f]{8}", name)
    assert len(name) <= 100


def test_a_long_name_of_a_dataset_leaves_less_room_for_the_models(tmp_path: Path) -> None:
    for length in (150, 180, 230):
        long = spec(tmp_path, dataset="d" * length)
        name = folder_name(long)
        assert name.startswith(f"{long.dataset}-speccot-")
        assert name.endswith(f"-{long.digest}")
        assert len(name) <= max(200, len(long.run_id))


def test_the_same_command_resumes_the_folder_that_has_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(launch, COMMAND).exit_code == 0
    [made] = Path("runs").glob("demo-*")
    assert made.name.startswith("demo-speccot-scripted_scripted-")
    digest = RunFolder(made).spec().digest
    for name in (RunFolder(made).spec().run_id, f"demo-speccot-renamed-{digest}"):
        [folder] = Path("runs").glob("demo-*")
        folder = folder.rename(folder.with_name(name))
        again = CliRunner().invoke(launch, [*COMMAND, "--dry-run"])
        assert f"run folder runs/{name}" in " ".join(again.output.split())
        for text in (name, digest, digest[:4], f"demo-speccot-{digest}", f"runs/{digest}", name[:14]):
            assert run_path(text) == folder, text
    again = CliRunner().invoke(launch, COMMAND)
    assert "All 2 samples are already finished." in again.output
    assert list(Path("runs").glob("demo-*")) == [folder]


def test_a_text_means_a_name_before_its_beginning_and_that_before_a_hash() -> None:
    names = ["demo-vanilla-a_b-12345678", "demo-vanilla-12345678", "demo-speccot-1234abcd", "1234-vanilla-00000000"]
    assert meant_by("demo-vanilla-12345678", names) == ["demo-vanilla-12345678"]
    assert meant_by("1234", names) == ["1234-vanilla-00000000"]
    assert meant_by("12345", names) == names[:2]
    assert meant_by("1234a", names) == meant_by("demo-speccot-1234ab", names) == ["demo-speccot-1234abcd"]
    assert meant_by("demo-vanilla-1234", names[:1]) == names[:1]
    assert meant_by("123", names[:3]) == [], "too few digits"
    assert meant_by("vanilla-12345678", names) == []
    assert meant_by("12345678-", names) == meant_by("nothing", names) == []


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
    assert not run.derived("grades")


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
