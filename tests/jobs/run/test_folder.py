"""The plan of a run folder, and its name, which says method, dataset and models; its hash decides what is resumed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from grading.regrade import main as regrade
from harness.launch import main as launch
from jobs.__main__ import main
from jobs.run.files import RunDamaged
from jobs.run.folder import NoSuchRun, folder_name, meant_by, run_path, run_paths
from jobs.run.spec import ModelSpec, RunSpec, assign_to_shards
from jobs.work.worker import run_shard
from tests.jobs.runs import jobs, plan
from warehouse.load import main as load


def test_the_shards_of_a_run_with_workers_are_not_assigned_again(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    before = run.shards()
    fewer = assign_to_shards([unit for shard in before for unit in shard], 1)
    with run.shard_lock(1), pytest.raises(ValueError, match="--shards 1: workers are running"):
        run.assign_again(fewer)
    assert run.shards() == before
    run.assign_again(fewer)
    assert run.shards() == fewer
    with pytest.raises(ValueError, match="no shard 1: the samples were reassigned"):
        run_shard(str(run.path), 1)


def test_a_specification_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    run = plan(tmp_path)
    text = run.spec_path.read_text(encoding="utf-8")
    for written, named in (('"format": 7', "format 7"), ('"forma": 1', "no format")):
        run.spec_path.write_text(text.replace('"format": 3', written))
        with pytest.raises(RunDamaged, match=rf"spec\.json has {named}, but this version of the harness only reads"):
            run.spec()


def test_an_unreadable_file_of_the_plan_is_named_with_the_reason(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run.spec_path.write_text(run.spec_path.read_text(encoding="utf-8").replace('"seed": 0', '"seed": "x"'))
    with pytest.raises(RunDamaged, match=r"spec\.json is damaged: seed: Input should be a valid integer"):
        run.spec()
    run.problems_path.unlink()
    with pytest.raises(RunDamaged, match=r"problems\.parquet is missing$"):
        run.problems()
    run.plan_path.write_bytes(run.plan_path.read_bytes()[:200])
    for read in (run.num_shards, run.shards, run.units_by_shard, lambda: run.shard(0)):
        with pytest.raises(RunDamaged, match=r"plan\.parquet is damaged: its content does not match") as raised:
            read()
        assert "\n" not in str(raised.value)


COMMAND = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "1", "--limit", "2"]


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


@pytest.mark.parametrize("model", ["x" * 300, "org/Ünïcödé +$(touch x)", "..", "-rf", "", "A_B__C"])
def test_any_name_of_a_model_is_short_and_safe_in_a_shell_and_a_file_system(tmp_path: Path, model: str) -> None:
    name = folder_name(spec(tmp_path, model, model))
    assert re.fullmatch(r"demo-speccot-[A-Za-z0-9.-]+_[A-Za-z0-9.-]+-[0-9a-f]{8}", name)
    assert len(name) <= 100
    long = spec(tmp_path, model, model, dataset="d" * 180)
    assert re.fullmatch(rf"{long.dataset}-speccot-.*-{long.digest}", folder_name(long))
    assert len(folder_name(long)) <= max(200, len(long.run_id))


def test_the_same_command_resumes_the_folder_that_has_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = launch(COMMAND, standalone_mode=False)
    assert made.path.name.startswith("demo-speccot-scripted_scripted-")
    spec = made.spec()
    folder = made.path
    for name in (spec.run_id, f"demo-speccot-renamed-{spec.digest}"):
        folder = folder.rename(folder.with_name(name))
        texts = (name, spec.digest, spec.digest[:4], f"demo-speccot-{spec.digest}", f"runs/{spec.digest}", name[:14])
        assert {run_path(text) for text in texts} == {folder}
    before = {path: path.stat().st_mtime_ns for path in folder.glob("traces/*")}
    assert launch(COMMAND, standalone_mode=False).path == folder
    assert list(Path("runs").glob("demo-*")) == [folder]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("traces/*")} == before


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


def test_a_beginning_names_one_run_and_that_of_several_or_of_none_is_refused(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = runs
    beginning = next(first[:n] for n in range(1, len(first)) if not second.startswith(first[:n]))
    (Path("runs") / second).rename(Path("runs") / f"{first}-copy")
    for text in (f"runs/{first}", f"runs/{first}/", first):
        assert run_path(text) == Path("runs") / first, text
    (Path("runs") / f"{first}-copy").rename(Path("runs") / second)
    assert run_path(beginning) == run_path(f"runs/{beginning}") == Path("runs") / first
    assert run_paths("runs/") == [Path("runs") / name for name in sorted(runs)]
    for text in ("demo", "nothing"):
        with pytest.raises(NoSuchRun, match=f"runs/{min(runs)}"):
            run_path(text)
    monkeypatch.chdir("runs")
    assert run_path(first[:-1]) == Path(first)


@pytest.mark.parametrize("text", ["", "..", "runs/"])
def test_what_has_no_letter_of_a_name_means_no_run_even_where_there_is_only_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = plan(Path("runs"))
    assert jobs("finalize", text).exit_code == 2
    assert not run.derived("grades")


@pytest.mark.parametrize(("command", "words"), [(main, ["status"]), (regrade, ["--versions"]), (load, [])])
def test_the_commands_on_a_run_take_its_id(runs: list[str], command: Command, words: list[str]) -> None:
    assert CliRunner().invoke(command, [*words, runs[0]]).exit_code == 0
    result = CliRunner().invoke(command, [*words, "nothing"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
