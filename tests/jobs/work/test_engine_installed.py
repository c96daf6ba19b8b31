"""A worker whose Python lacks the run's engine says so in one line; a login node's Python decides nothing for it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import launch
from harness.engines import registry, speculation
from harness.settings.launch_settings import Launch
from harness.weights import adapter
from jobs import preparation
from jobs.checks import checks
from jobs.run import plan as planning
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec
from jobs.work.run_part import RunPart
from jobs.work.worker import run_parts
from tests.harness.checks.question import QUESTION
from tests.jobs.runs import plan


def _without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Make this Python look like one without these packages."""

    def found(name: str) -> object:
        return None if name in missing else importlib.util.find_spec(name)

    for module in (registry, adapter, speculation):
        monkeypatch.setattr(module, "find_spec", found)


def test_a_worker_without_the_engine_names_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "vllm")
    run = plan(tmp_path, engine=EngineSpec("vllm"))
    with pytest.raises(ValueError, match=r"needs the engine vllm, and .* has no vllm: install it") as refusal:
        _ = RunPart(run.path, [0]).needs
    assert sys.executable in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_doctor_leaves_the_packages_of_jobs_to_the_node() -> None:
    question = replace(QUESTION, cluster="slurm", sbatch={"python": "apptainer exec /a.sif python3"})
    found = {check.subject: check for check in checks(question, {})}
    assert not {"packages", "installation", "torch companions", "vllm"} & set(found)
    assert found["engine"].status == "ok"
    assert "--on-node" in found["engine"].text
    scripted = replace(question, launch=question.launch.changed(engine="scripted"))
    node = replace(scripted, on_node=True, login_versions={"python": "3.13.1", "vllm": "0.32.0"})
    found = {check.subject: check for check in checks(node, {})}
    assert found["packages"].status == "ok"
    assert (found["same environment"].status, sys.executable in found["same environment"].text) == ("ok", True)


VANILLA = ("--method", "vanilla", "--dataset", "demo", "--limit", "2", "--samples", "1", "--target", "demo-target,")


@pytest.mark.parametrize(("cluster", "engine", "lacks"), [("local", "vllm", "vllm"), ("debug", "auto", "torch")])
def test_a_launch_whose_workers_would_lack_the_engine_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, engine: str, lacks: str
) -> None:
    _without(monkeypatch, "vllm", "torch")
    output = ["--output", str(tmp_path / "runs")]
    result = CliRunner().invoke(launch.main, [*VANILLA, "--engine", engine, "--cluster", cluster, *output])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert {sys.executable, f"{lacks}:"} <= set(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sbatch", "is_refused"),
    [({}, True), ({"python": "/scratch/venv/bin/python"}, False), ({"setup": ["module load vllm"]}, False)],
)
def test_on_slurm_the_python_of_the_jobs_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: dict[str, object], is_refused: bool
) -> None:
    _without(monkeypatch, "vllm")
    request = Launch.from_flags(
        {"method": "vanilla", "dataset": "demo", "target": "demo-target,", "engine": "vllm", "output": tmp_path / "r"}
    )
    run = RunFolder(tmp_path / "r")
    launched = preparation.PreparedLaunch(request, "slurm", planning.plan(request, "slurm"), run, sbatch)
    if is_refused:
        with pytest.raises(ValueError, match=r"has no vllm: .*set another python in the profile, or"):
            preparation.check_engines([launched])
    else:
        preparation.check_engines([launched])


def test_a_finished_run_needs_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    run_parts([(str(run.path), [0])])
    request = Launch.from_flags(
        {"method": "vanilla", "dataset": "demo", "target": "demo-target,", "limit": 8, "samples": 3, "output": tmp_path}
    )
    planned = planning.plan(request, "local")
    assert planned.spec.num_samples == run.num_planned()
    _without(monkeypatch, "vllm", "torch")
    preparation.check_engines([preparation.PreparedLaunch(request, "local", planned, run, {})])
