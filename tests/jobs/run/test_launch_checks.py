"""What a worker would meet is refused at the launch, unless the run exists already; a worker says it in one line."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from harness import launch
from harness.engines import registry, speculation
from harness.problems import hub
from harness.settings.launch_settings import Launch
from harness.weights import adapter
from harness.weights.models import pair_folder
from jobs import preparation
from jobs.checks import checks
from jobs.drive import create
from jobs.preparation import PreparedLaunch, prepare
from jobs.run import plan as planning
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec
from jobs.work.run_part import RunPart
from jobs.work.worker import run_parts
from tests.harness.checks.question import QUESTION
from tests.jobs.runs import plan

BUDGET = 512


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "is_offline", lambda: True)


def prepared(typed: tuple[str, ...] = (), **flags: Any) -> PreparedLaunch:
    common: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "vllm", "limit": 2, "cluster": "local"}
    common |= {"draft": "demo-draft", "target": "demo-target", "token_budget": BUDGET}
    return prepare(Launch.from_flags(common | flags), typed)


@pytest.mark.parametrize(
    ("typed", "flags", "message"),
    [
        ("draft", {"draft": "nosuch"}, "--draft nosuch: vanilla --model target generates only with the target"),
        ("draft_memory", {"draft_memory": 0.1}, "--draft.memory 0.1: vanilla --model target"),
        ("target", {"target": "nosuch", "model": "draft"}, "--target nosuch: vanilla --model draft generates"),
    ],
)  # fmt: skip
def test_a_typed_flag_of_a_model_that_is_not_used_is_refused(typed: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepared((typed,), method="vanilla", **flags)
    prepared((), method="vanilla", **flags)  # as a preset, a file or a suite gives it to every method


def test_who_proposes_tokens_is_used() -> None:
    prepared(("draft",), method="specdecode", temperature=0)
    with pytest.raises(ValueError, match="--draft demo-draft: specdecode generates only with the target"):
        prepared(("draft",), method="specdecode", temperature=0, spec_decode="ngram")


@pytest.mark.parametrize(
    ("flags", "too_small", "named"),
    [
        ({"method": "vanilla"}, 513, "--token-budget 512"),
        ({"method": "speccot"}, 513, "--token-budget 512"),
        ({"method": "vanilla", "engine": "scripted", "draft": None, "target": None}, 513, "--token-budget 512"),
        ({"method": "scot", "drafts": 3, "draft_tokens": 250}, 700, "--drafts 3 --draft-tokens 250"),
    ],
)
def test_a_context_that_does_not_hold_prompt_and_budget_is_refused_with_the_least_that_does(
    flags: dict[str, Any], too_small: int, named: str
) -> None:
    with pytest.raises(ValueError, match=f"--max-context {too_small}: too short for a prompt and {named}") as refused:
        prepared(max_context=too_small, **flags)
    found = re.search(r"valid: (\d+)", str(refused.value))
    assert found is not None
    least = int(found[1])
    assert not [line for line in prepared(max_context=least, **flags).plan.notices if line.startswith("SHORT CONTEXT")]
    with pytest.raises(ValueError, match=f"valid: {least} or more"):
        prepared(max_context=least - 1, **flags)


def with_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("flag", "harm", "message"),
    [
        ("draft", lambda folder: halve(folder / "model.safetensors"), "model.safetensors is damaged"),
        ("reward", lambda folder: halve(folder / "model.safetensors"), "model.safetensors is damaged"),
        ("target", lambda folder: with_config(folder, is_encoder_decoder=True), "is an encoder-decoder model"),
        ("draft", lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        ("target", lambda folder: halve(folder / "tokenizer.json"), "failed to load its tokenizer"),
    ],
)
def test_a_model_that_no_worker_could_use_is_refused(
    flag: str, harm: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    harm(folder)
    flags: dict[str, Any] = {"method": "rsd", "reward": "demo-reward", flag: str(folder)}
    with pytest.raises(ValueError, match=f"^--{flag} own: .*{message}") as refused:
        prepared(**flags)
    assert "\n" not in str(refused.value)
    prepared(**flags, engine="scripted")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache with org/some, which it knows as main, and HF_HUB_OFFLINE set."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "offline_by", lambda: "HF_HUB_OFFLINE")
    repository = tmp_path / "hub" / "models--org--some"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return shutil.copytree(pair_folder("demo-draft"), repository / "snapshots" / COMMIT)


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("org/some", None, None),
        ("org/none", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/none$"),
        ("org/some@other", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/some --revision other"),
        ("org/some", "model.safetensors", f"has no weights .*: hf download org/some --revision {COMMIT}"),
        ("org/some", "tokenizer.json", "has no tokenizer.json.*: hf download org/some"),
        ("qwq-32b", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download Qwen/QwQ-32B --revision "),
    ],
)
def test_what_is_not_in_the_cache_is_refused_where_the_hub_is_not_asked(
    cached: Path, name: str, harm: str | None, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if harm:
        (cached / harm).unlink()
    if message is None:
        prepared(draft=name)
        return
    with pytest.raises(ValueError, match=f"--draft .*{message}"):
        prepared(draft=name)
    monkeypatch.setattr("jobs.preparation.resolve", lambda cluster: "slurm")
    prepared(draft=name, slurm=("setup=export HF_HOME=/nodes/own",))
    monkeypatch.setattr(hub, "offline_by", lambda: None)  # the workers download what is missing
    prepared(draft=name)


def test_an_id_that_nobody_could_ask_the_hub_about_is_named() -> None:
    [notice, *_] = prepared(draft="org/unseen").plan.notices
    assert "--draft org/unseen" in notice
    assert prepared().plan.notices == []


@pytest.mark.parametrize("error", [RepositoryNotFoundError, HfHubHTTPError])  # a mirror does not say why
def test_an_id_that_the_hub_does_not_know_is_refused(
    error: type[HfHubHTTPError], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def unknown(self: HfApi, repo_id: str, **_: Any) -> None:
        asked.append(repo_id)
        response = SimpleNamespace(headers={}, request=None, status_code=404)
        raise error("404", response=response)  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "model_info", unknown)
    prepared(draft="some/where")  # the hub is not asked while this machine is offline
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    monkeypatch.setattr(hub, "is_reachable", lambda seconds: True)
    with pytest.raises(ValueError, match="--draft some/where: the hub has no such model, or it is private"):
        prepared(draft="some/where")
    assert asked == ["some/where"]


def test_a_run_that_exists_is_not_refused() -> None:
    launch = prepared(method="vanilla")
    create(launch)
    assert prepared(("draft",), method="vanilla", draft="nosuch").run == launch.run


def _without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Make this Python look like one without these packages."""

    def found(name: str) -> object:
        return None if name in missing else importlib.util.find_spec(name)

    for module in (registry, adapter, speculation):
        monkeypatch.setattr(module, "find_spec", found)


