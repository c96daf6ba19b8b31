"""The commands as a person types them, on run folders written by hand and tiny models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.settings.launch_settings import Launch
from harness.train import main
from harness.training.tuning import data_hash, find_manifest
from harness.weights import adapter, models
from jobs.run.folder import RunFolder
from jobs.run.plan import model_spec, plan
from tests.harness.training import folders

QUICK = ("--epochs", "1", "--learning-rate", "0.01")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def train(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def chains(tiny_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return folders.vanilla(tmp_path_factory.mktemp("runs"), tiny_models["target"])


@pytest.fixture(scope="module")
def drafts(tiny_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    right = [(True, False), (False, False), (True, True)]
    return folders.scot(tmp_path_factory.mktemp("runs"), tiny_models["draft"], tiny_models["target"], right)


def test_align_writes_a_draft_that_runs_name_with_its_data(
    chains: RunFolder, tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "aligned"
    command = ("align", "--run", chains.path, "--draft", tiny_models["draft"], "--output", output, *QUICK)
    result = train(*command)
    assert result.exit_code == 0, result.output
    made = find_manifest(output)
    assert made is not None
    assert made.data["run_id"] == chains.path.name
    assert made.data["run_spec"]["dataset"] == "gsm8k-train"
    assert made.base["fingerprint"] == models.folder_fingerprint(tiny_models["draft"])
    model = model_spec(str(output))
    assert model.fingerprint == made.weights != made.base["fingerprint"]
    assert model.training == str(made.data["sha256"])[:16]
    assert model_spec(str(tiny_models["draft"])).training is None
    assert train(*command).exit_code == 0, "again"


def test_the_run_that_uses_an_adapter_is_another_run_with_the_same_drafts(
    drafts: RunFolder, tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "selector"
    assert train("select", "--run", drafts.path, "--output", output, *QUICK).exit_code == 0
    made = find_manifest(output)
    assert made is not None
    assert made.data["grader_version"]
    pair = {role: str(tiny_models[role]) for role in ("draft", "target")}
    launch = Launch.from_flags({"method": "scot", "dataset": "demo", "engine": "transformers", **pair})
    selecting = replace(launch.target, adapter=str(output))
    untuned = plan(launch, "local")
    without, problems = untuned.spec, untuned.problems
    tuned = plan(launch.changed(target=selecting), "local").spec
    assert tuned.selection is not None
    assert tuned.selection.fingerprint == adapter.fingerprint(output) == made.weights
    assert tuned.selection.training == data_hash(output, tuned.selection.fingerprint)
    assert tuned.run_id != without.run_id
    assert not set(tuned.sample_ids(problems[0])) & set(without.sample_ids(problems[0]))
    assert tuned.drawn_alike().sample_ids(problems[0]) == without.sample_ids(problems[0])
    assert type(tuned).from_json(tuned.to_json()) == tuned
    other = launch.changed(target=replace(selecting, model=pair["draft"]))
    with pytest.raises(ValueError, match=r"--target.adapter selector was trained for .*target, not for .*draft"):
        plan(other, "local")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("align", "--output", "o", "--run", "none", "--draft", "{draft}"), "none is not a run folder"),
        (("align", "--output", "o", "--run", "{chains}", "--draft", "{draft}", "--epochs", "0"), "--epochs"),
        (("align", "--output", "o", "--run", "{drafts}", "--draft", "{draft}"), "align needs a run of vanilla"),
        (("select", "--output", "o", "--run", "{chains}"), "select needs a run of scot"),
        (("select", "--output", "{draft}", "--run", "{drafts}"), "valid: a new or empty folder"),
        (("align", "--output", "o", "--draft", "{draft}", "--", "--dataset", "gsm8k"), "gsm8k is not training data"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line_before_any_model_loads(
    arguments: tuple[str, ...],
    message: str,
    chains: RunFolder,
    drafts: RunFolder,
    tiny_models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.training.tuning.load", None)
    paths = {"chains": chains.path, "drafts": drafts.path, "draft": tiny_models["draft"]}
    result = train(*(argument.format(**paths) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_training_data_that_holds_a_test_question_is_refused(
    chains: RunFolder, tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    data = folders.data_dir(tmp_path / "data", gsm8k="What is 7 + 3?")
    command = ("--draft", tiny_models["draft"], "--output", tmp_path / "o", "--data-dir", data)
    by_run = train("align", "--run", chains.path, *command)
    assert by_run.exit_code == 2
    assert "gsm8k-train/3" in by_run.stderr
    folders.data_dir(tmp_path / "data", gsm8k="Both ask this.", gsm8k_train="Both ask this.")
    before_a_run = train("align", *command, "--problems", "2", "--", "--engine", "scripted", "--output", tmp_path)
    assert before_a_run.exit_code == 2
    assert "gsm8k-train/0" in before_a_run.stderr
    assert not (tmp_path / "o").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    data = folders.data_dir(tmp_path / "data")
    result = train(
        "align", "--draft", tiny_models["draft"], "--target", tiny_models["target"], "--output", tmp_path / "o",
        "--data-dir", data, "--dry-run", "--problems", "20", "--skip", "5", "--runs", tmp_path / "runs", "--",
        "--engine", "transformers", "--cluster", "debug",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "20 problems × 1 sample = 20" in result.output
    assert "TRAINING DATA" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
