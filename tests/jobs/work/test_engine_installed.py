"""A worker whose Python lacks the run's engine says so in one line; a login node's Python decides nothing for it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks import every
from harness.engines import adapter, speculation
from harness.launch_options import Launch
from jobs.run import plan as planning
from jobs.run.model_spec import EngineSpec
from jobs.work import engine_settings
from jobs.work.run_part import RunPart
from tests.harness.checks.question import QUESTION
from tests.jobs.runs import plan


def _without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Make this Python look like one without these packages."""

    def found(name: str) -> object:
        return None if name in missing else importlib.util.find_spec(name)

    for module in (engine_settings, planning, adapter, speculation):
        monkeypatch.setattr(module, "find_spec", found)


def test_a_worker_without_the_engine_names_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "vllm")
    run = plan(tmp_path, engine=EngineSpec("vllm"))
    with pytest.raises(ValueError, match=r"needs the engine vllm, and .* has no vllm: install it") as refusal:
        _ = RunPart(run.path, [0]).needs
    assert sys.executable in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("cluster", "is_own_python", "kind"),
    [("slurm", True, "vllm"), ("slurm", False, "transformers"), ("local", True, "transformers")],
)
def test_the_engine_is_decided_by_the_python_that_runs_it(
    monkeypatch: pytest.MonkeyPatch, cluster: str, is_own_python: bool, kind: str
) -> None:
    _without(monkeypatch, "vllm", "arctic_inference", "peft")
    launch = Launch(method="vanilla", dataset="demo", draft="demo-draft", target="demo-target", parameters={})
    planned = planning.plan(launch, cluster, is_own_python=is_own_python)  # type: ignore[arg-type]
    assert planned.spec.engine.kind == kind


def test_packages_that_jobs_need_are_not_looked_for_on_the_login_node(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "vllm", "arctic_inference")
    launch = Launch(method="specdecode", dataset="demo", target="demo-target", spec_decode="suffix", parameters={})
    assert planning.plan(launch, "slurm", is_own_python=True).spec.engine.spec_decode == "suffix"
    with pytest.raises(ValueError, match="--engine vllm"):
        planning.plan(launch, "slurm")


def test_the_doctor_leaves_the_packages_of_jobs_to_the_node() -> None:
    question = replace(QUESTION, cluster="slurm", sbatch={"python": "apptainer exec /a.sif python3"})
    found = {check.subject: check for check in every.checks(question)}
    assert not {"packages", "installation", "torch companions", "vllm"} & set(found)
    assert found["engine"].status == "ok"
    assert "--on-node" in found["engine"].text
    node = replace(question, engine="scripted", on_node=True, login_versions={"python": "3.13.1", "vllm": "0.32.0"})
    found = {check.subject: check for check in every.checks(node)}
    assert found["packages"].status == "ok"
    assert (found["same environment"].status, sys.executable in found["same environment"].text) == ("ok", True)
