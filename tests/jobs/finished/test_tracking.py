"""`--tracker`: the result of a finished run goes to an experiment tracker.

The trackers are made up: modules with the few functions that are called, which record what they are told.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.jobs.runs import launched


class MadeUpMlflow(ModuleType):
    def __init__(self) -> None:
        super().__init__("mlflow")
        self.entries: dict[str, dict[str, Any]] = {}
        self.current: dict[str, Any] = {}

    def set_experiment(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(experiment_id=name)

    def search_runs(self, ids: list[str], *, filter_string: str, **_: object) -> list[SimpleNamespace]:
        found = [name for name in self.entries if filter_string == f"tags.run_id = '{name}'"]
        return [
            SimpleNamespace(
                info=SimpleNamespace(run_id=name), data=SimpleNamespace(params=self.entries[name]["params"])
            )
            for name in found
        ]

    def start_run(self, run_id: str | None = None, run_name: str = "", **_: object) -> nullcontext[None]:
        self.current = self.entries.setdefault(run_id or run_name, {"params": {}, "sent": 0})
        return nullcontext()

    def log_params(self, params: dict[str, str]) -> None:
        assert not self.current["params"].keys() & params.keys(), "MLflow refuses to change a parameter"
        self.current["params"] |= params

    def log_metrics(self, metrics: dict[str, float]) -> None:
        self.current["metrics"], self.current["sent"] = metrics, self.current["sent"] + 1

    def log_artifact(self, file: str) -> None:
        self.current["file"] = Path(file).name
        print("View run at: http://localhost:5000")


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> MadeUpMlflow:
    module = MadeUpMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def test_a_finished_run_is_one_entry_however_often_it_is_sent(tmp_path: Path, mlflow: MadeUpMlflow) -> None:
    for _ in range(2):
        result = launched(tmp_path, "--tracker", "mlflow")
        assert result.exit_code == 0, result.output
        assert "http://localhost:5000" not in result.stdout, "standard output is the command's own"
    [path] = tmp_path.glob("demo-speccot-*/results.json")
    results = json.loads(path.read_bytes())
    [entry] = mlflow.entries.values()
    assert mlflow.entries.keys() == {results["run_id"]}
    assert (entry["sent"], entry["file"]) == (2, "results.json")
    assert (entry["metrics"]["pass_at_1"], entry["metrics"]["verdicts.wrong"]) == (
        results["measures"]["pass_at_1"]["value"],
        results["verdicts"]["wrong"],
    )
    assert (entry["params"]["params.drafts"], entry["params"]["method"]) == ("5", "speccot")


def test_a_tracker_that_fails_leaves_the_run_finished_and_is_exit_code_1(
    tmp_path: Path, mlflow: MadeUpMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ConnectionError("no server at\nhttp://localhost:5000")

    monkeypatch.setattr(mlflow, "set_experiment", refuse)
    result = launched(tmp_path, "--tracker", "mlflow")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "ConnectionError" in line
    assert len(list(tmp_path.glob("*/results.json"))) == 1


def test_a_tracker_that_is_not_installed_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = launched(tmp_path / "runs", "--tracker", "wandb")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--tracker wandb" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_weights_and_biases_gets_the_run_under_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    entry = SimpleNamespace(summary=SimpleNamespace(update=told.append), finish=lambda: told.append("finished"))
    module = ModuleType("wandb")

    def init(**settings: object) -> SimpleNamespace:
        told.append(settings)
        return entry

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert launched(tmp_path, "--tracker", "wandb").exit_code == 0
    settings, metrics, end = told
    [path] = tmp_path.glob("demo-speccot-*")
    assert (settings["id"], settings["resume"], settings["project"]) == (path.name, "allow", "speculative-reasoning")
    assert (metrics["planned"], end) == (2.0, "finished")