def test_a_worker_without_the_engine_names_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "vllm")
    run = plan(tmp_path, engine=EngineSpec("vllm"))
    with pytest.raises(ValueError, match=r"needs the engine vllm, but .* lacks vllm: install it") as refusal:
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


VANILLA = ("--method", "vanilla", "--dataset", "demo", "--limit", "2", "--samples", "1", "--target", "demo-target")


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
        {"method": "vanilla", "dataset": "demo", "target": "demo-target", "engine": "vllm", "output": tmp_path / "r"}
    )
    run = RunFolder(tmp_path / "r")
    launched = preparation.PreparedLaunch(request, "slurm", planning.plan(request, "slurm"), run, sbatch)
    if is_refused:
        with pytest.raises(ValueError, match=r"lacks vllm: .*set another python in the profile, or"):
            preparation.check_engines([launched])
    else:
        preparation.check_engines([launched])


def test_a_finished_run_needs_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    run_parts([(str(run.path), [0])])
    request = Launch.from_flags(
        {"method": "vanilla", "dataset": "demo", "target": "demo-target", "limit": 8, "samples": 3, "output": tmp_path}
    )
    planned = planning.plan(request, "local")
    assert planned.spec.num_samples == run.num_planned()
    _without(monkeypatch, "vllm", "torch")
    preparation.check_engines([preparation.PreparedLaunch(request, "local", planned, run, {})])
